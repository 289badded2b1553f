"use strict";
// What the page says about one piece of work: the tip beside the pointer, and the panel of details.

const { el, $ } = ifo;
const stateLine = (piece) => el("span", { class: `state state-${piece.state.toLowerCase()}` }, ifo.swatch(piece.state), ifo.stateText(piece));

function timesText(piece) {
  const length = ifo.duration(ifo.lengthOf(piece));
  if (!piece.active) return `${ifo.dateTime(piece.start)} to ${ifo.dateTime(piece.end)}, ${length}`;
  return `since ${ifo.dateTime(piece.start)}, ${length}`;
}

let tipFor = null;
ifo.showTip = (bar, x, y) => {
  const tip = $("tip");
  if (tipFor !== bar) {
    tipFor = bar;
    const { operation } = bar;
    tip.replaceChildren(...[
      el("strong", {}, `${operation.operation} · ${ifo.target(operation)}`),
      stateLine(operation),
      el("span", {}, timesText(operation)),
      operation.eta > ifo.now() && el("span", {}, `expected end ${ifo.dateTime(operation.eta)}`),
      operation.expected && el("span", {}, `usual duration: ${ifo.expectedText(operation.expected)}`),
      operation.message && el("span", { class: "message" }, operation.message),
      operation.initiator && el("span", {}, `started by ${operation.initiator}`),
      el("span", { class: "hint" }, bar.piece.members.length > 1 ? `${bar.piece.members.length} operations · click for details` : "click for details"),
    ].filter(Boolean));
    tip.hidden = false;
  }
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 20 + box.height > innerHeight ? y - box.height - 12 : y + 20}px`;
};
ifo.hideTip = () => {
  tipFor = null;
  $("tip").hidden = true;
};

ifo.select = (id, focus = false) => {
  const wasOpen = !$("details").hidden;
  ifo.view.selected = id;
  ifo.changed("data");
  ifo.showDetails(focus);
  if (id && !wasOpen && focus) ifo.changed("window");
};

let shown = { id: "", signature: "" };
ifo.showDetails = (focus) => {
  const piece = ifo.model.byId && (ifo.model.byId.get(ifo.view.selected) || ifo.model.byMember.get(ifo.view.selected));
  const panel = $("details");
  document.body.classList.toggle("with-details", Boolean(piece));
  panel.hidden = !piece;
  if (!piece) {
    shown = { id: "", signature: "" };
    return;
  }
  ifo.view.selected = piece.id;
  const signature = piece.members.map((it) => it.object.metadata.resourceVersion + it.state).join();
  if (shown.id === piece.id && shown.signature === signature) return updateTimes(piece);
  const isNew = shown.id !== piece.id;
  shown = { id: piece.id, signature };
  fill(piece, isNew);
  if (focus) panel.querySelector("h2").focus();
};

const updateTimes = (piece) => {
  const times = $("details").querySelector("[data-times]");
  if (times && times.textContent !== timesText(piece)) times.textContent = timesText(piece);
};

const fact = (name, value) => (value ? [el("dt", {}, name), el("dd", {}, value)] : []);
const section = (title, ...children) => el("section", {}, el("h3", {}, title), ...children);

function fill(piece, isNew) {
  const { root } = piece;
  const cancel = root.object.spec.cancel || root.object.status.cancel;
  $("details-head").replaceChildren(
    el("h2", { tabindex: "-1" }, root.operation),
    el("p", { class: "subject" }, ifo.target(root), root.namespace && el("span", { class: "muted" }, ` in ${root.namespace}`)),
  );
  const stateMeaning = ifo.stateOf(piece.state).meaning;
  const marks = [piece.overdue && conditionText(piece, "Overdue"), piece.stalled && conditionText(piece, "Stalled")].filter(Boolean);
  $("details-body").replaceChildren(
    el("p", { class: "headline" }, stateLine(piece), el("span", { class: "muted" }, ` ${stateMeaning}`)),
    ...marks.map((it) => el("p", { class: "mark" }, it)),
    piece.message ? el("p", { class: "message" }, piece.message) : "",
    el("dl", {}, ...[
      fact("Time", el("span", { "data-times": true }, timesText(piece))),
      fact("Start is", root.startIsEstimated && "estimated: it was already in flight when the server first saw it"),
      fact("In this state", piece.active && piece.since && `since ${ifo.dateTime(piece.since)}`),
      fact("Expected end", piece.eta > ifo.now() && ifo.dateTime(piece.eta)),
      fact("Usual duration", ifo.expectedText(piece.expected)),
      fact("Queued", piece.queued && ifo.dateTime(piece.queued)),
      fact("Started by", piece.initiator),
      fact("Reason", piece.reason !== root.operation && piece.reason),
      fact("Nodes", piece.nodes.join(", ")),
      fact("Component", root.component),
      fact("Work", root.work),
    ].flat()),
    cancel ? section("To stop it", el("code", { class: "command" }, cancel)) : "",
    piece.members.length > 1 ? section(`${piece.members.length} operations of this work`, memberList(piece)) : "",
    conditionsOf(root),
    section("Rule", el("div", { id: "rule" }, root.object.spec.ruleSet || "unknown")),
    section("Events of the object", el("div", { id: "events", "aria-live": "polite" }, ifo.frozen ? "An exported file has no Events." : "Loading …")),
    section("Identity", el("dl", {}, ...fact("Name", root.name), ...fact("Namespace", root.object.metadata.namespace), ...fact("UID", root.uid),
      ...fact("Subject UID", root.subject.uid)), labelsOf(root)),
  );
  if (!ifo.frozen) load(root, isNew);
}

const conditionText = (piece, type) => {
  const found = piece.members.flatMap((it) => it.object.status.conditions || []).find((it) => it.type === type && it.status === "True");
  return found ? `${type}: ${found.message || found.reason}` : "";
};

const memberList = (piece) => el("ul", { class: "members" }, ...piece.members.map((it) => el("li", {},
  stateLine(it), el("span", {}, `${it.operation} · ${ifo.target(it)}`), el("span", { class: "muted" }, timesText(it)),
  it.message && it.message !== piece.message ? el("span", { class: "muted" }, it.message) : "")));

function conditionsOf(root) {
  const conditions = root.object.status.conditions || [];
  if (!conditions.length) return "";
  return section("Conditions", el("ul", { class: "conditions" }, ...conditions.map((it) => el("li", {},
    el("strong", {}, `${it.type}=${it.status}`), ` ${it.reason || ""}`,
    el("span", { class: "muted" }, ` since ${ifo.dateTime(Date.parse(it.lastTransitionTime))}`),
    it.message && it.message !== root.message ? el("div", { class: "muted" }, it.message) : ""))));
}

function labelsOf(root) {
  const labels = Object.entries(root.object.metadata.labels || {});
  if (!labels.length) return "";
  return el("details", {}, el("summary", {}, `${labels.length} labels`), el("ul", { class: "labels" }, ...labels.map(([key, value]) => el("li", {}, `${key}=${value}`))));
}

// Events and the rule are read again only for another piece of work, or by the button.
const cache = new Map();
async function load(root, isNew) {
  const { kind = "", name = "", namespace = "", uid = "" } = root.subject;
  const query = new URLSearchParams({ namespace, kind, name, uid });
  const answers = [read(`/api/events?${query}`, isNew), read(`/api/ruleset?${new URLSearchParams({ name: root.object.spec.ruleSet || "" })}`, false)];
  const [events, ruleSet] = await Promise.all(answers);
  if (shown.id !== root.uid || !$("events")) return;
  $("events").replaceChildren(eventsOf(events));
  $("rule").replaceChildren(ruleOf(root, ruleSet));
}
async function read(url, again) {
  if (!again && cache.has(url)) return cache.get(url);
  if (cache.size > 200) cache.clear();
  try {
    const answer = await fetch(url);
    const body = await answer.json();
    if (answer.status === 401) ifo.expired();
    cache.set(url, answer.ok ? body : { error: body.error || `The answer has status ${answer.status}.` });
  } catch {
    return { error: "The page cannot reach `kubectl ifo ui`." };
  }
  return cache.get(url);
}

function eventsOf(answer) {
  if (answer.error) return el("p", { class: "muted" }, answer.error);
  const items = answer.items || [];
  if (!items.length) return el("p", { class: "muted" }, "None. Kubernetes keeps Events for an hour.");
  return el("ul", { class: "events" }, ...items.map((it) => el("li", { class: it.type === "Warning" ? "warning" : "" },
    el("strong", {}, `${it.type === "Warning" ? "⚠ " : ""}${it.reason || ""}`),
    el("span", { class: "muted" }, ` ${ifo.dateTime(Date.parse(it.time))}${it.count > 1 ? ` · ${it.count} times` : ""}${it.source ? ` · ${it.source}` : ""}`),
    el("div", {}, it.message || ""))));
}

function ruleOf(root, answer) {
  const name = root.object.spec.ruleSet;
  if (answer.error) return el("div", {}, el("code", {}, name), el("p", { class: "muted" }, answer.error));
  const rules = (answer.spec && answer.spec.rules) || [];
  const rule = rules.find((it) => it.operation === root.operation) || {};
  const target = (answer.spec && answer.spec.target) || {};
  const fields = Object.entries(rule).filter(([key, value]) => key !== "operation" && typeof value !== "object");
  return el("div", {}, el("p", {}, el("code", {}, name), el("span", { class: "muted" }, ` watches ${[target.resource, target.group].filter(Boolean).join(".")}`)),
    el("dl", { class: "rule" }, ...fields.flatMap(([key, value]) => fact(key, el("code", {}, String(value))))));
}
