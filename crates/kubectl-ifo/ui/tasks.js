"use strict";
// The task list: a table with one row for each piece of work of the window of time.

const PAGE = 50;
const targetText = (it) => `${ifo.target(it.root)} ${it.namespace}`;
const nodesText = (it) => it.nodes.join(", ");
const COLUMNS = [
  { key: "task", title: "Task", order: (it) => it.root.operation, cell: (it) => el("button", { type: "button", class: "link" }, it.root.operation) },
  { key: "target", title: "Target", order: targetText, cell: targetCell },
  { key: "status", title: "Status", order: (it) => 10 * ifo.attentionRank(it) + ifo.stateOf(it.state).rank, cell: statusCell },
  { key: "initiator", title: "Initiator", order: (it) => it.initiator, cell: (it) => it.initiator.replace(/^system:serviceaccount:/, "") || "–" },
  { key: "queued", title: "Queued", order: (it) => it.queued || Infinity, cell: (it) => (it.queued ? ifo.duration(it.start - it.queued) : "–") },
  { key: "started", title: "Started", order: (it) => it.start, cell: (it) => ifo.dateTime(it.start) },
  { key: "ended", title: "Ended", order: (it) => it.end, cell: endedCell },
  { key: "node", title: "Node", order: nodesText, cell: nodesText },
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
  return el("span", { class: "status", title: [ifo.stateText(piece), piece.message].filter(Boolean).join(": ") }, ifo.stateLine(piece), meter);
}
function endedCell(piece) {
  const end = !piece.active ? ifo.dateTime(piece.end) : piece.eta > ifo.now() ? `expected ${ifo.dateTime(piece.eta)}` : "in flight";
  return el("span", { class: piece.active ? "muted" : null }, end, el("span", { class: "muted" }, ` · ${ifo.duration(ifo.lengthOf(piece))}`));
}

ifo.drawTasks = () => {
  const [key, direction] = view.sort.split(":");
  const column = COLUMNS.find((it) => it.key === key);
  const fitting = ifo.model.pieces.filter((it) => ifo.isIn(it, view) && ifo.fits(it, view));
  // Without a choice of the user: what needs attention, then what is in flight, then the newest ends.
  const need = (it) => [ifo.attentionRank(it), it.active ? it.start : -it.end];
  const pieces = sortedBy(fitting, (it) => [...(column ? [column.order(it)] : []), ...need(it)]);
  if (direction === "down") pieces.reverse();
  const last = Math.max(0, Math.ceil(pieces.length / PAGE) - 1);
  page = Math.min(page, last);
  const shown = pieces.slice(page * PAGE, (page + 1) * PAGE);
  ifo.keyed($("tasks-body"), shown.map((piece) => {
    const age = piece.active ? Math.round(ifo.lengthOf(piece) / 1000) : 0;
    const selected = piece.uid === view.selected;
    const parts = [ifo.stateText(piece), piece.message, piece.end, piece.eta, age, piece.nodes, selected];
    return { key: piece.uid, signature: parts.join(), make: () => rowOf(piece, selected) };
  }));
  setText($("tasks-count"), pieces.length ? `${page * PAGE + 1}–${page * PAGE + shown.length} of ${pieces.length}` : "none");
  $("tasks-back").disabled = page === 0;
  $("tasks-next").disabled = page >= last;
  for (const head of $("tasks-head").children) {
    head.setAttribute("aria-sort", head.dataset.key !== key ? "none" : direction === "down" ? "descending" : "ascending");
  }
};

function rowOf(piece, selected) {
  const cells = COLUMNS.map((column) => {
    const content = column.cell(piece);
    const isHead = column.key === "task";
    const title = typeof content === "string" && content.length > 14 ? content : null;
    return el(isHead ? "th" : "td", { class: `column-${column.key}`, scope: isHead ? "row" : null, title }, content);
  });
  return el("tr", { class: selected ? "selected" : null, onclick: () => ifo.pick(piece.uid) }, ...cells);
}

ifo.startTasks = () => {
  const sortBy = (column) => {
    const [key, direction] = view.sort.split(":");
    view.sort = key !== column.key ? `${column.key}:up` : direction === "up" ? `${column.key}:down` : "";
    page = 0;
    ifo.changed("data");
  };
  for (const column of COLUMNS) {
    const button = el("button", { type: "button", onclick: () => sortBy(column) }, column.title, el("span", { class: "arrow", "aria-hidden": "true" }));
    $("tasks-head").append(el("th", { scope: "col", class: `column-${column.key}`, "data-key": column.key }, button));
  }
  const turn = (by) => () => { page += by; ifo.changed("data"); };
  on($("tasks-back"), "click", turn(-1));
  on($("tasks-next"), "click", turn(1));
};
