"use strict";
// The page as a whole: the session, the stream, the address, the overview, the controls, the frames.

ifo.connection = { status: "connecting", message: "" };
const dirty = { data: true, rows: true, draw: true, window: false };
let waiting = false;
ifo.changed = (what) => {
  dirty[what] = true;
  dirty.draw = true;
  if (!waiting) requestAnimationFrame(frame);
  waiting = true;
};

// Draws a frame. Pieces, rows and table are computed at most as often as their cost allows.
const cost = { next: 0, windowAt: 0 };
function frame(at) {
  waiting = false;
  if (dirty.window) cost.windowAt = at + 180;
  if (dirty.window || dirty.rows) writeAddress();
  const settled = cost.windowAt && at >= cost.windowAt && !chart.dragging;
  if ((dirty.data && at >= cost.next) || dirty.rows || settled) {
    const start = performance.now();
    if (dirty.data) {
      ifo.computePieces();
      drawOverview();
      ifo.showDetails();
    }
    ifo.rebuildRows();
    ifo.drawTasks();
    cost.next = at + Math.max(150, 6 * (performance.now() - start));
    cost.windowAt = settled ? 0 : cost.windowAt;
    dirty.data = false;
    dirty.rows = false;
  }
  dirty.window = false;
  dirty.draw = false;
  ifo.resize();
  if (chart.pen) ifo.drawTimeline();
  drawRange();
  if (ifo.model.begin && !ifo.painted) ifo.painted = performance.now();
  if (dirty.data || cost.windowAt) ifo.changed("draw");
}

// Once a second, the ages change; in between, the window slides.
function tick() {
  if (ifo.slide()) ifo.changed("draw");
  if (Date.now() - tick.last > 1000) {
    tick.last = Date.now();
    ifo.changed("data");
  }
  if (!ifo.frozen) setTimeout(tick, 40);
}
tick.last = 0;

// ---- The address: the fragment holds the view.
const TEXTS = ["group", "q", "component", "namespace", "node", "selected", "sort"];
function readAddress() {
  const from = new URLSearchParams(location.hash.slice(1));
  for (const name of TEXTS) view[name] = from.get(name) || "";
  if (!ifo.GROUPINGS[view.group]) view.group = "namespace";
  view.states = (from.get("states") || "").split(",").filter((it) => it in ifo.STATES || it === "Overdue" || it === "Stalled");
  view.active = from.get("active") === "1";
  view.expanded = from.get("expanded") === "1";
  const [start, end] = [Date.parse(from.get("from")), Date.parse(from.get("to"))];
  view.follow = !(end - start >= SHORTEST);
  const last = Math.min(Math.max(Number(from.get("last")) * 1000 || 900e3, SHORTEST), LONGEST);
  if (view.follow) ifo.showNow(last);
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
    for (const name of TEXTS) if (view[name]) to.set(name, view[name]);
    if (view.states.length) to.set("states", view.states.join(","));
    for (const name of ["active", "expanded"]) if (view[name]) to.set(name, "1");
    if (location.hash !== `#${to}`) history.replaceState(null, "", `#${to}`);
  }, 250);
}

// ---- The session and the stream.
ifo.expired = () => setConnection("expired", "This address is used up. Run `kubectl ifo ui` again: it prints a new one.");
function setConnection(status, message = "") {
  const was = ifo.connection.status;
  ifo.connection = { status, message };
  if (status === "connected") ifo.closeGap("connection", ifo.now());
  else if (was === "connected") ifo.openGap("connection", ifo.now(), message);
  if ($("connection").className === status && $("notice").textContent === message) return;
  const words = { connected: "live", connecting: "connecting …", disconnected: "not connected", expired: "session ended", file: "a file" };
  $("connection").className = status;
  setText($("connection"), words[status]);
  $("notice").hidden = !message;
  setText($("notice"), message);
  ifo.changed("data");
}
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
  const on = (name, apply) => stream.addEventListener(name, (event) => {
    apply(JSON.parse(event.data));
    ifo.changed("data");
  });
  // The page shows the old objects until the new ones are complete.
  let fresh = null;
  on("begin", (begin) => { fresh = { begin, items: [], warnings: [] }; if (!ifo.model.begin) start(fresh); });
  on("objects", ({ items }) => (fresh ? fresh.items.push(...items) : items.forEach((it) => ifo.apply("ADDED", it))));
  on("warning", ({ message }) => (fresh ? fresh.warnings : ifo.model.warnings).push(message));
  on("synced", () => { if (fresh) start(fresh); fresh = null; setConnection("connected"); });
  on("change", ({ type, object }) => (fresh ? fresh.items.push(object) : ifo.apply(type, object)));
  on("state", ({ connected, message }) => (connected ? setConnection("connected") : setConnection("disconnected", `The cluster does not answer: ${message || "no reason known"}`)));
  stream.addEventListener("error", () => {
    stream.close();
    setConnection("disconnected", "The connection to `kubectl ifo ui` is lost. The page shows what it last knew, and tries again.");
    setTimeout(open, 1000);
  });
}
function start({ begin, items, warnings }) {
  ifo.reset();
  const first = !ifo.model.begin;
  ifo.model.begin = begin;
  ifo.model.clockOffset = (Date.parse(begin.time) || Date.now()) - Date.now();
  ifo.model.warnings = warnings;
  items.forEach((it) => ifo.apply("ADDED", it));
  $("context").textContent = [begin.context, begin.namespace && `namespace ${begin.namespace}`].filter(Boolean).join(" · ");
  document.title = `${begin.context || "ifo"} – operations`;
  if (first && view.follow) ifo.showNow();
}
ifo.emptyText = () => {
  if (ifo.connection.status === "connecting") return "Reading operations …";
  if (ifo.connection.status === "expired") return "No data: the session has ended.";
  return "No operation is in flight, and none is recorded. New ones appear here as they start.";
};

