"use strict";
// What the page knows: operations, records, activities and gaps, and the pieces of work that it
// computes from them. This file reads no element of the page.

const ifo = {};

// The states with their rank (the worst has the lowest), pattern, glyph and meaning.
ifo.STATES = {
  Failing: { rank: 0, pattern: "cross", glyph: "bang", meaning: "runs, and its object reports an error" },
  Blocked: { rank: 1, pattern: "stripes", glyph: "wait", meaning: "waits for another component or for a person" },
  Progressing: { rank: 2, pattern: null, glyph: "run", meaning: "runs, and its object reports no problem" },
  Held: { rank: 3, pattern: "bars", glyph: "pause", meaning: "a person has put the object on hold" },
  Settling: { rank: 4, pattern: "dots", glyph: "settle", meaning: "no longer detected, ends soon" },
  Failed: { rank: 5, pattern: "cross", glyph: "fail", meaning: "ended with a failure", done: true },
  Succeeded: { rank: 6, pattern: null, glyph: "check", meaning: "ended successfully", done: true },
  Ended: { rank: 7, pattern: "dots", glyph: "ring", meaning: "ended, and its result is not known", done: true },
  Superseded: { rank: 8, pattern: "lines", glyph: "skip", meaning: "replaced by another operation", done: true },
  Unknown: { rank: 9, pattern: "dots", glyph: "ring", meaning: "a state that this version does not know" },
};
ifo.stateOf = (name) => ifo.STATES[name] || ifo.STATES.Unknown;

// The page keeps at most this many completed operations. It forgets those that ended first.
const MAX_COMPLETED = 20000;

const time = (text) => (text ? Date.parse(text) || null : null);
const pathOf = (subject) => [subject.kind, subject.namespace || "", subject.name].join("/");

// Returns an operation or a record as the page uses it. All times are in milliseconds.
function operationOf(object) {
  const { metadata = {}, spec = {}, status = {} } = object;
  const subject = spec.subject || {};
  const completed = object.kind === "OperationRecord" || status.phase === "Completed";
  const isTrue = (type) => (status.conditions || []).some((it) => it.type === type && it.status === "True");
  const operation = {
    object,
    uid: metadata.uid || `${metadata.namespace}/${metadata.name}`,
    name: metadata.name || "",
    namespace: subject.namespace || "",
    component: spec.component || "",
    operation: spec.operation || "",
    work: spec.work || "",
    initiator: spec.initiator || "",
    subject,
    path: pathOf(subject),
    owners: subject.ownerReferences || [],
    active: !completed,
    state: status.outcome || status.state || "Unknown",
    reason: status.reason || "",
    message: status.message || "",
    progress: Number.isFinite(status.progress) ? status.progress : null,
    nodes: status.nodes || [],
    start: time(status.started) || time(metadata.creationTimestamp) || ifo.now(),
    end: completed ? time(status.completed) || time(status.lastDetected) : null,
    queued: time(status.queuedAt),
    since: time(status.stateSince),
    expected: status.expected || null,
    eta: completed ? null : time(status.estimatedCompletion),
    overdue: !completed && isTrue("Overdue"),
    stalled: !completed && isTrue("Stalled"),
    startIsEstimated: status.startTimeSource === "ManagedFields",
  };
  operation.text = [subject.kind, subject.name, subject.namespace, spec.operation, spec.component, spec.item,
    spec.initiator, status.reason, status.message, operation.state, ...operation.nodes].join(" ").toLowerCase();
  return operation;
}

ifo.model = {
  operations: new Map(),
  activities: new Map(),
  warnings: [],
  // Times in which operations may be missing: {from, to, text}; `to` is null while it lasts.
  gaps: [],
  begin: null,
  pieces: [],
  clockOffset: 0,
  // True if objects have changed since the pieces were computed.
  changed: true,
};
const model = ifo.model;

// The time of the server. In an exported file, the time of the export.
ifo.now = () => (ifo.frozen ? ifo.frozen : Date.now() + model.clockOffset);

ifo.reset = () => {
  model.operations = new Map();
  model.activities = new Map();
  model.warnings = [];
  model.changed = true;
};

ifo.openGap = (kind, from, text) => {
  if (!model.gaps.some((it) => it.kind === kind && it.to === null)) model.gaps.push({ kind, from, to: null, text });
};
ifo.closeGap = (kind, to) => {
  for (const gap of model.gaps) if (gap.kind === kind && gap.to === null) gap.to = to;
  if (model.gaps.length > 200) model.gaps.splice(0, model.gaps.length - 200);
};

