"use strict";
// The timeline on the page: its window of time, zoom and pan, the tree beside it, and the pointer.

const SHORTEST = 10e3;
const LONGEST = 60 * 86400e3;
// The part of the window that lies in the future while it follows "now".
const LEAD = 0.16;
const AXIS = 32;

ifo.view = {
  from: 0, to: 0, follow: true, span: 900e3, group: "namespace", q: "", words: [], component: "", namespace: "", node: "",
  states: [], active: false, selected: "", sort: "", closed: new Set(), toggled: new Set(), expanded: false,
};
const view = ifo.view;
const chart = { rows: [], height: 0, shown: 0, width: 0, viewport: 0, current: "", hovered: null, elements: new Map(), builtFrom: 0, builtTo: 0 };
ifo.chart = chart;

ifo.showNow = (span = view.to - view.from || view.span) => {
  view.follow = true;
  view.to = ifo.now() + span * LEAD;
  view.from = view.to - span;
  ifo.changed("window");
};
ifo.showRange = (from, to) => {
  const span = Math.min(Math.max(to - from, SHORTEST), LONGEST);
  view.from = from;
  view.to = from + span;
  const now = ifo.now();
  view.follow = view.follow && now >= view.from && now <= view.to;
  ifo.changed("window");
};
// Zooms around a time; without one, around "now" if it is visible, or else around the middle.
ifo.zoom = (factor, anchor) => {
  const span = Math.min(Math.max((view.to - view.from) * factor, SHORTEST), LONGEST);
  const now = ifo.now();
  const visible = now > view.from && now < view.to;
  const at = anchor ?? (view.follow && visible ? now : (view.from + view.to) / 2);
  const part = (at - view.from) / (view.to - view.from);
  ifo.showRange(at - span * part, at - span * part + span);
};
ifo.pan = (pixels) => {
  const delta = (pixels * (view.to - view.from)) / Math.max(chart.width, 1);
  view.follow = false;
  ifo.showRange(view.from + delta, view.to + delta);
};
ifo.showAll = () => {
  const fitting = ifo.model.pieces.filter((it) => ifo.fits(it, view));
  if (!fitting.length) return ifo.showNow();
  const from = fitting.reduce((least, it) => Math.min(least, it.start), ifo.now());
  const span = Math.max(ifo.now() - from, 60e3);
  view.follow = true;
  return ifo.showRange(ifo.now() - span * 1.02, ifo.now() + span * 0.1);
};

// Moves the window while it follows. Returns true if it moved by at least half a pixel.
let lastSlide = 0;
ifo.slide = () => {
  const now = ifo.now();
  const moved = now - lastSlide;
  const least = Math.max(matchMedia("(prefers-reduced-motion: reduce)").matches ? 5000 : 40, (view.to - view.from) / Math.max(chart.width, 1) / 2);
  if (moved < least) return false;
  if (view.follow && !ifo.frozen && lastSlide && !chart.dragging) {
    view.from += moved;
    view.to += moved;
  }
  lastSlide = now;
  return true;
};

ifo.rebuildRows = () => {
  chart.builtFrom = view.from;
  chart.builtTo = view.to;
  Object.assign(chart, ifo.buildRows(view, view.from, view.to));
  ifo.$("spacer").style.height = `${Math.max(0, chart.height - chart.viewport)}px`;
  ifo.$("empty").hidden = chart.rows.length > 0;
  const known = ifo.model.operations.size > 0;
  ifo.$("empty").textContent = known ? "No operation of this time matches the filters." : ifo.emptyText();
};

ifo.frame = () => ({
  from: view.from, to: view.to, now: ifo.now(), frozen: ifo.frozen, width: chart.width, height: chart.viewport, rows: chart.rows,
  scroll: ifo.$("rows").scrollTop, selected: view.selected, hovered: chart.hovered, current: chart.current, gaps: gapsOf(),
});
function gapsOf() {
  const { gaps, begin } = ifo.model;
  const labels = { connection: "not connected", detection: "detection incomplete" };
  const shown = gaps.filter((it) => (it.to ?? ifo.now()) - it.from > 500);
  const known = shown.map((it) => ({ ...it, label: labels[it.kind] || it.text }));
  if (!begin || !ifo.firstKnown) return known;
  return [{ from: view.from - 1e12, to: ifo.firstKnown, label: "nothing is recorded of this time" }, ...known];
}

ifo.drawTimeline = () => {
  const frame = ifo.frame();
  ifo.drawChart(chart.pen, frame);
  ifo.drawAxis(chart.axisPen, frame, AXIS);
  drawTree(frame);
};

ifo.resize = () => {
  const box = ifo.$("bars").getBoundingClientRect();
  const [width, height] = [Math.round(box.width), Math.round(box.height)];
  const scale = Math.min(devicePixelRatio || 1, 2);
  if (!width || (width === chart.width && height === chart.viewport && chart.pen && chart.pen.scale === scale)) return;
  chart.width = width;
  chart.viewport = height;
  chart.pen = new ifo.CanvasPen(ifo.$("bars"), width, height, scale);
  chart.axisPen = new ifo.CanvasPen(ifo.$("axis"), width, AXIS, scale);
};

