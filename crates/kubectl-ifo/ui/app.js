"use strict";
// The page as a whole: the session, the stream, the address, the overview, the controls, the frames.

// What has changed since the last frame: the objects or filters (data), the rows, the window of time.
const dirty = { data: true, rows: true, window: false };
let waiting = false;
ifo.changed = (what) => {
  dirty[what] = true;
  if (!waiting) requestAnimationFrame(frame);
  waiting = true;
};

// Draws a frame. Pieces, rows and table are computed at most as often as their cost allows. While the
// window moves, the rows stay.
let [nextComputation, endOfMove] = [0, Infinity];
function frame(at) {
  waiting = false;
  if (dirty.window) endOfMove = at + 180;
  if (dirty.window || dirty.rows) writeAddress();
  const settled = at >= endOfMove && !chart.dragging;
  if ((dirty.data && at >= nextComputation) || dirty.rows || settled) {
    const start = performance.now();
    if (dirty.data) {
      ifo.computePieces();
      drawOverview();
      ifo.showDetails();
    }
    ifo.rebuildRows();
    ifo.drawTasks();
    nextComputation = at + Math.max(150, 6 * (performance.now() - start));
    endOfMove = settled ? Infinity : endOfMove;
    Object.assign(dirty, { data: false, rows: false });
  }
  dirty.window = false;
  if (chart.pen) ifo.drawTimeline();
  drawRange();
  if (ifo.model.begin && !ifo.painted) ifo.painted = performance.now();
  if (dirty.data || endOfMove < Infinity) ifo.changed("draw");
}

// ---- The address: the fragment holds the view.
const FIELDS = ["group", "q", "component", "namespace", "node", "active", "expanded", "selected", "sort"];
function readAddress() {
  const from = new URLSearchParams(location.hash.slice(1));
  for (const name of FIELDS) view[name] = from.get(name) || "";
  if (!ifo.GROUPINGS[view.group]) view.group = "namespace";
  view.states = (from.get("states") || "").split(",").filter((it) => it in ifo.STATES || it === "Overdue" || it === "Stalled");
  const [start, end] = [Date.parse(from.get("from")), Date.parse(from.get("to"))];
  view.follow = !(end - start >= SHORTEST);
  if (view.follow) ifo.showNow(limited(Number(from.get("last")) * 1000 || 900e3));
  else ifo.showRange(start, end);
  return from.get("token");
}
function writeAddress() {
  clearTimeout(writeAddress.timer);
  writeAddress.timer = setTimeout(() => {
    const to = new URLSearchParams();
    const iso = (ms) => new Date(ms).toISOString().replace(/\.\d+/, "");
    if (view.follow) to.set("last", Math.round((view.to - view.from) / 1000));
    else ["from", "to"].forEach((it) => to.set(it, iso(view[it])));
    for (const name of FIELDS) if (view[name]) to.set(name, view[name]);
    if (view.states.length) to.set("states", view.states.join(","));
    if (location.hash !== `#${to}`) history.replaceState(null, "", `#${to}`);
  }, 250);
}