ifo.idleCondition = (activity) =>
  ((activity && activity.status && activity.status.conditions) || []).find((it) => it.type === "Idle");

function applyActivity(type, object) {
  const { namespace, name } = object.metadata || {};
  const key = name === "namespace" ? `namespace.${namespace}` : name;
  if (type === "DELETED") model.activities.delete(key);
  else model.activities.set(key, object);
  if (key !== "cluster") return;
  const idle = ifo.idleCondition(object);
  const since = (idle && time(idle.lastTransitionTime)) || ifo.now();
  if (type !== "DELETED" && idle && idle.status === "Unknown") ifo.openGap("detection", since, idle.message || idle.reason);
  else ifo.closeGap("detection", since);
}

// Applies a change. The page keeps completed operations that the server has deleted.
ifo.apply = (type, object) => {
  model.changed = true;
  if (object.kind === "Activity") return applyActivity(type, object);
  const operation = operationOf(object);
  const known = model.operations.get(operation.uid);
  if (type === "DELETED") {
    if (operation.active && known && known.active) model.operations.delete(operation.uid);
    return undefined;
  }
  // The completed operation has more fields than its record.
  if (object.kind === "OperationRecord" && known && !known.active) return undefined;
  model.operations.set(operation.uid, operation);
  return undefined;
};

function forgetOldest() {
  const completed = [...model.operations.values()].filter((it) => !it.active);
  if (completed.length <= MAX_COMPLETED) return;
  completed.sort((a, b) => a.end - b.end);
  for (const it of completed.slice(0, completed.length - MAX_COMPLETED)) model.operations.delete(it.uid);
}

// Groups operations into pieces of work, as src/work_groups.rs does: same component and same key.
// An open key ends with "/", and joins the nearest piece in flight whose key begins with it.
ifo.computePieces = () => {
  if (!model.changed) return;
  model.changed = false;
  forgetOldest();
  const byKey = new Map();
  const open = [];
  const groups = [];
  for (const it of model.operations.values()) {
    if (it.work.endsWith("/")) {
      open.push(it);
      continue;
    }
    const key = it.work && `${it.component}\n${it.work}`;
    let members = key && byKey.get(key);
    if (!members) {
      members = [];
      groups.push(members);
      if (key) byKey.set(key, members);
    }
    members.push(it);
  }
  joinOpenKeys(open, byKey, groups);
  model.pieces = groups.map(pieceOf);
  ifo.firstKnown = minimum(model.pieces, "start");
  model.byId = new Map(model.pieces.map((it) => [it.id, it]));
  model.byMember = new Map(model.pieces.flatMap((piece) => piece.members.map((it) => [it.uid, piece])));
};

function joinOpenKeys(open, byKey, groups) {
  // Candidates by their key up to its last "/", so that each open key is compared with few pieces.
  const byPrefix = new Map();
  for (const [key, members] of open.length ? byKey : []) {
    for (let at = key.indexOf("/"); at > 0; at = key.indexOf("/", at + 1)) {
      const prefix = key.slice(0, at + 1);
      if (!byPrefix.has(prefix)) byPrefix.set(prefix, []);
      byPrefix.get(prefix).push({ members, start: minimum(members, "start"), end: lastEnd(members) });
    }
  }
  const joined = open.map((it) => {
    const candidates = byPrefix.get(`${it.component}\n${it.work}`) || [];
    const end = it.active ? Infinity : it.end;
    const possible = candidates.filter((piece) => piece.start <= end && it.start <= piece.end);
    const distance = (piece) => {
      const seconds = Math.floor(piece.start / 1000) - Math.floor(it.start / 1000);
      return seconds > 0 ? 1e12 + seconds : -seconds;
    };
    return possible.reduce((best, piece) => (!best || distance(piece) < distance(best) ? piece : best), null);
  });
  joined.forEach((piece, number) => (piece ? piece.members.push(open[number]) : groups.push([open[number]])));
}

const minimum = (members, field) => members.reduce((least, it) => Math.min(least, it[field]), Infinity);
const lastEnd = (members) => members.reduce((last, it) => Math.max(last, it.active ? Infinity : it.end), -Infinity);

