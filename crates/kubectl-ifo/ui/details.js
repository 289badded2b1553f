"use strict";
// What the page says about one piece of work: the tip beside the pointer, and the panel of details.

ifo.stateLine = (piece) => el("span", { class: `state state-${piece.state.toLowerCase()}` }, ifo.swatch(piece.state), ifo.stateText(piece));
const timesText = (piece) => {
  const span = piece.active ? `since ${ifo.dateTime(piece.start)}` : `${ifo.dateTime(piece.start)} to ${ifo.dateTime(piece.end)}`;
  return `${span}, ${ifo.duration(ifo.lengthOf(piece))}`;
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

ifo.select = (uid) => {
  view.selected = uid;
  ifo.changed("rows");
  ifo.showDetails();
};
// Selects a piece, shows its row, and moves the focus to the details.
ifo.pick = (uid) => {
  ifo.select(uid);
  if (ifo.model.byUid.has(uid)) ifo.reveal(ifo.model.byUid.get(uid));
  if (!$("details").hidden) $("details-head").querySelector("h2").focus();
};

// The piece in the panel, with the versions of its operations.
let shown = "";
ifo.showDetails = () => {
  const piece = ifo.model.byUid.get(view.selected);
  $("details").hidden = !piece;
  if (!piece) {
    shown = "";
    return;
  }
  view.selected = piece.uid;
  const now = [piece.uid, ...piece.members.map((it) => it.object.metadata.resourceVersion + it.state)].join();
  if (now === shown) {
    setText($("details").querySelector("[data-times]"), timesText(piece));
    return;
  }
  if (!shown.startsWith(piece.uid)) answers.delete(addressOfEvents(piece));
  shown = now;
  fill(piece);
};

// Reads Events when a piece is chosen, and each rule set once.
const answers = new Map();
const addressOfEvents = ({ root }) => `/api/events?${encodeURIComponent(JSON.stringify(root.subject))}`;
const addressOfRule = ({ root }) => `/api/ruleset?${encodeURIComponent(root.object.spec.ruleSet || "")}`;
// Returns the answer. While it is read, returns an empty one, and shows the piece again afterwards.
function answerOf(address, piece) {
  if (embedded) return { error: "An exported page does not have this." };
  if (answers.size > 200) answers.clear();
  if (!answers.has(address)) {
    answers.set(address, { error: "Reading …" });
    read(address).then((answer) => {
      answers.set(address, answer);
      if (shown.startsWith(piece.uid)) fill(ifo.model.byUid.get(piece.uid) || piece);
    });
  }
  return answers.get(address);
}
async function read(address) {
  try {
    const answer = await fetch(address);
    if (answer.status === 401) ifo.expired();
    return await answer.json();
  } catch {
    return { error: "The page cannot reach kubectl ifo ui." };
  }
}

const facts = (...pairs) => el("dl", {}, ...pairs.filter((it) => it[1]).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
const section = (title, ...children) => el("section", {}, el("h3", {}, title), ...children);
const items = (name, list, lineOf) => el("ul", { class: name }, ...list.map((it) => el("li", {}, ...lineOf(it))));

function fill(piece) {
  const { root } = piece;
  const { metadata, status } = root.object;
  const { conditions = [] } = status;
  const cancel = piece.members.map((it) => it.object.status.cancel).find(Boolean);
  const labels = Object.entries(metadata.labels || {});
  const marks = piece.members.flatMap((it) => it.object.status.conditions || [])
    .filter((it) => piece.active && it.status === "True" && (it.type === "Overdue" || it.type === "Stalled"));
  $("details-head").replaceChildren(el("h2", { tabindex: "-1" }, root.operation),
    el("p", { class: "subject" }, ifo.target(root), root.namespace && muted(` in ${root.namespace}`)));
  $("details-body").replaceChildren(...[
    el("p", { class: "headline" }, ifo.stateLine(piece), muted(ifo.stateOf(piece.state).meaning)),
    ...marks.map((it) => el("p", { class: "mark" }, `${it.type}: ${it.message || it.reason}`)),
    piece.message && el("p", { class: "message" }, piece.message),
    facts(
      ["Time", el("span", { "data-times": true }, timesText(piece))],
      ["Start is", root.startIsEstimated && "estimated: it was in flight before the server first saw it"],
      ["In this state", piece.active && piece.since && `since ${ifo.dateTime(piece.since)}`],
      ["Expected end", etaText(piece)], ["Usual duration", ifo.expectedText(piece.expected)],
      ["Queued", piece.queued && `for ${ifo.duration(piece.start - piece.queued)}, since ${ifo.dateTime(piece.queued)}`], ["Started by", piece.initiator],
      ["Reason", piece.reason !== root.operation && piece.reason], ["Nodes", piece.nodes.join(", ")],
      ["Component", root.component], ["Work", root.work],
    ),
    cancel && section("To stop it", el("code", { class: "command" }, cancel)),
    piece.members.length > 1 && section(`${piece.members.length} operations of this work`, items("members", piece.members, (it) => [
      ifo.stateLine(it), el("span", {}, `${it.operation} · ${ifo.target(it)}`), muted(timesText(it)), it.message !== piece.message && muted(it.message)])),
    conditions.length && section("Conditions", items("conditions", conditions, (it) => [
      el("strong", {}, `${it.type}=${it.status}`), ` ${it.reason || ""}`, muted(` since ${ifo.dateTime(Date.parse(it.lastTransitionTime))}`),
      it.message && it.message !== root.message && el("div", { class: "muted" }, it.message)])),
    section("Rule", ...ruleOf(root, answerOf(addressOfRule(piece), piece))),
    section("Events of the object", eventsOf(answerOf(addressOfEvents(piece), piece))),
    section("Identity", facts(["Name", root.name], ["Namespace", metadata.namespace], ["UID", root.uid], ["Subject UID", root.subject.uid])),
    labels.length && el("details", {}, el("summary", {}, `${labels.length} labels`), items("labels", labels, (it) => [it.join("=")])),
  ].filter(Boolean));
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
  return [el("p", {}, el("code", {}, root.object.spec.ruleSet || "unknown"), muted(answer.error ? ` ${answer.error}` : watches)),
    facts(...fields.map(([key, value]) => [key, el("code", {}, String(value))]))];
}