// The tree has elements only for the rows that are visible.
function drawTree(frame) {
  const tree = ifo.$("tree");
  const elements = new Map();
  for (let at = ifo.rowAt(frame.rows, frame.scroll); at < frame.rows.length; at += 1) {
    const row = frame.rows[at];
    if (row.y > frame.scroll + frame.height) break;
    const signature = [row.active, row.bad, row.count, row.open, row.height, row.id === chart.current].join();
    let known = chart.elements.get(row.id);
    if (!known || known.signature !== signature) known = { signature, element: treeItem(row), fresh: true };
    known.element.style.transform = `translateY(${row.y - frame.scroll}px)`;
    elements.set(row.id, known);
  }
  const same = elements.size === chart.elements.size && [...elements.values()].every((it) => !it.fresh);
  for (const it of elements.values()) it.fresh = false;
  if (!same) tree.replaceChildren(...[...elements.values()].map((it) => it.element));
  chart.elements = elements;
  const current = elements.get(chart.current);
  if (current) tree.setAttribute("aria-activedescendant", current.element.id);
  else tree.removeAttribute("aria-activedescendant");
}

let idCount = 0;
function treeItem(row) {
  idCount += 1;
  const item = ifo.el("div", {
    id: `row-${idCount}`, role: "treeitem", class: `row ${row.kind} level-${row.level}`, "aria-level": row.level,
    "aria-expanded": row.open === null ? null : String(row.open), "aria-selected": String(row.id === chart.current),
  });
  item.style.height = `${row.height}px`;
  const twisty = ifo.el("span", { class: "twisty", "aria-hidden": "true" }, row.open === null ? "" : row.open ? "▾" : "▸");
  if (row.kind === "group") {
    const count = row.active ? `${row.active} in flight` : `${row.count} ended`;
    const bad = row.bad ? ifo.el("span", { class: "bad" }, ifo.swatch("Failing"), String(row.bad)) : null;
    item.append(twisty, ifo.el("span", { class: "label", title: row.name }, row.name), bad || "", ifo.el("span", { class: "count" }, count));
    if (row.bad) item.setAttribute("aria-label", `${row.name}, ${count}, ${row.bad} need attention`);
  } else {
    const { kind, name, namespace } = row.subject;
    const where = row.kind === "lane" && view.group !== "namespace" && namespace ? ifo.el("span", { class: "where" }, namespace) : "";
    const full = `${kind}/${name}${namespace ? ` in ${namespace}` : ""}`;
    item.append(twisty, ifo.el("span", { class: "label", title: full }, ifo.el("span", { class: "kind" }, `${kind} `), name || "?", " ", where));
  }
  item.addEventListener("click", (event) => onRow(row, event.target.closest(".twisty")));
  return item;
}

function onRow(row, onTwisty) {
  chart.current = row.id;
  if (row.kind === "group" || onTwisty) ifo.toggleRow(row);
  else ifo.select(worstOf(row).id);
  ifo.changed("draw");
}
const worstOf = (row) => {
  const pieces = row.pieces.length ? row.pieces : row.tracks.flat().map((it) => it.piece);
  return pieces.reduce((best, it) => (ifo.attentionRank(it) - ifo.attentionRank(best) || best.start - it.start) < 0 ? it : best);
};

ifo.toggleRow = (row, open = !row.open) => {
  if (row.open === null || row.open === open) return;
  const set = row.kind === "group" ? view.closed : view.toggled;
  if (set.has(row.id)) set.delete(row.id);
  else set.add(row.id);
  ifo.changed("rows");
};

ifo.scrollToRow = (row) => {
  const box = ifo.$("rows");
  if (row.y < box.scrollTop) box.scrollTop = row.y;
  if (row.y + row.height > box.scrollTop + chart.viewport) box.scrollTop = row.y + row.height - chart.viewport;
};

// Shows the row of a piece, and its bar if it is outside of the window.
ifo.reveal = (piece) => {
  const end = piece.active ? ifo.now() : piece.end;
  if (end < view.from || piece.start > view.to) {
    const span = Math.max(view.to - view.from, (end - piece.start) * 1.5);
    view.follow = false;
    ifo.showRange(piece.start - span * 0.3, piece.start + span * 0.7);
  }
  ifo.rebuildRows();
  const row = chart.rows.find((it) => it.kind === "lane" && it.pieces.includes(piece));
  if (row) {
    chart.current = row.id;
    ifo.scrollToRow(row);
  }
};

