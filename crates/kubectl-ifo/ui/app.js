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
      ifo.firstKnown = ifo.model.pieces.reduce((least, it) => Math.min(least, it.start), ifo.now());
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
  const words = { connected: "live", connecting: "connecting …", disconnected: "not connected", expired: "session ended", file: "a file" };
  $("connection").className = status;
  if ($("connection").textContent !== words[status]) $("connection").textContent = words[status];
  $("notice").hidden = !message;
  if ($("notice").textContent !== message) $("notice").textContent = message;
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
const COUNTED = ["Failing", "Blocked", "Progressing", "Held", "Settling", "Overdue", "Stalled", "Failed", "Succeeded"];
function drawOverview() {
  const connected = ["connected", "file"].includes(ifo.connection.status);
  const idle = ifo.idleOf(view, connected);
  const headline = { idle: "Idle", busy: `${idle.count} in flight`, unknown: "Unknown" }[idle.status];
  const since = idle.since && idle.status !== "unknown" ? ` for ${ifo.duration(ifo.now() - idle.since)}` : "";
  const text = { idle: `Nothing is in flight in ${idle.scope}${since}.`, busy: `Not idle: ${idle.scope} has work${since}.`, unknown: idle.why }[idle.status];
  const warnings = ifo.model.warnings;
  $("idle").className = `card ${warnings.length && idle.status === "idle" ? "unknown" : idle.status}`;
  setText($("idle-head"), warnings.length && idle.status === "idle" ? "Unknown" : headline);
  setText($("idle-text"), text);
  const list = [...new Set(warnings)];
  $("warnings").hidden = !list.length;
  if ($("warnings-list").children.length !== list.length) $("warnings-list").replaceChildren(...list.map((it) => el("li", {}, it)));
  setText($("warnings-head"), list.length === 1 ? list[0] : `${list.length} things cannot be read, so operations may be missing`);
  drawCounts();
  drawAttention();
  drawChoices();
}
const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };

function drawCounts() {
  const fitting = ifo.model.pieces.filter((it) => ifo.fits(it, view, true) && (it.active || it.end >= view.from));
  const box = $("counts");
  for (const [at, name] of COUNTED.entries()) {
    const count = fitting.filter((it) => ifo.hasState(it, name)).length;
    let chip = box.children[at];
    if (!chip) {
      const glyph = name === "Overdue" ? "late" : name === "Stalled" ? "flat" : undefined;
      const toggle = () => {
        view.states = view.states.includes(name) ? view.states.filter((it) => it !== name) : [...view.states, name];
        ifo.changed("data");
      };
      const title = glyph ? (name === "Overdue" ? "takes much longer than usual" : "its progress does not rise") : ifo.stateOf(name).meaning;
      chip = el("button", { type: "button", class: "chip", title, onclick: toggle }, ifo.swatch(glyph ? "Unknown" : name, glyph), el("b"), ` ${name}`);
      box.append(chip);
    }
    chip.setAttribute("aria-pressed", String(view.states.includes(name)));
    chip.classList.toggle("none", count === 0);
    setText(chip.querySelector("b"), String(count));
  }
}

function drawAttention() {
  const bad = ifo.model.pieces.filter((it) => ifo.attentionRank(it) < 4 && ifo.fits(it, view, true));
  bad.sort((a, b) => ifo.attentionRank(a) - ifo.attentionRank(b) || a.start - b.start);
  const shown = bad.slice(0, 3);
  const signature = JSON.stringify([bad.length, shown.map((it) => [it.id, ifo.stateText(it), it.message])]);
  if (drawAttention.signature === signature) {
    shown.forEach((it, at) => setText($("attention").children[at].querySelector(".age"), ifo.duration(ifo.lengthOf(it))));
    return;
  }
  drawAttention.signature = signature;
  const items = shown.map((it) => el("li", {}, el("button", { type: "button", class: "trouble", title: it.message || null, onclick: () => ifo.pick(it.id) },
    ifo.swatch(it.state), el("b", {}, it.root.subject.name), el("span", { class: "what" }, `${it.root.operation} · ${ifo.stateText(it)}`),
    el("span", { class: "age" }, ifo.duration(ifo.lengthOf(it))), el("span", { class: "why" }, it.message || it.reason))));
  $("attention").replaceChildren(...items);
  setText($("attention-head"), bad.length ? `Needs attention: ${bad.length}` : "Nothing needs attention");
}

// The choices of the filters are what the operations have.
const CHOICES = { component: (it) => [it.component], namespace: (it) => it.members.map((own) => own.namespace || "-"), node: (it) => it.nodes };
function drawChoices() {
  for (const [name, valuesOf] of Object.entries(CHOICES)) {
    const values = [...new Set([view[name], ...ifo.model.pieces.flatMap(valuesOf)].filter(Boolean))].sort();
    const signature = values.join("\n");
    const select = $(name);
    if (select.dataset.signature !== signature) {
      select.dataset.signature = signature;
      const all = el("option", { value: "" }, `every ${name}`);
      select.replaceChildren(all, ...values.map((it) => el("option", { value: it }, it === "-" ? "cluster-scoped" : it)));
    }
    if (select.value !== view[name]) select.value = view[name];
  }
  const filters = view.q || view.component || view.namespace || view.node || view.states.length || view.active;
  $("clear").hidden = !filters;
}
function drawRange() {
  const span = view.to - view.from;
  setText($("range"), `${ifo.dateTime(view.from)} – ${view.follow && !ifo.frozen ? "now" : ifo.dateTime(view.to)} · ${ifo.duration(span)}`);
  $("now").setAttribute("aria-pressed", String(view.follow));
  const active = ifo.model.pieces.filter((it) => it.active).length;
  const label = `Timeline of ${chart.shown} pieces of work, ${active} in flight. The table "Tasks" has the same content.`;
  if ($("bars").getAttribute("aria-label") !== label) $("bars").setAttribute("aria-label", label);
}