// ---- The session and the stream.
const WORDS = { connected: "live", connecting: "connecting …", disconnected: "not connected", expired: "session ended", file: "recorded" };
function setConnection(status, message = "") {
  $("connection").className = status;
  setText($("connection"), WORDS[status]);
  $("notice").hidden = !message;
  setText($("notice"), message);
  ifo.changed("data");
}
ifo.expired = () => setConnection("expired", "This session has ended. Open the address that `kubectl ifo ui` printed last, or start the command again.");
async function open(token) {
  try {
    const answer = await fetch("/api/session", token ? { headers: { "X-Ifo-Token": token } } : {});
    if (answer.status === 401 || answer.status === 403) return ifo.expired();
    if (answer.ok) return listen();
  } catch {
    // The server does not answer. The next try follows below.
  }
  setConnection("disconnected", "`kubectl ifo ui` does not answer. If you ended it, start it again. The page tries again every 2 seconds.");
  return setTimeout(open, 2000, token);
}
function listen() {
  const stream = new EventSource("/api/stream");
  const onData = (name, apply) => on(stream, name, (event) => {
    apply(JSON.parse(event.data));
    ifo.changed("data");
  });
  // All objects, at the start and after the page was too slow for the changes.
  onData("all", start);
  onData("state", setState);
  onData("change", ({ type, object }) => ifo.apply(type, object));
  on(stream, "error", () => {
    stream.close();
    ifo.model.streamLostSince ||= ifo.now();
    setConnection("disconnected", "The connection to `kubectl ifo ui` is lost. The page shows what it last knew, and tries again.");
    setTimeout(open, 1000);
  });
}
function setState(state) {
  ifo.model.state = state;
  const lost = state.gaps.find((it) => it.kind === "connection" && !it.to);
  if (lost) setConnection("disconnected", `The cluster does not answer: ${lost.message}`);
  else setConnection(ifo.frozen ? "file" : "connected");
}
// Shows all objects of a stream or of an exported file.
function start({ begin, items, state }) {
  const isFirst = !ifo.model.begin;
  Object.assign(ifo.model, { begin, operations: new Map(), activities: new Map(), changed: true, streamLostSince: null });
  const time = Date.parse(begin.time) || Date.now();
  ifo.model.clockOffset = time - Date.now();
  // The time of files and of an exported page does not pass.
  if (embedded || begin.mode === "files") ifo.frozen = time;
  items.forEach((it) => ifo.apply("ADDED", it));
  setState(state);
  const parts = [begin.context, begin.namespace && `namespace ${begin.namespace}`, begin.filter, ifo.frozen && `at ${ifo.dateTime(time)}`];
  $("context").textContent = parts.filter(Boolean).join(" · ");
  $("context").title = begin.note || "";
  document.title = `${begin.context || "ifo"} – operations`;
  ifo.computePieces();
  if (isFirst && ifo.frozen && !addressHasView) ifo.showAll();
  else if (isFirst && view.follow) ifo.showNow();
}

// ---- The overview: is it idle, numbers by state, what needs attention first.
function drawOverview() {
  const idle = ifo.idleOf(view);
  const since = idle.since ? ` for ${ifo.duration(ifo.now() - idle.since)}` : "";
  $("idle").className = `card ${idle.status}`;
  setText($("idle-head"), { idle: "Idle", busy: "Not idle", unknown: "Unknown" }[idle.status]);
  const count = `${idle.count} operation${idle.count === 1 ? "" : "s"} in flight`;
  const busy = `${count} in ${idle.scope}${since && `, not idle${since}`}.`;
  setText($("idle-text"), { idle: `Nothing is in flight in ${idle.scope}${since}.`, busy, unknown: idle.why }[idle.status]);
  const { warnings } = ifo.model.state;
  $("warnings").hidden = !warnings.length;
  ifo.keyed($("warnings-list"), warnings.map((it) => ({ key: it, signature: "", make: () => el("li", {}, it) })));
  setText($("warnings-head"), `The view is not complete: ${warnings[0]}${warnings.length > 1 ? `, and ${warnings.length - 1} more` : ""}`);
  drawCounts();
  drawAttention();
  drawChoices();
}

const COUNTED = ["Failing", "Blocked", "Stalled", "Overdue", "Progressing", "Held", "Settling", "Failed", "Succeeded", "Ended", "Superseded"];
const MARKS = { Overdue: ["late", "takes much longer than usual"], Stalled: ["flat", "its progress does not rise"] };
function drawCounts() {
  const fitting = ifo.model.pieces.filter((it) => ifo.isIn(it, view) && ifo.fits(it, view, true));
  ifo.keyed($("counts"), COUNTED.map((name) => {
    const count = fitting.filter((it) => ifo.hasState(it, name)).length;
    const pressed = view.states.includes(name);
    const [glyph, title] = MARKS[name] || [undefined, ifo.stateOf(name).meaning];
    const toggle = () => change({ states: pressed ? view.states.filter((it) => it !== name) : [...view.states, name] });
    const make = () => el("button", { type: "button", class: count ? "chip" : "chip none", title, "aria-pressed": String(pressed), onclick: toggle },
      ifo.swatch(MARKS[name] ? "Unknown" : name, glyph), el("b", {}, String(count)), ` ${name}`);
    return { key: name, signature: `${count} ${view.states}`, make };
  }));
}