// ---- The overview: is it idle, numbers by state, what needs attention first.
function drawOverview() {
  const connected = ["connected", "file"].includes(ifo.connection.status);
  const idle = ifo.idleOf(view, connected);
  const since = idle.since ? ` for ${ifo.duration(ifo.now() - idle.since)}` : "";
  $("idle").className = `card ${idle.status}`;
  setText($("idle-head"), { idle: "Idle", busy: "Not idle", unknown: "Unknown" }[idle.status]);
  const count = `${idle.count} operation${idle.count === 1 ? "" : "s"} in flight`;
  const busy = `${count} in ${idle.scope}${since && `, not idle${since}`}.`;
  setText($("idle-text"), { idle: `Nothing is in flight in ${idle.scope}${since}.`, busy, unknown: idle.why }[idle.status]);
  const warnings = [...new Set(ifo.model.warnings)];
  $("warnings").hidden = !warnings.length;
  ifo.keyed($("warnings-list"), warnings.map((it) => ({ key: it, signature: "", make: () => el("li", {}, it) })));
  setText($("warnings-head"), warnings.length === 1 ? "The view is not complete" : `The view is not complete, for ${warnings.length} reasons`);
  drawCounts();
  drawAttention();
  drawChoices();
}

const COUNTED = ["Failing", "Blocked", "Stalled", "Overdue", "Progressing", "Held", "Settling", "Failed", "Succeeded"];
const MARKS = { Overdue: ["late", "takes much longer than usual"], Stalled: ["flat", "its progress does not rise"] };
function drawCounts() {
  const fitting = ifo.model.pieces.filter((it) => ifo.fits(it, view, true) && (it.active || it.end >= view.from) && it.start <= view.to);
  ifo.keyed($("counts"), COUNTED.map((name) => {
    const count = fitting.filter((it) => ifo.hasState(it, name)).length;
    const pressed = view.states.includes(name);
    const [glyph, title] = MARKS[name] || [undefined, ifo.stateOf(name).meaning];
    const toggle = () => {
      view.states = pressed ? view.states.filter((it) => it !== name) : [...view.states, name];
      ifo.changed("data");
    };
    const make = () => el("button", { type: "button", class: count ? "chip" : "chip none", title, "aria-pressed": String(pressed), onclick: toggle },
      ifo.swatch(MARKS[name] ? "Unknown" : name, glyph), el("b", {}, String(count)), ` ${name}`);
    return { key: name, signature: `${count} ${view.states}`, make };
  }));
}

function drawAttention() {
  const bad = ifo.model.pieces.filter((it) => ifo.attentionRank(it) < 4 && ifo.fits(it, view, true));
  bad.sort((a, b) => ifo.attentionRank(a) - ifo.attentionRank(b) || a.start - b.start);
  const shown = bad.slice(0, 3);
  const rows = ifo.keyed($("attention"), shown.map((it) => ({ key: it.id, signature: ifo.stateText(it) + it.message, make: () => el("li", {},
    el("button", { type: "button", class: "trouble", title: it.message || null, onclick: () => ifo.pick(it.id) }, ifo.swatch(it.state),
      el("b", {}, it.root.subject.name || ""), el("span", { class: "what" }, `${it.root.operation} · ${ifo.stateText(it)}`),
      el("span", { class: "age" }), el("span", { class: "why" }, it.message || it.reason))) })));
  shown.forEach((it, at) => setText(rows[at].querySelector(".age"), ifo.duration(ifo.lengthOf(it))));
  setText($("attention-head"), bad.length ? `Needs attention: ${bad.length}` : "Nothing needs attention");
}