// Returns the members with the root first. The subject of the root owns those of the others.
function rootFirst(members) {
  if (members.length === 1) return members;
  const subjects = new Set(members.map((it) => it.subject.uid).filter(Boolean));
  const ownersOf = (it) => it.owners.map((owner) => owner.uid).filter((uid) => uid && uid !== it.subject.uid);
  const owners = new Set(members.flatMap(ownersOf));
  const lasted = (it) => (it.active ? Infinity : it.end - it.start);
  const keyOf = new Map(members.map((it) => [it, [
    ownersOf(it).some((uid) => subjects.has(uid)) ? 1 : 0,
    owners.has(it.subject.uid) ? 0 : 1,
    -lasted(it), it.start, it.uid,
  ]]));
  const root = members.reduce((best, it) => (ifo.compareKeys(keyOf.get(it), keyOf.get(best)) < 0 ? it : best));
  const others = members.filter((it) => it !== root);
  return [root, ...others.sort((a, b) => a.start - b.start || (a.uid < b.uid ? -1 : 1))];
}

ifo.compareKeys = (a, b) => {
  for (let at = 0; at < a.length; at += 1) if (a[at] !== b[at]) return a[at] < b[at] ? -1 : 1;
  return 0;
};

// Returns one piece of work. Its state is that of its worst member, as in src/work_groups.rs.
function pieceOf(unsorted) {
  const members = rootFirst(unsorted);
  const root = members[0];
  if (members.length === 1) return { ...root, id: root.uid, root, members };
  const active = members.some((it) => it.active);
  const ends = new Map();
  for (const it of members) {
    if (!it.active) ends.set(it.path, Math.max(it.end, ends.get(it.path) || 0));
  }
  const shown = members.filter((it) => it.active === active);
  const keyOf = (it) => [
    it.state === "Succeeded" && it.end < ends.get(it.path) ? 1 : 0,
    ifo.stateOf(it.state).rank, it.progress === null ? 1 : 0,
  ];
  const sorted = shown.map((it) => [keyOf(it), it]).sort((a, b) => ifo.compareKeys(a[0], b[0])).map((it) => it[1]);
  const deciding = sorted[0];
  const withMessage = sorted.find((it) => it.message) || deciding;
  const cause = deciding.state === "Failed" ? causeOfFailure(members) : withMessage;
  const first = (field) => sorted.map((it) => it[field]).find((it) => it !== null && it !== "");
  const expected = members.map((it) => it.expected).filter(Boolean);
  expected.sort((a, b) => b.typicalSeconds - a.typicalSeconds);
  return {
    ...root, id: root.uid, root, members, active,
    state: deciding.state,
    reason: deciding.state === "Failed" ? cause.reason : deciding.reason,
    message: cause.message,
    progress: first("progress") ?? null,
    initiator: root.initiator || members.map((it) => it.initiator).find(Boolean) || "",
    start: minimum(members, "start"),
    end: active ? null : lastEnd(members),
    queued: members.map((it) => it.queued).filter(Boolean).sort()[0] || null,
    since: deciding.since,
    expected: root.expected || expected[0] || null,
    eta: sorted.reduce((latest, it) => Math.max(latest, it.eta || 0), 0) || null,
    nodes: [...new Set(members.flatMap((it) => it.nodes))].sort(),
    overdue: sorted.some((it) => it.overdue),
    stalled: sorted.some((it) => it.stalled),
    text: members.map((it) => it.text).join(" "),
  };
}

// Returns the failed member that ended first and names a cause.
function causeOfFailure(members) {
  const key = (it, number) => [
    !it.message || it.message.startsWith("The subject reports that the operation failed.") ? 1 : 0,
    it.end, number === 0 ? 1 : 0,
  ];
  const failed = members.map((it, number) => [key(it, number), it]).filter((it) => it[1].state === "Failed");
  return failed.reduce((best, it) => (ifo.compareKeys(it[0], best[0]) < 0 ? it : best))[1];
}

// The rank by which pieces need attention: Failing, Blocked, stalled, overdue, then the others.
ifo.attentionRank = (piece) => {
  if (!piece.active) return 9;
  if (piece.state === "Failing" || piece.state === "Blocked") return ifo.stateOf(piece.state).rank;
  return piece.stalled ? 2 : piece.overdue ? 3 : 4;
};

