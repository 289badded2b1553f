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

// Sorts by keys. A key is a list of numbers and texts, and its first item counts most.
const sortedBy = (list, keyOf) => {
  const compare = (a, b) => {
    const at = a.key.findIndex((own, index) => own !== b.key[index]);
    return at < 0 ? 0 : a.key[at] < b.key[at] ? -1 : 1;
  };
  return list.map((it) => ({ it, key: keyOf(it) })).sort(compare).map(({ it }) => it);
};
// Returns the list of a key of the map. Creates it if it is missing.
const listIn = (map, key) => {
  if (!map.has(key)) map.set(key, []);
  return map.get(key);
};
// Returns the index of the first item for which `isReached` is true. It must be true for all later ones.
const firstIndex = (list, isReached) => {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isReached(list[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
};
const minimum = (list, field) => list.reduce((least, it) => Math.min(least, it[field]), Infinity);

const time = (text) => (text ? Date.parse(text) || null : null);
const pathOf = (subject) => [subject.kind, subject.namespace || "", subject.name].join("/");

// Returns an operation or a record as the page uses it. All times are in milliseconds.
function operationOf(object) {
  const { metadata = {}, spec = {}, status = {} } = object;
  const { subject = {}, component = "", operation = "", work = "", initiator = "" } = spec;
  const { reason = "", message = "", nodes = [], expected = null, conditions = [] } = status;
  const state = status.outcome || status.state || "Unknown";
  const completed = object.kind === "OperationRecord" || status.phase === "Completed";
  const start = time(status.started) || time(metadata.creationTimestamp) || ifo.now();
  const isTrue = (type) => !completed && conditions.some((it) => it.type === type && it.status === "True");
  const texts = [subject.kind, subject.name, subject.namespace, operation, component, spec.item, initiator, reason, message, state, ...nodes];
  return {
    object, component, operation, work, initiator, subject, state, reason, message, nodes, expected, start,
    uid: metadata.uid || `${metadata.namespace}/${metadata.name}`,
    namespace: subject.namespace || "",
    path: pathOf(subject),
    owners: subject.ownerReferences || [],
    active: !completed,
    progress: Number.isFinite(status.progress) ? status.progress : null,
    // An operation in flight has no end yet.
    end: completed ? time(status.completed) || time(status.lastDetected) || start : Infinity,
    queued: time(status.queuedAt),
    since: time(status.stateSince),
    eta: completed ? null : time(status.estimatedCompletion),
    overdue: isTrue("Overdue"),
    stalled: isTrue("Stalled"),
    startIsEstimated: status.startTimeSource === "ManagedFields",
    text: texts.join(" ").toLowerCase(),
  };
}

const model = {
  operations: new Map(),
  activities: new Map(),
  // What could not be read, and the times in which operations may be missing.
  state: { warnings: [], gaps: [] },
  // The time since which `kubectl ifo ui` does not answer. Null while it answers.
  streamLostSince: null,
  begin: null,
  pieces: [],
  // The operations of each piece by their key, so that only pieces that have changed are computed again.
  byKey: new Map(),
  // The piece of each operation.
  byUid: new Map(),
  firstStart: Infinity,
  clockOffset: 0,
  // True if objects have changed since the pieces were computed.
  changed: true,
};
ifo.model = model;

// The time of the server. In an exported file, the time of the export.
ifo.now = () => ifo.frozen || Date.now() + model.clockOffset;

const idleCondition = (activity) => activity?.status?.conditions?.find((it) => it.type === "Idle");

// The times in which operations may be missing: {kind, from, to, message}; `to` is null while it lasts.
ifo.gaps = () => {
  const idle = idleCondition(model.activities.get("cluster"));
  const unknownSince = (idle && idle.status === "Unknown" && time(idle.lastTransitionTime)) || Infinity;
  // The gap may have begun before `kubectl ifo ui` was started.
  const begin = (it) => (it.to || it.kind !== "detection" ? time(it.from) : Math.min(time(it.from), unknownSince));
  const gaps = model.state.gaps.map((it) => ({ ...it, from: begin(it), to: time(it.to) }));
  return model.streamLostSince ? [...gaps, { kind: "connection", from: model.streamLostSince, to: null }] : gaps;
};
// The gap while the page gets no changes of the cluster. Undefined while it gets them.
ifo.lostConnection = () => ifo.gaps().find((it) => it.kind === "connection" && !it.to);

// Applies a change. The page keeps completed operations that the server has deleted.
ifo.apply = (type, object) => {
  model.changed = true;
  if (object.kind === "Activity") {
    const { namespace, name } = object.metadata;
    const key = name === "namespace" ? `namespace.${namespace}` : name;
    if (type === "DELETED") model.activities.delete(key);
    else model.activities.set(key, object);
    return;
  }
  const operation = operationOf(object);
  const known = model.operations.get(operation.uid);
  const isKnownToEnd = known && !known.active;
  if (type === "DELETED") {
    if (!isKnownToEnd) model.operations.delete(operation.uid);
  } else if (object.kind !== "OperationRecord" || !isKnownToEnd) {
    // The completed operation has more fields than its record.
    model.operations.set(operation.uid, operation);
  }
};

function forgetOldest() {
  const completed = [...model.operations.values()].filter((it) => !it.active);
  if (completed.length <= MAX_COMPLETED) return;
  const forgotten = sortedBy(completed, (it) => [it.end]).slice(0, completed.length - MAX_COMPLETED);
  for (const it of forgotten) model.operations.delete(it.uid);
}

// Groups operations into pieces of work, as src/work_groups.rs does: same component and same key.
// An open key ends with "/", and joins the nearest piece in flight whose key begins with it.
ifo.computePieces = () => {
  if (!model.changed) return;
  model.changed = false;
  forgetOldest();
  const byKey = new Map();
  const open = [];
  for (const it of model.operations.values()) {
    if (it.work.endsWith("/")) open.push(it);
    else listIn(byKey, it.work ? `${it.component}\n${it.work}` : it.uid).push(it);
  }
  joinOpenKeys(open, byKey);
  const known = model.byKey;
  model.byKey = new Map([...byKey].map(([key, operations]) => {
    const before = known.get(key);
    const isSame = before && before.operations.length === operations.length && operations.every((it, at) => it === before.operations[at]);
    return [key, isSame ? before : { operations, piece: pieceOf(operations) }];
  }));
  model.pieces = [...model.byKey.values()].map((it) => it.piece);
  model.firstStart = minimum(model.pieces, "start");
  model.byUid = new Map(model.pieces.flatMap((piece) => piece.members.map((it) => [it.uid, piece])));
};

function joinOpenKeys(open, byKey) {
  // Candidates by their key up to each "/", so that each open key is compared with few pieces.
  const byPrefix = new Map();
  for (const [key, members] of open.length ? byKey : []) {
    for (let at = key.indexOf("/"); at > 0; at = key.indexOf("/", at + 1)) {
      listIn(byPrefix, key.slice(0, at + 1)).push({ members, start: minimum(members, "start"), end: lastEnd(members) });
    }
  }
  const joined = open.map((it) => {
    const candidates = byPrefix.get(`${it.component}\n${it.work}`) || [];
    const possible = candidates.filter((piece) => piece.start <= it.end && it.start <= piece.end);
    const lead = (piece) => Math.floor(piece.start / 1000) - Math.floor(it.start / 1000);
    return sortedBy(possible, (piece) => [lead(piece) > 0 ? 1 : 0, Math.abs(lead(piece))])[0];
  });
  joined.forEach((piece, at) => (piece ? piece.members : listIn(byKey, open[at].uid)).push(open[at]));
}

const lastEnd = (members) => members.reduce((last, it) => Math.max(last, it.end), -Infinity);

// Returns the members with the root first. The subject of the root owns those of the others.
function rootFirst(members) {
  const subjects = new Set(members.map((it) => it.subject.uid).filter(Boolean));
  const ownersOf = (it) => it.owners.map((owner) => owner.uid).filter((uid) => uid && uid !== it.subject.uid);
  const owners = new Set(members.flatMap(ownersOf));
  const [root] = sortedBy(members, (it) => [
    ownersOf(it).some((uid) => subjects.has(uid)) ? 1 : 0,
    owners.has(it.subject.uid) ? 0 : 1,
    it.start - it.end, it.start, it.uid,
  ]);
  return [root, ...sortedBy(members.filter((it) => it !== root), (it) => [it.start, it.uid])];
}

// Returns one piece of work. Its state is that of its worst member, as in src/work_groups.rs.
function pieceOf(unsorted) {
  if (unsorted.length === 1) return { ...unsorted[0], root: unsorted[0], members: unsorted };
  const members = rootFirst(unsorted);
  const root = members[0];
  const active = members.some((it) => it.active);
  const ends = new Map();
  for (const it of members) if (!it.active) ends.set(it.path, Math.max(it.end, ends.get(it.path) || 0));
  const shown = sortedBy(members.filter((it) => it.active === active), (it) => [
    it.state === "Succeeded" && it.end < ends.get(it.path) ? 1 : 0,
    ifo.stateOf(it.state).rank, it.progress === null ? 1 : 0,
  ]);
  const { state, since, reason } = shown[0];
  const cause = state === "Failed" ? causeOfFailure(members) : null;
  const first = (list, field, isSet = Boolean) => (list.find((it) => isSet(it[field])) || shown[0])[field];
  const expected = members.map((it) => it.expected).filter(Boolean);
  return {
    ...root, root, members, active, state, since,
    reason: cause ? cause.reason : reason,
    message: cause ? cause.message : first(shown, "message"),
    progress: first(shown, "progress", Number.isFinite),
    initiator: first(members, "initiator"),
    start: minimum(members, "start"),
    end: lastEnd(members),
    queued: first(sortedBy(members, (it) => [it.queued || Infinity]), "queued"),
    expected: root.expected || sortedBy(expected, (it) => [-it.typicalSeconds])[0] || null,
    eta: Math.max(...shown.map((it) => it.eta)) || null,
    nodes: [...new Set(members.flatMap((it) => it.nodes))].sort(),
    overdue: shown.some((it) => it.overdue),
    stalled: shown.some((it) => it.stalled),
    text: members.map((it) => it.text).join(" "),
  };
}

// Returns the failed member that ended first and names a cause.
function causeOfFailure(members) {
  const namesNone = (it) => !it.message || it.message.startsWith("The subject reports that the operation failed.");
  const failed = members.filter((it) => it.state === "Failed");
  return sortedBy(failed, (it) => [namesNone(it) ? 1 : 0, it.end, it === members[0] ? 1 : 0])[0];
}

// The rank by which pieces need attention: Failing, Blocked, stalled, overdue, then the others.
ifo.attentionRank = (piece) => {
  if (!piece.active) return 9;
  if (piece.state === "Failing" || piece.state === "Blocked") return ifo.stateOf(piece.state).rank;
  return piece.stalled ? 2 : piece.overdue ? 3 : 4;
};

// The filters by name: the values that a piece has.
ifo.CHOICES = {
  component: (piece) => [piece.component],
  namespace: (piece) => piece.members.map((it) => it.namespace || "-"),
  node: (piece) => piece.nodes,
};
ifo.hasState = (piece, state) => (state === "Overdue" ? piece.overdue : state === "Stalled" ? piece.stalled : piece.state === state);
ifo.isIn = (piece, { from, to }) => piece.start <= to && piece.end >= from;

// Returns true if the piece fits the filters of the view. `states` can be left out.
ifo.fits = (piece, view, withoutStates = false) => {
  const isChosen = ([name, valuesOf]) => !view[name] || valuesOf(piece).includes(view[name]);
  return (piece.active || !view.active) && Object.entries(ifo.CHOICES).every(isChosen)
    && (withoutStates || !view.states.length || view.states.some((it) => ifo.hasState(piece, it)))
    && view.words.every((word) => piece.text.includes(word));
};

// Answers whether the cluster, or what the user has chosen, is idle: {status: "idle" | "busy" |
// "unknown", …}. The search and the states have no effect. An Activity answers for the whole cluster,
// one namespace, node or component. For other choices, and for files of which the flags select a part,
// the page counts the operations. It trusts "none" only if the Activity knows of all operations, and no
// flag leaves out operations.
ifo.idleOf = (view) => {
  const chosen = Object.keys(ifo.CHOICES).filter((it) => view[it]).map((it) => `${it}.${view[it]}`);
  const isPart = model.begin && model.begin.mode === "files" && model.begin.filter;
  const isCounted = isPart || chosen.length > 1 || view.namespace === "-";
  const whole = model.begin && model.begin.namespace ? `namespace.${model.begin.namespace}` : "cluster";
  const name = (!isCounted && chosen[0]) || whole;
  const place = name === "cluster" ? "the cluster" : name.replace(".", " ");
  const scope = isCounted ? "what the filters select" : place;
  const activity = model.activities.get(name);
  const idle = idleCondition(activity);
  const inFlight = (it) => it.active && it.state !== "Held";
  const pieces = model.pieces.filter((it) => inFlight(it) && ifo.fits(it, { ...view, states: [], words: [] }));
  const count = pieces.reduce((sum, it) => sum + it.members.filter(inFlight).length, 0);
  const answer = (status, own) => ({ status, scope, count, since: null, ...own });
  if (!model.begin) return answer("unknown", { why: "Reading operations …" });
  if (ifo.lostConnection()) return answer("unknown", { why: "The page is not connected, so the state may have changed." });
  const since = !isCounted && idle ? time(idle.lastTransitionTime) : null;
  if (since && idle.status === "False") return answer("busy", { count: activity.status.operations, since });
  if (since && idle.status === "True" && !model.state.warnings.length) return answer("idle", { count: 0, since });
  if (count) return answer("busy", { since: minimum(pieces, "start") });
  if (model.begin.filter) return answer("unknown", { why: "Nothing is shown, but the flags leave out operations." });
  const isLive = model.begin.mode === "live";
  if (!idle && isLive) return answer("unknown", { why: `Nothing is shown, but you cannot read the Activity of ${place}.` });
  if (idle && idle.status === "Unknown") return answer("unknown", { why: idle.message || "Operations may be missing." });
  return model.state.warnings.length ? answer("unknown", { why: "Nothing is shown, but the view is not complete." }) : answer("idle");
};

// Formats. The formatters are created once, because each creation takes long.
const formatter = (fields) => {
  const format = new Intl.DateTimeFormat(undefined, { hourCycle: fields.hour && "h23", ...fields });
  return (ms) => format.format(ms);
};
ifo.clock = formatter({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
ifo.minutes = formatter({ hour: "2-digit", minute: "2-digit" });
ifo.day = formatter({ day: "numeric", month: "short" });
ifo.dateTime = (ms) => {
  if (!Number.isFinite(ms)) return "–";
  return ifo.day(ms) === ifo.day(ifo.now()) ? ifo.clock(ms) : `${ifo.day(ms)} ${ifo.minutes(ms)}`;
};
ifo.duration = (ms) => {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const parts = [[Math.floor(seconds / 86400), "d"], [Math.floor(seconds / 3600) % 24, "h"], [Math.floor(seconds / 60) % 60, "m"], [seconds % 60, "s"]];
  const first = parts.findIndex((it) => it[0]);
  return parts.slice(first, first + 2).filter((it) => it[0]).map((it) => it.join("")).join(" ") || "0s";
};
ifo.target = (operation) => `${operation.subject.kind || "?"}/${operation.subject.name || "?"}`;
ifo.lengthOf = (piece) => Math.min(piece.end, ifo.now()) - piece.start;
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
