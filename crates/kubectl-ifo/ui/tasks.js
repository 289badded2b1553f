"use strict";
// The task list: a table with one row for each piece of work of the window of time.

const PAGE = 50;
const byText = (get) => (a, b) => get(a).localeCompare(get(b));
const byNumber = (get) => (a, b) => (get(a) ?? Infinity) - (get(b) ?? Infinity);
const targetText = (it) => `${ifo.target(it.root)} ${it.namespace}`;
const nodesText = (it) => it.nodes.join(", ");
const COLUMNS = [
  { key: "task", title: "Task", order: byText((it) => it.root.operation), cell: taskCell },
  { key: "target", title: "Target", order: byText(targetText), cell: targetCell },
  { key: "status", title: "Status", order: (a, b) => ifo.attentionRank(a) - ifo.attentionRank(b) || ifo.stateOf(a.state).rank - ifo.stateOf(b.state).rank, cell: statusCell },
  { key: "initiator", title: "Initiator", order: byText((it) => it.initiator), cell: (it) => it.initiator || "–" },
  { key: "queued", title: "Queued", order: byNumber((it) => it.queued), cell: (it) => (it.queued ? ifo.duration(it.start - it.queued) : "–") },
  { key: "started", title: "Started", order: byNumber((it) => it.start), cell: (it) => ifo.dateTime(it.start) },
  { key: "ended", title: "Ended", order: byNumber((it) => it.end), cell: endedCell },
  { key: "node", title: "Node", order: byText(nodesText), cell: nodesText },
];

const list = { page: 0, rows: new Map(), pieces: [] };

function taskCell(piece) {
  return ifo.el("button", { type: "button", class: "link", title: piece.message || null }, piece.root.operation);
}
function targetCell(piece) {
  const { kind, name } = piece.root.subject;
  return ifo.el("span", { title: targetText(piece) }, ifo.el("span", { class: "kind" }, `${kind} `), name || "?",
    piece.namespace && ifo.el("span", { class: "muted" }, ` · ${piece.namespace}`));
}
function statusCell(piece) {
  const meter = piece.active && piece.progress !== null
    ? ifo.el("progress", { max: 100, value: piece.progress, "aria-label": `progress of ${piece.root.operation} on ${ifo.target(piece.root)}` }) : "";
  const text = ifo.el("span", { class: `state state-${piece.state.toLowerCase()}` }, ifo.swatch(piece.state), ifo.stateText(piece));
  return ifo.el("span", { class: "status", title: piece.message || null }, text, meter);
}
function endedCell(piece) {
  const length = ifo.el("span", { class: "muted" }, ` ${ifo.duration(ifo.lengthOf(piece))}`);
  if (!piece.active) return ifo.el("span", {}, ifo.dateTime(piece.end), length);
  const expected = piece.eta > ifo.now() ? `expected ${ifo.dateTime(piece.eta)}` : "in flight";
  return ifo.el("span", { class: "muted" }, expected, length);
}

// Without a choice of the user: what needs attention, then what is in flight, then the newest ends.
const byNeed = (a, b) => ifo.attentionRank(a) - ifo.attentionRank(b) || (a.active ? a.start - b.start : b.end - a.end);

ifo.drawTasks = () => {
  const { view } = ifo;
  const [key, direction] = view.sort.split(":");
  const column = COLUMNS.find((it) => it.key === key);
  const inWindow = (it) => it.start <= view.to && (it.active || it.end >= view.from);
  list.pieces = ifo.model.pieces.filter((it) => inWindow(it) && ifo.fits(it, view));
  const sign = direction === "down" ? -1 : 1;
  list.pieces.sort(column ? (a, b) => sign * column.order(a, b) || byNeed(a, b) : byNeed);
  const last = Math.max(0, Math.ceil(list.pieces.length / PAGE) - 1);
  list.page = Math.min(list.page, last);
  const shown = list.pieces.slice(list.page * PAGE, (list.page + 1) * PAGE);
  const rows = new Map();
  for (const piece of shown) rows.set(piece.id, rowOf(piece));
  const body = ifo.$("tasks-body");
  const wanted = [...rows.values()].map((it) => it.element);
  if (wanted.length !== body.children.length || wanted.some((it, at) => it !== body.children[at])) place(body, wanted);
  list.rows = rows;
  const first = list.page * PAGE;
  const count = list.pieces.length;
  ifo.$("tasks-count").textContent = count ? `${first + 1}–${first + shown.length} of ${count}` : "none";
  ifo.$("tasks-back").disabled = list.page === 0;
  ifo.$("tasks-next").disabled = list.page >= last;
  for (const head of ifo.$("tasks-head").children) {
    const sort = head.dataset.key === key ? (sign > 0 ? "ascending" : "descending") : "none";
    head.setAttribute("aria-sort", sort);
  }
};

// Puts the rows into their order, and moves only those that are elsewhere, so that a row keeps focus.
function place(body, wanted) {
  const keep = new Set(wanted);
  for (const child of [...body.children]) if (!keep.has(child)) child.remove();
  wanted.forEach((element, at) => {
    if (body.children[at] !== element) body.insertBefore(element, body.children[at] || null);
  });
}

function rowOf(piece) {
  const cells = [];
  const length = piece.active ? Math.round(ifo.lengthOf(piece) / 1000) : 0;
  const signature = [piece.state, piece.progress, piece.message, piece.end, piece.eta, length, piece.overdue, piece.stalled, piece.nodes, piece.members.length].join();
  const known = list.rows.get(piece.id);
  const selected = piece.id === ifo.view.selected;
  if (known) known.element.classList.toggle("selected", selected);
  if (known && known.signature === signature) return known;
  for (const column of COLUMNS) {
    const content = column.cell(piece);
    const own = { class: `column-${column.key}`, title: typeof content === "string" && content.length > 20 ? content : null };
    cells.push(ifo.el(column.key === "task" ? "th" : "td", column.key === "task" ? { ...own, scope: "row" } : own, content));
  }
  const element = known ? known.element : ifo.el("tr", { onclick: () => ifo.pick(piece.id) });
  // The button of a row that has focus stays the same element.
  if (known && element.contains(document.activeElement)) {
    cells.slice(1).forEach((cell, at) => element.children[at + 1].replaceWith(cell));
  } else {
    element.replaceChildren(...cells);
  }
  element.classList.toggle("selected", selected);
  return { element, signature };
}

ifo.pick = (id) => {
  ifo.select(id, true);
  const piece = ifo.model.byId.get(id);
  if (piece) ifo.reveal(piece);
};

ifo.startTasks = () => {
  for (const column of COLUMNS) {
    const sort = () => {
      const [key, direction] = ifo.view.sort.split(":");
      ifo.view.sort = key !== column.key ? `${column.key}:up` : direction === "up" ? `${column.key}:down` : "";
      list.page = 0;
      ifo.changed("data");
    };
    ifo.$("tasks-head").append(ifo.el("th", { scope: "col", class: `column-${column.key}`, "data-key": column.key },
      ifo.el("button", { type: "button", onclick: sort }, column.title, ifo.el("span", { class: "arrow", "aria-hidden": "true" }))));
  }
  const turn = (by) => () => { list.page += by; ifo.changed("data"); };
  ifo.$("tasks-back").addEventListener("click", turn(-1));
  ifo.$("tasks-next").addEventListener("click", turn(1));
};