function drawAttention() {
  const bad = ifo.model.pieces.filter((it) => ifo.attentionRank(it) < 4 && ifo.fits(it, view, true));
  const shown = sortedBy(bad, (it) => [ifo.attentionRank(it), it.start]).slice(0, 3);
  const rows = ifo.keyed($("attention"), shown.map((it) => ({ key: it.uid, signature: ifo.stateText(it) + it.message, make: () => el("li", {},
    el("button", { type: "button", class: "trouble", title: it.message || null, onclick: () => ifo.pick(it.uid) }, ifo.swatch(it.state),
      el("b", {}, it.root.subject.name || ""), el("span", { class: "what" }, `${it.root.operation} · ${ifo.stateText(it)}`),
      el("span", { class: "age" }), el("span", { class: "why" }, it.message || it.reason))) })));
  shown.forEach((it, at) => setText(rows[at].querySelector(".age"), ifo.duration(ifo.lengthOf(it))));
  setText($("attention-head"), bad.length ? `Needs attention: ${bad.length}` : ifo.model.begin ? "Nothing needs attention" : "");
}

// The choices of the filters are what the operations have.
function drawChoices() {
  for (const [name, valuesOf] of Object.entries(ifo.CHOICES)) {
    const values = [...new Set([view[name], ...ifo.model.pieces.flatMap(valuesOf)].filter(Boolean))].sort();
    const option = (value, text) => ({ key: value, signature: "", make: () => el("option", { value }, text) });
    const all = option("", name[0].toUpperCase() + name.slice(1));
    ifo.keyed($(name), [all, ...values.map((it) => option(it, it === "-" ? "cluster-scoped" : it))]);
    if ($(name).value !== view[name]) $(name).value = view[name];
    $(name).classList.toggle("chosen", Boolean(view[name]));
  }
  $("clear").hidden = !(view.words.length || view.component || view.namespace || view.node || view.states.length || view.active);
}
function drawRange() {
  const end = view.follow && !ifo.frozen ? "now" : ifo.dateTime(view.to);
  setText($("range"), `${ifo.dateTime(view.from)} – ${end} · ${ifo.duration(view.to - view.from)}`);
  $("now").ariaPressed = view.follow;
  $("bars").ariaLabel = `Timeline of ${chart.shown} pieces of work. The table "Tasks" has the same content.`;
}