// ---- The controls.
function startControls() {
  const on = (id, type, run) => $(id).addEventListener(type, run);
  const zooms = { "zoom-in": () => ifo.zoom(0.6), "zoom-out": () => ifo.zoom(1 / 0.6), now: () => ifo.showNow(), all: () => ifo.showAll() };
  for (const [id, run] of Object.entries(zooms)) on(id, "click", run);
  on("span", "change", (event) => { if (event.target.value) ifo.showNow(Number(event.target.value) * 1000); event.target.value = ""; });
  on("search", "input", (event) => setQuery(event.target.value));
  for (const name of Object.keys(CHOICES)) on(name, "change", (event) => { view[name] = event.target.value; ifo.changed("data"); });
  on("active", "change", (event) => { view.active = event.target.checked; ifo.changed("data"); });
  on("expand", "click", () => { view.expanded = !view.expanded; view.toggled.clear(); showControls(); ifo.changed("rows"); });
  on("clear", "click", () => {
    Object.assign(view, { component: "", namespace: "", node: "", states: [], active: false });
    setQuery("");
    showControls();
  });
  for (const input of document.querySelectorAll("[name=group]")) {
    input.addEventListener("change", () => { view.group = input.value; view.closed.clear(); ifo.changed("rows"); });
  }
  on("close", "click", () => ifo.select(""));
  on("help", "click", () => $("help-dialog").showModal());
  on("help-close", "click", () => $("help-dialog").close());
  on("save-svg", "click", () => savePicture("svg"));
  on("save-png", "click", () => savePicture("png"));
  on("skip", "click", () => $("tasks-head").querySelector("button").focus());
  on("keys", "change", (event) => localStorage.setItem("ifo-keys", event.target.checked ? "on" : "off"));
  $("keys").checked = storedKeys() !== "off";
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", () => { readAddress(); showControls(); ifo.changed("data"); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { ifo.readTheme(); ifo.changed("draw"); });
  for (const [name, state] of Object.entries(ifo.STATES)) {
    if (name !== "Unknown") $("legend").append(el("li", {}, ifo.swatch(name), el("b", {}, name), ` ${state.meaning}`));
  }
}
function storedKeys() {
  // A page that was opened as a file may have no storage.
  try { return localStorage.getItem("ifo-keys"); } catch { return null; }
}
function setQuery(text) {
  view.q = text.trim();
  view.words = view.q.toLowerCase().split(/\s+/).filter(Boolean);
  ifo.changed("data");
}
function showControls() {
  $("search").value = view.q;
  setQuery(view.q);
  $("active").checked = view.active;
  $("expand").setAttribute("aria-pressed", String(view.expanded));
  for (const input of document.querySelectorAll("[name=group]")) input.checked = input.value === view.group;
}
const KEYS = {
  "+": () => ifo.zoom(0.6), "=": () => ifo.zoom(0.6), "-": () => ifo.zoom(1 / 0.6), n: () => ifo.showNow(), 0: () => ifo.showAll(),
  "[": () => ifo.pan(-chart.width / 4), "]": () => ifo.pan(chart.width / 4), "/": () => $("search").focus(), e: () => $("expand").click(),
  a: () => $("active").click(), g: () => {
    const names = Object.keys(ifo.GROUPINGS);
    view.group = names[(names.indexOf(view.group) + 1) % names.length];
    showControls();
  }, "?": () => $("help-dialog").showModal(),
};
function onKey(event) {
  if (event.key === "Escape" && !$("help-dialog").open) return event.target === $("search") && view.q ? (setQuery(""), showControls()) : ifo.select("");
  const typing = event.target.closest("input:not([type=radio]):not([type=checkbox]), select, textarea, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !$("keys").checked) return undefined;
  if (event.shiftKey && event.key.startsWith("Arrow")) {
    if (event.key === "ArrowLeft") ifo.pan(-80);
    if (event.key === "ArrowRight") ifo.pan(80);
    return undefined;
  }
  const run = KEYS[event.key];
  if (!run) return undefined;
  event.preventDefault();
  return run();
}

// ---- Pictures of the current view.
function savePicture(type) {
  const tree = $("tree").getBoundingClientRect().width;
  const idle = `${$("idle-head").textContent} · ${$("idle-text").textContent}`;
  const own = { ...ifo.frame(), hovered: null, current: "", title: `Operations in flight: ${$("context").textContent}`, subtitle: `${$("range").textContent} · at ${ifo.dateTime(ifo.now())} · ${idle}` };
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
