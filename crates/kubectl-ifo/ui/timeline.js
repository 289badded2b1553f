"use strict";
// The timeline on the page: its window of time, zoom and pan, the tree beside it, and the pointer.

const SHORTEST = 10e3;
const LONGEST = 60 * 86400e3;
// The part of the window that lies in the future while it follows "now".
const LEAD = 0.16;
const AXIS = 32;

const view = {
  from: 0, to: 0, follow: true, group: "namespace", q: "", words: [], component: "", namespace: "", node: "",
  states: [], active: "", selected: "", sort: "", closed: new Set(), toggled: new Set(), expanded: "",
};
const chart = { rows: [], height: 0, shown: 0, width: 0, viewport: 0, current: "", hovered: "" };
Object.assign(ifo, { view, chart });
const lengthOfWindow = () => view.to - view.from;
const limited = (span) => Math.min(Math.max(span, SHORTEST), LONGEST);

ifo.showNow = (span = lengthOfWindow()) => {
  view.follow = true;
  view.to = ifo.now() + span * LEAD;
  view.from = view.to - span;
  ifo.changed("window");
};
ifo.showRange = (from, to) => {
  const now = ifo.now();
  view.from = from;
  view.to = from + limited(to - from);
  view.follow = view.follow && now >= view.from && now <= view.to;
  ifo.changed("window");
};
// Zooms around a time; without one, around "now" if the window follows it, or else around the middle.
ifo.zoom = (factor, anchor) => {
  const at = anchor ?? (view.follow ? ifo.now() : (view.from + view.to) / 2);
  const span = limited(lengthOfWindow() * factor);
  const from = at - (span * (at - view.from)) / lengthOfWindow();
  ifo.showRange(from, from + span);
};
ifo.pan = (pixels) => {
  const delta = (pixels * lengthOfWindow()) / Math.max(chart.width, 1);
  view.follow = false;
  ifo.showRange(view.from + delta, view.to + delta);
};
ifo.showAll = () => {
  const fitting = ifo.model.pieces.filter((it) => ifo.fits(it, view));
  if (!fitting.length) return ifo.showNow();
  const now = ifo.now();
  const span = Math.max(now - minimum(fitting, "start"), 60e3);
  view.follow = true;
  return ifo.showRange(now - span * 1.02, now + span * 0.1);
};

// Moves the window while it follows. Returns true if it moved by at least half a pixel.
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
let lastSlide = 0;
ifo.slide = () => {
  const now = ifo.now();
  const moved = now - lastSlide;
  if (moved < Math.max(reducedMotion.matches ? 5000 : 40, lengthOfWindow() / Math.max(chart.width, 1) / 2)) return false;
  if (view.follow && lastSlide && !chart.dragging) {
    view.from += moved;
    view.to += moved;
  }
  lastSlide = now;
  return true;
};

ifo.rebuildRows = () => {
  Object.assign(chart, ifo.buildRows(view));
  $("spacer").style.height = `${Math.max(0, chart.height - chart.viewport)}px`;
  $("empty").hidden = chart.rows.length > 0;
  const { begin, operations } = ifo.model;
  const none = `No operation is in flight, and none is recorded.${ifo.frozen ? "" : " New ones appear here as they start."}`;
  $("empty").textContent = operations.size ? "No operation of this time matches the filters." : begin ? none : "No operations have been read yet.";
};

const LABELS = { connection: "not connected", detection: "operations may be missing" };
ifo.frame = () => {
  const now = ifo.now();
  const lost = ifo.lostConnection();
  const labelled = ifo.gaps().filter((it) => (it.to || now) - it.from > 500).map((it) => ({ ...it, label: LABELS[it.kind] }));
  const { firstStart } = ifo.model;
  if (firstStart < now) labelled.push({ from: view.from - LONGEST, to: firstStart, label: "nothing is recorded of this time" });
  return {
    ...chart, from: view.from, to: view.to, now, seen: lost ? lost.from : now, frozen: ifo.frozen, height: chart.viewport,
    scroll: $("rows").scrollTop, selected: view.selected, gaps: labelled,
  };
};