// ---- The controls. A button names its action in data-do, and its key in data-key.
const ACTIONS = {
  zoomIn: () => ifo.zoom(0.6), zoomOut: () => ifo.zoom(1 / 0.6), now: () => ifo.showNow(), all: () => ifo.showAll(),
  earlier: () => ifo.pan(-chart.width / 4), later: () => ifo.pan(chart.width / 4),
  parts: () => { view.toggled.clear(); change({ expanded: view.expanded ? "" : "1" }); },
  clear: () => change({ q: "", component: "", namespace: "", node: "", states: [], active: "" }),
  close: () => ifo.select(""), help: () => $("help-dialog").showModal(), closeHelp: () => $("help-dialog").close(),
  svg: () => savePicture("svg"), png: () => savePicture("png"), tasks: () => $("tasks-head").querySelector("button").focus(),
  search: () => $("q").focus(), active: () => change({ active: view.active ? "" : "1" }),
  group: () => {
    const names = Object.keys(ifo.GROUPINGS);
    change({ group: names[(names.indexOf(view.group) + 1) % names.length] });
  },
};
const KEYS = { "/": "search", "=": "zoomIn", "[": "earlier", "]": "later", a: "active", g: "group" };
function startControls() {
  for (const button of document.querySelectorAll("[data-do]")) {
    on(button, "click", ACTIONS[button.dataset.do]);
    if (button.dataset.key) KEYS[button.dataset.key] = button.dataset.do;
  }
  on($("span"), "change", (event) => { ifo.showNow(Number(event.target.value) * 1000); event.target.value = ""; });
  // The names of the controls are those of the fields of the view.
  on($("toolbar"), "input", () => change({ active: "", ...Object.fromEntries(new FormData($("toolbar"))) }));
  on($("toolbar"), "submit", (event) => event.preventDefault());
  on($("timeline"), "keydown", onKey);
  on(document, "keydown", (event) => {
    if (event.key === "Escape") ACTIONS.close();
    if (event.key === "?" && !event.target.closest("input, select, dialog")) ACTIONS.help();
  });
  on(window, "hashchange", () => { readAddress(); change({}); });
  on(matchMedia("(prefers-color-scheme: dark)"), "change", () => { ifo.readTheme(); ifo.changed("draw"); });
  for (const [name, state] of Object.entries(ifo.STATES)) {
    if (name !== "Unknown") $("legend").append(el("li", {}, ifo.swatch(name), el("b", {}, name), ` ${state.meaning}`));
  }
}
// Changes fields of the view, and shows the view in the controls.
function change(fields) {
  Object.assign(view, fields);
  view.words = view.q.toLowerCase().split(/\s+/).filter(Boolean);
  const { q, active, group } = $("toolbar").elements;
  if (q.value !== view.q) q.value = view.q;
  active.checked = Boolean(view.active);
  group.value = view.group;
  $("expand").ariaPressed = Boolean(view.expanded);
  ifo.changed("data");
  ifo.changed("rows");
}
// Single keys, except the one of the help, are shortcuts only while the focus is in the timeline, so that
// speech input cannot hit them.
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.shiftKey && event.key === "ArrowLeft") ifo.pan(-80);
  if (event.shiftKey && event.key === "ArrowRight") ifo.pan(80);
  if (!KEYS[event.key]) return;
  event.preventDefault();
  ACTIONS[KEYS[event.key]]();
}

// ---- Pictures of the current view.
function savePicture(type) {
  const tree = $("tree").getBoundingClientRect().width;
  const subtitle = [$("range"), $("idle-head"), $("idle-text")].map((it) => it.textContent).join(" · ");
  const own = { ...ifo.frame(), hovered: "", current: "", title: `Operations: ${$("context").textContent}, ${ifo.dateTime(ifo.now())}`, subtitle };
  own.height = Math.min(own.height, chart.height - own.scroll + 20);
  const [width, height] = [tree + own.width, own.height + 132];
  if (type === "svg") {
    const pen = new ifo.SvgPen(width, height);
    ifo.drawPicture(pen, own, tree);
    return download(new Blob([new XMLSerializer().serializeToString(pen.root)], { type: "image/svg+xml" }), "svg");
  }
  const canvas = el("canvas");
  ifo.drawPicture(new ifo.CanvasPen(canvas, width, height, 2), own, tree);
  return canvas.toBlob((blob) => download(blob, "png"));
}
function download(blob, ending) {
  const link = el("a", { href: URL.createObjectURL(blob), download: `operations-${new Date(ifo.now()).toISOString().slice(0, 19).replace(/:/g, "")}.${ending}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// ---- Start.
ifo.readTheme();
const embedded = $("data") && JSON.parse($("data").textContent);
const addressHasView = /[#&](from|last)=/.test(location.hash);
const token = readAddress();
if (token) history.replaceState(null, "", location.pathname);
startControls();
ifo.startTimeline();
ifo.startTasks();
change({});
if (embedded) {
  start(embedded);
} else {
  open(token);
  // The window slides, and once a second, the ages change.
  setInterval(() => ifo.slide() && ifo.changed("draw"), 40);
  setInterval(() => ifo.changed("data"), 1000);
}
