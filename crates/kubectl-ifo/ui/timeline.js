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
const chart = { rows: [], height: 0, shown: 0, width: 0, viewport: 0, current: "", hovered: null, builtFrom: 0, builtTo: 0 };
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
  $("spacer").style.height = `${Math.max(0, chart.height - chart.viewport)}px`;
  $("empty").hidden = chart.rows.length > 0;
  const known = ifo.model.operations.size > 0;
  $("empty").textContent = known ? "No operation of this time matches the filters." : ifo.emptyText();
};

ifo.frame = () => ({
  from: view.from, to: view.to, now: ifo.now(), seen: seenUntil(), frozen: ifo.frozen, width: chart.width, height: chart.viewport, rows: chart.rows,
  scroll: $("rows").scrollTop, selected: view.selected, hovered: chart.hovered, current: chart.current, gaps: gapsOf(),
});
const seenUntil = () => {
  const lost = ifo.model.gaps.find((it) => it.kind === "connection" && it.to === null);
  return lost ? lost.from : ifo.now();
};
function gapsOf() {
  const { gaps, begin } = ifo.model;
  const labels = { connection: "not connected", detection: "detection incomplete" };
  const shown = gaps.filter((it) => (it.to ?? ifo.now()) - it.from > 500);
  const known = shown.map((it) => ({ ...it, label: labels[it.kind] || it.text }));
  if (!begin || ifo.firstKnown > ifo.now()) return known;
  return [{ from: view.from - 1e12, to: ifo.firstKnown, label: "nothing is recorded of this time" }, ...known];
}

ifo.drawTimeline = () => {
  const frame = ifo.frame();
  ifo.drawChart(chart.pen, frame);
  ifo.drawAxis(chart.axisPen, frame, AXIS);
  drawTree(frame);
};

ifo.resize = () => {
  const box = $("bars").getBoundingClientRect();
  const [width, height] = [Math.round(box.width), Math.round(box.height)];
  const scale = Math.min(devicePixelRatio || 1, 2);
  if (!width || (width === chart.width && height === chart.viewport && chart.pen && chart.pen.scale === scale)) return;
  chart.width = width;
  chart.viewport = height;
  chart.pen = new ifo.CanvasPen($("bars"), width, height, scale);
  chart.axisPen = new ifo.CanvasPen($("axis"), width, AXIS, scale);
};

// The tree has elements only for the rows that are visible.
function drawTree(frame) {
  const visible = ifo.visibleRows(frame);
  const elements = ifo.keyed($("tree"), visible.map((row) => {
    const parts = [row.name, row.active, row.bad, row.count, row.open, row.height, row.id === chart.current];
    return { key: row.id, signature: parts.join(), make: () => treeItem(row) };
  }));
  visible.forEach((row, at) => { elements[at].style.transform = `translateY(${row.y - frame.scroll}px)`; });
  const current = elements[visible.findIndex((it) => it.id === chart.current)];
  $("tree").setAttribute("aria-activedescendant", current ? current.id : "");
}

let idCount = 0;
function treeItem(row) {
  idCount += 1;
  const item = el("div", {
    id: `row-${idCount}`, role: "treeitem", class: `row ${row.kind} level-${row.level}`, "aria-level": row.level,
    "aria-expanded": row.open === null ? null : String(row.open), "aria-selected": String(row.id === chart.current),
    onclick: (event) => onRow(row.id, event.target.closest(".twisty")),
  }, el("span", { class: "twisty", "aria-hidden": "true" }, row.open === null ? "" : row.open ? "▾" : "▸"));
  item.style.height = `${row.height}px`;
  if (row.kind === "group") {
    const count = row.active ? `${row.active} in flight` : `${row.count} ended`;
    const bad = row.bad > 0 && el("span", { class: "bad", title: `${row.bad} need attention` }, ifo.swatch(row.worst), String(row.bad));
    item.append(el("span", { class: "label", title: row.name }, row.name), bad || "", el("span", { class: "count" }, count));
  } else {
    const { kind, name, namespace } = row.subject;
    const where = row.kind === "lane" && view.group !== "namespace" && namespace ? `${kind} · ${namespace}` : kind;
    item.title = `${kind}/${name}${namespace ? ` in ${namespace}` : ""}`;
    item.append(el("span", { class: "label" }, name || "?"), el("span", { class: "kind" }, where));
  }
  return item;
}

