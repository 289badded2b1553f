"use strict";
// What the page says about one piece of work: the tip beside the pointer, and the panel of details.

ifo.stateLine = (piece) => el("span", { class: `state state-${piece.state.toLowerCase()}` }, ifo.swatch(piece.state), ifo.stateText(piece));
const timesText = (piece) => {
  const end = piece.active ? "since " : `${ifo.dateTime(piece.start)} to `;
  return `${end}${ifo.dateTime(piece.active ? piece.start : piece.end)}, ${ifo.duration(ifo.lengthOf(piece))}`;
};
const etaText = (piece) => piece.eta > ifo.now() && ifo.dateTime(piece.eta);
const muted = (...children) => el("span", { class: "muted" }, ...children);

let tipFor = null;
ifo.showTip = (bar, x, y) => {
  const tip = $("tip");
  if (tipFor !== bar) {
    tipFor = bar;
    const { operation, piece } = bar;
    const parts = piece.members.length > 1 ? `${piece.members.length} operations · ` : "";
    tip.replaceChildren(
      el("strong", {}, `${operation.operation} · ${ifo.target(operation)}`), ifo.stateLine(operation), el("span", {}, timesText(operation)),
      ...[["expected end", etaText(operation)], ["usual duration", ifo.expectedText(operation.expected)], ["started by", operation.initiator]]
        .filter((it) => it[1]).map((it) => el("span", {}, it.join(" "))),
      el("span", { class: "message" }, operation.message), muted(`${parts}click for details`),
    );
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

ifo.select = (id) => {
  ifo.view.selected = id;
  ifo.changed("rows");
  ifo.showDetails();
};
// Selects a piece, shows its row, and moves the focus to the details.
ifo.pick = (id) => {
  ifo.select(id);
  if (ifo.model.byId.has(id)) ifo.reveal(ifo.model.byId.get(id));
  if (!$("details").hidden) $("details-head").querySelector("h2").focus();
};

let shown = { id: "", signature: "" };
ifo.showDetails = () => {
  const { model, view } = ifo;
  const piece = model.byId && (model.byId.get(view.selected) || model.byMember.get(view.selected));
  $("details").hidden = !piece;
  if (!piece) {
    shown = { id: "", signature: "" };
    return;
  }
  view.selected = piece.id;
  const signature = piece.members.map((it) => it.object.metadata.resourceVersion + it.state).join();
  if (shown.id === piece.id && shown.signature === signature) {
    setText($("details").querySelector("[data-times]"), timesText(piece));
    return;
  }
  const isNew = shown.id !== piece.id;
  shown = { id: piece.id, signature };
  fill(piece);
  if (!ifo.frozen) load(piece.root, isNew);
};

const facts = (...pairs) => el("dl", {}, ...pairs.filter((it) => it[1]).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
const section = (title, ...children) => el("section", {}, el("h3", {}, title), ...children);
const items = (name, list, lineOf) => el("ul", { class: name }, ...list.map((it) => el("li", {}, ...lineOf(it))));

function fill(piece) {
  const { root } = piece;
  const { spec, status, metadata } = root.object;
  const cancel = spec.cancel || status.cancel;
  const conditions = status.conditions || [];
  const labels = Object.entries(metadata.labels || {});
  const marks = piece.members.flatMap((it) => it.object.status.conditions || [])
    .filter((it) => piece.active && it.status === "True" && (it.type === "Overdue" || it.type === "Stalled"));
  $("details-head").replaceChildren(el("h2", { tabindex: "-1" }, root.operation),
    el("p", { class: "subject" }, ifo.target(root), root.namespace && muted(` in ${root.namespace}`)));
  // The Events and the rule stay until new ones are read.
  const events = $("events") && $("events").dataset.id === piece.id ? $("events") : el("div", { id: "events", "data-id": piece.id }, muted(ifo.frozen ? "A file has no Events." : "Reading …"));
  const rule = $("rule") && $("rule").dataset.id === piece.id ? $("rule") : el("div", { id: "rule", "data-id": piece.id }, el("code", {}, spec.ruleSet || "unknown"));
  $("details-body").replaceChildren(...[
    el("p", { class: "headline" }, ifo.stateLine(piece), muted(ifo.stateOf(piece.state).meaning)),
    ...marks.map((it) => el("p", { class: "mark" }, `${it.type}: ${it.message || it.reason}`)),
    piece.message && el("p", { class: "message" }, piece.message),
    facts(
      ["Time", el("span", { "data-times": true }, timesText(piece))],
      ["Start is", root.startIsEstimated && "estimated: it was in flight before the server first saw it"],
      ["In this state", piece.active && piece.since && `since ${ifo.dateTime(piece.since)}`],
      ["Expected end", etaText(piece)], ["Usual duration", ifo.expectedText(piece.expected)],
      ["Queued", piece.queued && ifo.dateTime(piece.queued)], ["Started by", piece.initiator],
      ["Reason", piece.reason !== root.operation && piece.reason], ["Nodes", piece.nodes.join(", ")],
      ["Component", root.component], ["Work", root.work],
    ),
    cancel && section("To stop it", el("code", { class: "command" }, cancel)),
    piece.members.length > 1 && section(`${piece.members.length} operations of this work`, items("members", piece.members, (it) => [
      ifo.stateLine(it), el("span", {}, `${it.operation} · ${ifo.target(it)}`), muted(timesText(it)), it.message !== piece.message && muted(it.message)])),
    conditions.length && section("Conditions", items("conditions", conditions, (it) => [
      el("strong", {}, `${it.type}=${it.status}`), ` ${it.reason || ""}`, muted(` since ${ifo.dateTime(Date.parse(it.lastTransitionTime))}`),
      it.message && it.message !== root.message && el("div", { class: "muted" }, it.message)])),
    section("Rule", rule), section("Events of the object", events),
    section("Identity", facts(["Name", root.name], ["Namespace", metadata.namespace], ["UID", root.uid], ["Subject UID", root.subject.uid])),
    labels.length && el("details", {}, el("summary", {}, `${labels.length} labels`), items("labels", labels, (it) => [it.join("=")])),
  ].filter(Boolean));
}

// Events are read for each new choice, and each rule set once.
const cache = new Map();
async function load(root, isNew) {
  const { kind = "", name = "", namespace = "", uid = "" } = root.subject;
  const query = new URLSearchParams({ namespace, kind, name, uid });
  const ruleSet = new URLSearchParams({ name: root.object.spec.ruleSet || "" });
  const [events, rule] = await Promise.all([read(`/api/events?${query}`, isNew), read(`/api/ruleset?${ruleSet}`, false)]);
  if (shown.id !== root.uid || !$("events")) return;
  $("events").replaceChildren(eventsOf(events));
  $("rule").replaceChildren(...ruleOf(root, rule));
}
async function read(url, again) {
  if (!again && cache.has(url)) return cache.get(url);
  if (cache.size > 200) cache.clear();
  try {
    const answer = await fetch(url);
    if (answer.status === 401) ifo.expired();
    const body = await answer.json();
    cache.set(url, answer.ok ? body : { error: body.error || `The answer has status ${answer.status}.` });
    return cache.get(url);
  } catch {
    return { error: "The page cannot reach kubectl ifo ui." };
  }
}

function eventsOf(answer) {
  const list = answer.items || [];
  if (!list.length) return muted(answer.error || "None. Kubernetes usually keeps Events for an hour.");
  return items("events", list, (it) => [
    el("strong", { class: it.type === "Warning" ? "warning" : null }, `${it.type === "Warning" ? "⚠ " : ""}${it.reason || ""}`),
    muted(` ${[ifo.dateTime(Date.parse(it.time)), it.count > 1 && `${it.count} times`, it.source].filter(Boolean).join(" · ")}`),
    el("div", {}, it.message || "")]);
}

function ruleOf(root, answer) {
  const { rules = [], target = {} } = answer.spec || {};
  const rule = rules.find((it) => it.operation === root.operation) || {};
  const fields = Object.entries(rule).filter(([key, value]) => key !== "operation" && typeof value !== "object");
  const watches = target.resource ? ` watches ${[target.resource, target.group].filter(Boolean).join(".")}` : "";
  return [el("p", {}, el("code", {}, root.object.spec.ruleSet), muted(answer.error ? ` ${answer.error}` : watches)),
    facts(...fields.map(([key, value]) => [key, el("code", {}, String(value))]))];
}