ifo.drawTimeline = () => {
  const frame = ifo.frame();
  ifo.drawChart(chart.pen, frame);
  ifo.drawAxis(chart.axisPen, frame, AXIS);
  drawTree(frame);
};

function resize() {
  const box = $("bars").getBoundingClientRect();
  const scale = Math.min(devicePixelRatio, 2);
  chart.width = Math.round(box.width);
  chart.viewport = Math.round(box.height);
  chart.pen = new ifo.CanvasPen($("bars"), chart.width, chart.viewport, scale);
  chart.axisPen = new ifo.CanvasPen($("axis"), chart.width, AXIS, scale);
  ifo.rebuildRows();
  ifo.drawTimeline();
}

// The tree has elements only for the rows that are visible. It stays while the window only moves in time.
let drawn = {};
function drawTree({ rows, scroll, height, current }) {
  if (drawn.rows === rows && drawn.scroll === scroll && drawn.height === height && drawn.current === current) return;
  drawn = { rows, scroll, height, current };
  const visible = ifo.visibleRows(drawn);
  const elements = ifo.keyed($("tree"), visible.map((row) => {
    const parts = [row.active, row.bad?.map((it) => it.state), row.pieces.length, row.open, row.height, row.id === current];
    return { key: row.id, signature: parts.join(), make: () => treeItem(row) };
  }));
  visible.forEach((row, at) => { elements[at].style.transform = `translateY(${row.y - scroll}px)`; });
  const own = elements[visible.findIndex((it) => it.id === current)];
  $("tree").setAttribute("aria-activedescendant", own ? own.id : "");
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
    const count = row.active ? `${row.active} in flight` : `${row.pieces.length} ended`;
    const [worst] = row.bad;
    const bad = worst && el("span", { class: "bad", title: `${row.bad.length} need attention` }, ifo.swatch(worst.state), String(row.bad.length));
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
  const [worst] = sortedBy(row.pieces, (it) => [ifo.attentionRank(it), -it.start]);
  if (row.kind === "group" || onTwisty) toggleRow(row);
  else ifo.select(worst.uid);
}
function toggleRow(row) {
  if (row.open === null) return;
  const set = row.kind === "group" ? view.closed : view.toggled;
  if (!set.delete(row.id)) set.add(row.id);
  ifo.changed("rows");
}

// Shows the row of a piece, and its bar if it is outside of the window.
ifo.reveal = (piece) => {
  if (!ifo.isIn(piece, view)) {
    const span = Math.max(lengthOfWindow(), ifo.lengthOf(piece) * 1.5);
    view.follow = false;
    ifo.showRange(piece.start - span * 0.3, piece.start + span * 0.7);
  }
  ifo.rebuildRows();
  goTo(chart.rows.find((it) => it.kind === "lane" && it.pieces.includes(piece)));
};

function onTreeKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  const { rows } = chart;
  const at = rows.findIndex((it) => it.id === chart.current);
  const row = rows[at] || { open: null, level: 0 };
  const parent = rows.findLastIndex((it, index) => index < at && it.level < row.level);
  const targets = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1, PageDown: at + 10, PageUp: at - 10, ArrowRight: at + 1, ArrowLeft: parent };
  if (event.key === "ArrowRight" && row.open === false) toggleRow(row);
  else if (event.key === "ArrowLeft" && row.open) toggleRow(row);
  else if (event.key === "Enter" || event.key === " ") onRow(chart.current, false);
  else if (event.key in targets) goTo(rows[Math.max(0, Math.min(targets[event.key], rows.length - 1))]);
  else return;
  event.preventDefault();
}
function goTo(row) {
  if (!row) return;
  chart.current = row.id;
  const box = $("rows");
  box.scrollTop = Math.min(Math.max(box.scrollTop, row.y + row.height - chart.viewport), row.y);
  ifo.changed("draw");
}