function onRow(id, onTwisty) {
  const row = chart.rows.find((it) => it.id === id);
  if (!row) return;
  chart.current = id;
  if (row.kind === "group" || onTwisty) ifo.toggleRow(row);
  else ifo.select(worstOf(row).id);
}
const worstOf = (row) => {
  const pieces = row.pieces.length ? row.pieces : row.tracks.flat().map((it) => it.piece);
  return pieces.reduce((best, it) => (ifo.attentionRank(it) - ifo.attentionRank(best) || best.start - it.start) < 0 ? it : best);
};

ifo.toggleRow = (row) => {
  if (row.open === null) return;
  const set = row.kind === "group" ? view.closed : view.toggled;
  if (set.has(row.id)) set.delete(row.id);
  else set.add(row.id);
  ifo.changed("rows");
};

ifo.scrollToRow = (row) => {
  const box = $("rows");
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
  goTo(row);
};

function onTreeKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  const { rows } = chart;
  const at = rows.findIndex((it) => it.id === chart.current);
  const row = rows[at] || { open: null, level: 0 };
  const parent = rows.findLastIndex((it, index) => index < at && it.level < row.level);
  const targets = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1, PageDown: at + 10, PageUp: at - 10, ArrowRight: at + 1, ArrowLeft: parent };
  if (event.key === "ArrowRight" && row.open === false) ifo.toggleRow(row);
  else if (event.key === "ArrowLeft" && row.open) ifo.toggleRow(row);
  else if (event.key === "Enter" || event.key === " ") onRow(chart.current, false);
  else if (event.key in targets) goTo(rows[Math.max(0, Math.min(targets[event.key], rows.length - 1))]);
  else return;
  event.preventDefault();
}
function goTo(row) {
  if (!row) return;
  chart.current = row.id;
  ifo.scrollToRow(row);
  ifo.changed("draw");
}

// Wheel: Ctrl or a pinch zooms, Shift or a horizontal wheel pans, on the axis any wheel zooms.
function onWheel(event) {
  const box = $("bars").getBoundingClientRect();
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
  $("tree").focus({ preventScroll: true });
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
    const middle = (after[0].x + after[1].x) / 2 - $("bars").getBoundingClientRect().left;
    return ifo.zoom(distance(before) / distance(after), view.from + (middle * (view.to - view.from)) / chart.width);
  }
  $("rows").scrollTop -= event.currentTarget.id === "bars" ? dy : 0;
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
  const box = $("bars").getBoundingClientRect();
  return ifo.barAt(ifo.frame(), event.clientX - box.left, event.clientY - box.top);
};
function hover(event) {
  if (event.currentTarget.id !== "bars") return;
  const bar = barUnder(event);
  if (bar) ifo.showTip(bar, event.clientX, event.clientY);
  else ifo.hideTip();
  $("bars").classList.toggle("pointing", Boolean(bar));
  if (bar !== chart.hovered) {
    chart.hovered = bar;
    ifo.changed("draw");
  }
}

ifo.startTimeline = () => {
  const rows = $("rows");
  rows.addEventListener("scroll", () => { ifo.hideTip(); ifo.changed("draw"); }, { passive: true });
  for (const id of ["bars", "axis"]) {
    const canvas = $(id);
    canvas.addEventListener("wheel", onWheel, { passive: false });
    canvas.addEventListener("pointerdown", onPointerDown);
    canvas.addEventListener("pointermove", onPointerMove);
    for (const type of ["pointerup", "pointercancel"]) canvas.addEventListener(type, onPointerUp);
    canvas.addEventListener("pointerleave", () => { chart.hovered = null; ifo.hideTip(); ifo.changed("draw"); });
  }
  $("tree").addEventListener("keydown", onTreeKey);
  $("tree").addEventListener("focus", () => chart.rows.some((it) => it.id === chart.current) || goTo(chart.rows[0]));
  new ResizeObserver(() => ifo.changed("draw")).observe($("bars"));
};