function onTreeKey(event) {
  const { rows } = chart;
  const at = rows.findIndex((it) => it.id === chart.current);
  const row = rows[at];
  const go = (index) => {
    const next = rows[Math.max(0, Math.min(index, rows.length - 1))];
    if (!next) return;
    chart.current = next.id;
    ifo.scrollToRow(next);
  };
  const parent = () => rows.slice(0, Math.max(at, 0)).reverse().find((it) => it.level < row.level);
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  if (event.key === "ArrowDown") go(at + 1);
  else if (event.key === "ArrowUp") go(at - 1);
  else if (event.key === "Home") go(0);
  else if (event.key === "End") go(rows.length - 1);
  else if (event.key === "PageDown") go(at + 10);
  else if (event.key === "PageUp") go(at - 10);
  else if (event.key === "ArrowRight" && row) row.open === false ? ifo.toggleRow(row, true) : go(at + 1);
  else if (event.key === "ArrowLeft" && row) row.open ? ifo.toggleRow(row, false) : parent() && go(rows.indexOf(parent()));
  else if ((event.key === "Enter" || event.key === " ") && row) onRow(row, false);
  else return;
  event.preventDefault();
  event.stopPropagation();
  ifo.changed("draw");
}

// Wheel: Ctrl or a pinch zooms, Shift or a horizontal wheel pans, on the axis any wheel zooms.
function onWheel(event) {
  const box = ifo.$("bars").getBoundingClientRect();
  const anchor = view.from + ((event.clientX - box.left) * (view.to - view.from)) / chart.width;
  const unit = event.deltaMode === 1 ? 20 : 1;
  const isAxis = event.currentTarget.id === "axis";
  if (event.ctrlKey || event.metaKey || (isAxis && !event.shiftKey && Math.abs(event.deltaY) >= Math.abs(event.deltaX))) {
    ifo.zoom(1.0024 ** (event.deltaY * unit * (event.ctrlKey && Math.abs(event.deltaY) < 40 ? 4 : 1)), anchor);
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    ifo.pan((event.deltaX || event.deltaY) * unit);
  } else {
    return;
  }
  event.preventDefault();
}

const pointers = new Map();
function onPointerDown(event) {
  if (event.button) return;
  event.currentTarget.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, { x: event.clientX, y: event.clientY, startX: event.clientX, startY: event.clientY, moved: false });
  chart.dragging = true;
}
function onPointerMove(event) {
  const pointer = pointers.get(event.pointerId);
  if (!pointer) return hover(event);
  const before = [...pointers.values()].map((it) => ({ ...it }));
  const [dx, dy] = [event.clientX - pointer.x, event.clientY - pointer.y];
  pointer.moved = pointer.moved || Math.abs(event.clientX - pointer.startX) + Math.abs(event.clientY - pointer.startY) > 4;
  Object.assign(pointer, { x: event.clientX, y: event.clientY });
  if (!pointer.moved) return undefined;
  ifo.hideTip();
  if (pointers.size === 2) {
    const after = [...pointers.values()];
    const distance = (list) => Math.max(Math.abs(list[0].x - list[1].x), 12);
    const middle = (after[0].x + after[1].x) / 2 - ifo.$("bars").getBoundingClientRect().left;
    return ifo.zoom(distance(before) / distance(after), view.from + (middle * (view.to - view.from)) / chart.width);
  }
  ifo.$("rows").scrollTop -= event.currentTarget.id === "bars" ? dy : 0;
  return dx ? ifo.pan(-dx) : undefined;
}
function onPointerUp(event) {
  const pointer = pointers.get(event.pointerId);
  pointers.delete(event.pointerId);
  chart.dragging = pointers.size > 0;
  if (!pointer || pointer.moved || event.type !== "pointerup" || event.currentTarget.id !== "bars") return;
  const bar = barUnder(event);
  ifo.select(bar ? bar.piece.id : "");
}
const barUnder = (event) => {
  const box = ifo.$("bars").getBoundingClientRect();
  return ifo.barAt(ifo.frame(), event.clientX - box.left, event.clientY - box.top);
};
function hover(event) {
  if (event.currentTarget.id !== "bars") return;
  const bar = barUnder(event);
  if (bar) ifo.showTip(bar, event.clientX, event.clientY);
  else ifo.hideTip();
  ifo.$("bars").classList.toggle("pointing", Boolean(bar));
  if (bar !== chart.hovered) {
    chart.hovered = bar;
    ifo.changed("draw");
  }
}

ifo.startTimeline = () => {
  const rows = ifo.$("rows");
  rows.addEventListener("scroll", () => { ifo.hideTip(); ifo.changed("draw"); }, { passive: true });
  for (const id of ["bars", "axis"]) {
    const canvas = ifo.$(id);
    canvas.addEventListener("wheel", onWheel, { passive: false });
    canvas.addEventListener("pointerdown", onPointerDown);
    canvas.addEventListener("pointermove", onPointerMove);
    for (const type of ["pointerup", "pointercancel"]) canvas.addEventListener(type, onPointerUp);
    canvas.addEventListener("pointerleave", () => { chart.hovered = null; ifo.hideTip(); ifo.changed("draw"); });
  }
  ifo.$("tree").addEventListener("keydown", onTreeKey);
  ifo.$("tree").addEventListener("focus", () => {
    if (!chart.rows.some((it) => it.id === chart.current)) chart.current = chart.rows[0] ? chart.rows[0].id : "";
    ifo.changed("draw");
  });
  new ResizeObserver(() => ifo.changed("draw")).observe(ifo.$("bars"));
};