const timeUnder = (x) => timeAt({ ...view, width: chart.width }, x - $("bars").getBoundingClientRect().left);

// Wheel: Ctrl or a pinch zooms, Shift or a horizontal wheel pans, on the axis any wheel zooms.
function onWheel(event) {
  const unit = event.deltaMode === 1 ? 20 : 1;
  const isAxis = event.currentTarget.id === "axis";
  const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
  if (event.ctrlKey || event.metaKey || (isAxis && !isSideways)) {
    // A pinch on a touchpad sends small steps with Ctrl.
    const speed = event.ctrlKey && Math.abs(event.deltaY) < 40 ? 4 : 1;
    ifo.zoom(1.0024 ** (event.deltaY * unit * speed), timeUnder(event.clientX));
  } else if (isSideways) {
    ifo.pan((event.deltaX || event.deltaY) * unit);
  } else {
    return;
  }
  event.preventDefault();
}

// The pressed pointers. Two fingers on a touch screen are two pointers.
const pointers = new Map();
function onPointerDown(event) {
  if (event.button) return;
  $("tree").focus({ preventScroll: true });
  event.currentTarget.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, { x: event.clientX, y: event.clientY, way: 0 });
  chart.dragging = true;
}
function onPointerMove(event) {
  const pointer = pointers.get(event.pointerId);
  if (!pointer) return hover(event);
  const spread = () => {
    const [one, other] = pointers.values();
    return Math.max(Math.abs(one.x - (other || one).x), 12);
  };
  const before = spread();
  const [dx, dy] = [event.clientX - pointer.x, event.clientY - pointer.y];
  const way = pointer.way + Math.abs(dx) + Math.abs(dy);
  Object.assign(pointer, { x: event.clientX, y: event.clientY, way });
  if (way < 5) return undefined;
  ifo.hideTip();
  if (pointers.size > 1) return ifo.zoom(before / spread(), timeUnder(event.clientX));
  if (event.currentTarget.id === "bars") $("rows").scrollTop -= dy;
  return dx ? ifo.pan(-dx) : undefined;
}
function onPointerUp(event) {
  const pointer = pointers.get(event.pointerId);
  pointers.delete(event.pointerId);
  chart.dragging = pointers.size > 0;
  if (!pointer || pointer.way >= 5 || event.type !== "pointerup" || event.currentTarget.id !== "bars") return;
  const bar = barUnder(event);
  ifo.select(bar ? bar.piece.uid : "");
}
const barUnder = (event) => {
  const box = $("bars").getBoundingClientRect();
  return ifo.barAt(ifo.frame(), event.clientX - box.left, event.clientY - box.top);
};
function hover(event) {
  if (event.currentTarget.id !== "bars") return;
  const bar = event.type === "pointermove" ? barUnder(event) : null;
  if (bar) ifo.showTip(bar, event.clientX, event.clientY);
  else ifo.hideTip();
  $("bars").classList.toggle("pointing", Boolean(bar));
  const hovered = bar ? bar.operation.uid : "";
  if (hovered !== chart.hovered) ifo.changed("draw");
  chart.hovered = hovered;
}

ifo.startTimeline = () => {
  on($("rows"), "scroll", () => { ifo.hideTip(); ifo.changed("draw"); }, { passive: true });
  for (const canvas of [$("bars"), $("axis")]) {
    on(canvas, "wheel", onWheel, { passive: false });
    on(canvas, "pointerdown", onPointerDown);
    on(canvas, "pointermove", onPointerMove);
    on(canvas, "pointerup pointercancel", onPointerUp);
    on(canvas, "pointerleave", hover);
  }
  on($("tree"), "keydown", onTreeKey);
  on($("tree"), "focus", () => chart.rows.some((it) => it.id === chart.current) || goTo(chart.rows[0]));
  new ResizeObserver(resize).observe($("bars"));
};
