"use strict";
// The task list: a table with one row for each piece of work of the window of time.

const PAGE = 50;
const byText = (get) => (a, b) => get(a).localeCompare(get(b));
const byNumber = (get) => (a, b) => (get(a) ?? Infinity) - (get(b) ?? Infinity);
const targetText = (it) => `${ifo.target(it.root)} ${it.namespace}`;
const nodesText = (it) => it.nodes.join(", ");
const byState = (a, b) => ifo.attentionRank(a) - ifo.attentionRank(b) || ifo.stateOf(a.state).rank - ifo.stateOf(b.state).rank;
const COLUMNS = [
  { key: "task", title: "Task", order: byText((it) => it.root.operation), cell: (it) => el("button", { type: "button", class: "link" }, it.root.operation) },
  { key: "target", title: "Target", order: byText(targetText), cell: targetCell },
  { key: "status", title: "Status", order: byState, cell: statusCell },
  { key: "initiator", title: "Initiator", order: byText((it) => it.initiator), cell: (it) => it.initiator || "–" },
  { key: "queued", title: "Queued", order: byNumber((it) => it.queued), cell: (it) => (it.queued ? ifo.duration(it.start - it.queued) : "–") },
  { key: "started", title: "Started", order: byNumber((it) => it.start), cell: (it) => ifo.dateTime(it.start) },
  { key: "ended", title: "Ended", order: byNumber((it) => it.end), cell: endedCell },
  { key: "node", title: "Node", order: byText(nodesText), cell: nodesText },
];
let page = 0;

function targetCell(piece) {
  const { kind, name } = piece.root.subject;
  const where = [kind, piece.namespace].filter(Boolean).join(" · ");
  return el("span", { title: targetText(piece) }, name || "?", el("span", { class: "muted" }, ` ${where}`));
}
function statusCell(piece) {
  const label = `progress of ${piece.root.operation} on ${ifo.target(piece.root)}`;
  const meter = piece.active && piece.progress !== null && el("progress", { max: 100, value: piece.progress, "aria-label": label });
  return el("span", { class: "status", title: piece.message || null }, ifo.stateLine(piece), meter);
}
function endedCell(piece) {
  const end = !piece.active ? ifo.dateTime(piece.end) : piece.eta > ifo.now() ? `expected ${ifo.dateTime(piece.eta)}` : "in flight";
  return el("span", { class: piece.active ? "muted" : null }, end, el("span", { class: "muted" }, ` · ${ifo.duration(ifo.lengthOf(piece))}`));
}

// Without a choice of the user: what needs attention, then what is in flight, then the newest ends.
const byNeed = (a, b) => ifo.attentionRank(a) - ifo.attentionRank(b) || (a.active ? a.start - b.start : b.end - a.end);

ifo.drawTasks = () => {
  const { view } = ifo;
  const [key, direction] = view.sort.split(":");
  const column = COLUMNS.find((it) => it.key === key);
  const pieces = ifo.model.pieces.filter((it) => it.start <= view.to && (it.active || it.end >= view.from) && ifo.fits(it, view));
  const sign = direction === "down" ? -1 : 1;
  pieces.sort(column ? (a, b) => sign * column.order(a, b) || byNeed(a, b) : byNeed);
  const last = Math.max(0, Math.ceil(pieces.length / PAGE) - 1);
  page = Math.min(page, last);
  const shown = pieces.slice(page * PAGE, (page + 1) * PAGE);
  ifo.keyed($("tasks-body"), shown.map((piece) => {
    const age = piece.active ? Math.round(ifo.lengthOf(piece) / 1000) : 0;
    const selected = piece.id === view.selected;
    const parts = [ifo.stateText(piece), piece.message, piece.end, piece.eta, age, piece.nodes, selected];
    return { key: piece.id, signature: parts.join(), make: () => rowOf(piece, selected) };
  }));
  setText($("tasks-count"), pieces.length ? `${page * PAGE + 1}–${page * PAGE + shown.length} of ${pieces.length}` : "none");
  $("tasks-back").disabled = page === 0;
  $("tasks-next").disabled = page >= last;
  for (const head of $("tasks-head").children) {
    head.setAttribute("aria-sort", head.dataset.key !== key ? "none" : sign > 0 ? "ascending" : "descending");
  }
};

function rowOf(piece, selected) {
  const cells = COLUMNS.map((column) => {
    const content = column.cell(piece);
    const isHead = column.key === "task";
    const title = typeof content === "string" && content.length > 14 ? content : null;
    return el(isHead ? "th" : "td", { class: `column-${column.key}`, scope: isHead ? "row" : null, title }, content);
  });
  return el("tr", { class: selected ? "selected" : null, onclick: () => ifo.pick(piece.id) }, ...cells);
}

ifo.startTasks = () => {
  const sortBy = (column) => {
    const [key, direction] = ifo.view.sort.split(":");
    ifo.view.sort = key !== column.key ? `${column.key}:up` : direction === "up" ? `${column.key}:down` : "";
    page = 0;
    ifo.changed("data");
  };
  for (const column of COLUMNS) {
    const button = el("button", { type: "button", onclick: () => sortBy(column) }, column.title, el("span", { class: "arrow", "aria-hidden": "true" }));
    $("tasks-head").append(el("th", { scope: "col", class: `column-${column.key}`, "data-key": column.key }, button));
  }
  const turn = (by) => () => { page += by; ifo.changed("data"); };
  $("tasks-back").addEventListener("click", turn(-1));
  $("tasks-next").addEventListener("click", turn(1));
};