// The choices of the filters are what the operations have.
const CHOICES = { component: (it) => [it.component], namespace: (it) => it.members.map((own) => own.namespace || "-"), node: (it) => it.nodes };
function drawChoices() {
  for (const [name, valuesOf] of Object.entries(CHOICES)) {
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
  $("now").setAttribute("aria-pressed", String(view.follow));
  const label = `Timeline of ${chart.shown} pieces of work. The table "Tasks" has the same content.`;
  if ($("bars").getAttribute("aria-label") !== label) $("bars").setAttribute("aria-label", label);
}

// ---- The controls. A button names its action in data-do, and its key in data-key.
const ACTIONS = {
  zoomIn: () => ifo.zoom(0.6), zoomOut: () => ifo.zoom(1 / 0.6), now: () => ifo.showNow(), all: () => ifo.showAll(),
  earlier: () => ifo.pan(-chart.width / 4), later: () => ifo.pan(chart.width / 4),
  parts: () => { view.expanded = !view.expanded; view.toggled.clear(); showControls(); },
  clear: () => { Object.assign(view, { q: "", component: "", namespace: "", node: "", states: [], active: false }); showControls(); },
  close: () => ifo.select(""), help: () => $("help-dialog").showModal(), closeHelp: () => $("help-dialog").close(),
  svg: () => savePicture("svg"), png: () => savePicture("png"), tasks: () => $("tasks-head").querySelector("button").focus(),
  search: () => $("search").focus(), active: () => { view.active = !view.active; showControls(); },
  group: () => {
    const names = Object.keys(ifo.GROUPINGS);
    view.group = names[(names.indexOf(view.group) + 1) % names.length];
    showControls();
  },
};
const KEYS = { "/": "search", "=": "zoomIn", "[": "earlier", "]": "later", a: "active", g: "group" };
function startControls() {
  for (const button of document.querySelectorAll("[data-do]")) {
    button.addEventListener("click", ACTIONS[button.dataset.do]);
    if (button.dataset.key) KEYS[button.dataset.key] = button.dataset.do;
  }
  $("span").addEventListener("change", (event) => { ifo.showNow(Number(event.target.value) * 1000); event.target.value = ""; });
  const set = (element, type, apply) => element.addEventListener(type, () => { apply(); showControls(); });
  set($("search"), "input", () => { view.q = $("search").value; });
  set($("active"), "change", () => { view.active = $("active").checked; });
  for (const name of Object.keys(CHOICES)) set($(name), "change", () => { view[name] = $(name).value; });
  for (const input of document.querySelectorAll("[name=group]")) set(input, "change", () => { view.group = input.value; });
  $("timeline").addEventListener("keydown", onKey);
  document.addEventListener("keydown", (event) => event.key === "Escape" && ACTIONS.close());
  addEventListener("hashchange", () => { readAddress(); showControls(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { ifo.readTheme(); ifo.changed("draw"); });
  for (const [name, state] of Object.entries(ifo.STATES)) {
    if (name !== "Unknown") $("legend").append(el("li", {}, ifo.swatch(name), el("b", {}, name), ` ${state.meaning}`));
  }
}
function showControls() {
  if ($("search").value !== view.q) $("search").value = view.q;
  view.words = view.q.toLowerCase().split(/\s+/).filter(Boolean);
  $("active").checked = view.active;
  $("expand").setAttribute("aria-pressed", String(view.expanded));
  for (const input of document.querySelectorAll("[name=group]")) input.checked = input.value === view.group;
  ifo.changed("data");
  ifo.changed("rows");
}
// Single keys are shortcuts while the focus is in the timeline, so that speech input cannot hit them.
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
  const own = { ...ifo.frame(), hovered: null, current: "", title: `Operations: ${$("context").textContent}, ${ifo.dateTime(ifo.now())}`, subtitle };
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
if (embedded) ifo.frozen = Date.parse(embedded.begin.time) || Date.now();
const token = readAddress();
if (token) history.replaceState(null, "", location.pathname);
startControls();
ifo.startTimeline();
ifo.startTasks();
showControls();
if (embedded) {
  start({ begin: embedded.begin, items: embedded.items || [], warnings: embedded.warnings || [] });
  setConnection("file");
  if (!location.hash) ifo.showAll();
} else {
  open(token);
}
tick();