// Returns true if the piece fits the filters of the view. `states` can be left out.
ifo.fits = (piece, view, withoutStates = false) => {
  if (view.component && piece.component !== view.component) return false;
  if (view.namespace && !piece.members.some((it) => (it.namespace || "-") === view.namespace)) return false;
  if (view.node && !piece.nodes.includes(view.node)) return false;
  if (view.active && !piece.active) return false;
  if (!withoutStates && view.states.length && !view.states.some((it) => hasState(piece, it))) return false;
  return view.words.every((word) => piece.text.includes(word));
};
const hasState = (piece, state) =>
  state === "Overdue" ? piece.overdue : state === "Stalled" ? piece.stalled : piece.state === state;
ifo.hasState = hasState;

// Answers whether what the filters select is idle: {status: "idle" | "busy" | "unknown", …}. An
// Activity answers for the whole cluster, one namespace, node or component. For other filters, the
// page counts the operations, and trusts "none" only if the Activity knows of all operations.
ifo.idleOf = (view, connected) => {
  const chosen = ["component", "namespace", "node"].filter((it) => view[it]);
  const searched = view.words.length > 0 || view.states.length > 0;
  const name = chosen.length === 1 && view.namespace !== "-" ? `${chosen[0]}.${view[chosen[0]]}` : "cluster";
  const scope = searched || chosen.length > 1 || view.namespace === "-" ? "what the filters select" : chosen.length ? name.replace(".", " ") : "the cluster";
  const mine = model.begin && model.begin.namespace && !chosen.length ? `namespace.${model.begin.namespace}` : name;
  const activity = model.activities.get(name) || model.activities.get(mine);
  const idle = ifo.idleCondition(activity);
  const isCounted = (it) => it.active && it.state !== "Held";
  const pieces = model.pieces.filter((it) => isCounted(it) && ifo.fits(it, view));
  const count = pieces.reduce((sum, it) => sum + it.members.filter(isCounted).length, 0);
  const unknown = (why) => ({ status: "unknown", scope, count, why });
  if (!connected) return unknown("The page is not connected, so the state may have changed.");
  if (idle && scope !== "what the filters select") {
    const since = time(idle.lastTransitionTime);
    if (idle.status === "False") return { status: "busy", scope, count: activity.status.operations, since };
    if (idle.status === "True" && !model.warnings.length) return { status: "idle", scope, count: 0, since };
  }
  if (count) return { status: "busy", scope, count, since: minimum(pieces, "start") };
  if (!idle) return unknown(`Nothing is shown, but you cannot read the Activity of ${name.replace(".", " ")}.`);
  if (idle.status === "Unknown") return unknown(idle.message || "Operations may be missing.");
  return model.warnings.length ? unknown("Nothing is shown, but the view is not complete.") : { status: "idle", scope, count: 0, since: null };
};

// Formats. The formatters are created once, because each creation takes long.
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const minutes = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
ifo.clock = (ms) => clock.format(ms);
ifo.minutes = (ms) => minutes.format(ms);
ifo.day = (ms) => day.format(ms);
ifo.dateTime = (ms) => (ms ? (ifo.day(ms) === ifo.day(ifo.now()) ? ifo.clock(ms) : `${ifo.day(ms)} ${ifo.minutes(ms)}`) : "–");
ifo.duration = (ms) => {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const two = (big, small, units) => `${big}${units[0]}${small ? ` ${small}${units[1]}` : ""}`;
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return two(Math.floor(seconds / 60), seconds % 60, "ms");
  if (seconds < 86400) return two(Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60), "hm");
  return two(Math.floor(seconds / 86400), Math.floor((seconds % 86400) / 3600), "dh");
};
ifo.target = (operation) => `${operation.subject.kind || "?"}/${operation.subject.name || "?"}`;
ifo.lengthOf = (piece) => (piece.active ? ifo.now() : piece.end) - piece.start;
ifo.stateText = (piece) => {
  const marks = [piece.overdue && "overdue", piece.stalled && "stalled"].filter(Boolean).join(", ");
  return `${piece.state}${piece.progress !== null && piece.active ? ` ${piece.progress}%` : ""}${marks ? ` (${marks})` : ""}`;
};
ifo.expectedText = (expected) => {
  if (!expected) return "";
  const usual = ifo.duration(expected.typicalSeconds * 1000);
  if (expected.source !== "History") return `limit ${usual}`;
  const most = expected.p95Seconds ? `, 95% within ${ifo.duration(expected.p95Seconds * 1000)}` : "";
  return `${usual}${most}${expected.runs ? ` (${expected.runs} runs)` : ""}`;
};
