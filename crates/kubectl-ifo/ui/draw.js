"use strict";
// Elements, colours, patterns and glyphs, and the two pens of the timeline: one for a canvas (screen
// and PNG), one for SVG. Text from the cluster becomes a text node or is drawn, never markup.

// Fills an element. Strings among the children become text nodes.
const filled = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) on(element, name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((it) => it !== null && it !== undefined && it !== false));
  return element;
};
ifo.el = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const svgElement = (tag, attributes, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
ifo.$ = (id) => document.getElementById(id);
const { el, $ } = ifo;
// Calls the function on each of the events, which are separated by spaces.
const on = (element, types, apply, options) => types.split(" ").forEach((it) => element.addEventListener(it, apply, options));
const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };

// Shows a list of {key, signature, make} in `parent`. Elements whose signature is the same stay, so
// that they keep focus, hover and selection. Returns the elements.
ifo.keyed = (parent, items) => {
  const before = parent.keyed || new Map();
  const after = new Map();
  for (const { key, signature, make } of items) {
    const old = before.get(key);
    const entry = old && old.signature === signature ? old : { signature, element: make() };
    if (old && old !== entry && old.element.contains(document.activeElement)) entry.focus = true;
    after.set(key, entry);
  }
  parent.keyed = after;
  const entries = [...after.values()];
  const kept = new Set(entries.map((it) => it.element));
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  entries.forEach((entry, at) => {
    if (parent.children[at] !== entry.element) parent.insertBefore(entry.element, parent.children[at] || null);
    if (entry.focus) (entry.element.querySelector("button") || entry.element).focus();
    entry.focus = false;
  });
  return entries.map((it) => it.element);
};

// Patterns: strokes in a tile of 8 x 8. Together with the glyph they tell states without colour.
ifo.PATTERNS = {
  stripes: "M-2 2L2 -2M0 8L8 0M6 10L10 6",
  cross: "M-2 2L2 -2M0 8L8 0M6 10L10 6M-2 6L2 10M0 0L8 8M6 -2L10 2",
  bars: "M2 0V8M6 0V8",
  dots: "M1.5 2H2.5M5.5 6H6.5",
  lines: "M0 4H8",
};
// Glyphs: strokes in a square of 10 x 10.
ifo.GLYPHS = {
  bang: "M5 1V6M5 8.4V8.6",
  wait: "M2 1H8L2 9H8Z",
  run: "M3 1.5L8 5L3 8.5Z",
  pause: "M3.2 1.5V8.5M6.8 1.5V8.5",
  settle: "M1 3C3 1 4 5 6 3S9 3 9 3M1 7C3 5 4 9 6 7S9 7 9 7",
  fail: "M2 2L8 8M8 2L2 8",
  check: "M1.5 5.5L4 8L8.5 2",
  ring: "M5 1.5A3.5 3.5 0 1 1 4.99 1.5Z",
  skip: "M1.5 2L4.5 5L1.5 8M5.5 2L8.5 5L5.5 8",
  late: "M5 1A4 4 0 1 1 4.99 1ZM5 2.8V5L6.8 6.4",
  flat: "M1 5H9M6 2L9 5L6 8",
};

// The colours of the style sheet, read again when the colour scheme changes.
ifo.readTheme = () => {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  const coloursOf = (name) => ({ ink: value(`${name}-ink`), fill: value(`${name}-fill`) });
  const states = Object.keys(ifo.STATES).map((name) => [name, coloursOf(name.toLowerCase())]);
  ifo.theme = { states: Object.fromEntries(states) };
  for (const name of ["font", "text", "muted", "surface", "subtle", "line", "grid", "accent", "page"]) ifo.theme[name] = value(name);
};

// The swatch of a state, as an SVG element: colour, pattern and glyph.
ifo.swatch = (state, glyph = ifo.stateOf(state).glyph) => {
  const svg = svgElement("svg", { viewBox: "0 0 16 16", class: `swatch state-${state.toLowerCase()}`, "aria-hidden": "true" });
  svg.append(svgElement("rect", { x: 0.75, y: 0.75, width: 14.5, height: 14.5, rx: 4 }));
  svg.append(svgElement("path", { d: ifo.GLYPHS[glyph], transform: "translate(3 3)" }));
  return svg;
};
// What both pens have in common. A pen has the methods rect, stroke, write and inside.
class Pen {
  line(x1, y1, x2, y2, color, width = 1, dash = []) {
    this.stroke(`M${x1} ${y1}L${x2} ${y2}`, { color, width, dash });
  }

  glyph(name, x, y, color) {
    this.stroke(ifo.GLYPHS[name], { x, y, color, width: 1.5, cap: "round" });
  }

  // Writes a text, cut with "…" to `max` pixels.
  text(text, x, y, { color, size = 12, weight = 400, align = "left", max = Infinity }) {
    const width = this.measure(text, size, weight);
    const keep = Math.floor((text.length * (max - 10)) / width);
    if (width > max && keep < 3) return;
    this.write(width > max ? `${text.slice(0, keep)}…` : text, x, y, { color, size, weight, align });
  }

  measure(text, size = 12, weight = 400) {
    const key = `${weight} ${size} ${text}`;
    if (!Pen.widths.has(key)) {
      if (Pen.widths.size > 20000) Pen.widths.clear();
      Pen.ruler.font = fontOf(size, weight);
      Pen.widths.set(key, Pen.ruler.measureText(text).width);
    }
    return Pen.widths.get(key);
  }
}
Pen.ruler = document.createElement("canvas").getContext("2d");
Pen.widths = new Map();
const fontOf = (size, weight) => `${weight} ${size}px ${ifo.theme.font}`;

const paths = new Map();
const pathFor = (d) => {
  if (paths.size > 2000) paths.clear();
  if (!paths.has(d)) paths.set(d, new Path2D(d));
  return paths.get(d);
};

// Draws on a canvas. `scale` is the number of device pixels for each CSS pixel.
ifo.CanvasPen = class extends Pen {
  constructor(canvas, width, height, scale) {
    super();
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    this.context = canvas.getContext("2d");
    this.scale = scale;
    this.patterns = new Map();
    this.context.scale(scale, scale);
    this.context.textBaseline = "middle";
  }

  rect(x, y, width, height, { fill, stroke, pattern, ink, radius = 0, alpha = 1, dash = [], line = 1 }) {
    const { context } = this;
    context.globalAlpha = alpha;
    context.beginPath();
    if (radius && width > 2 * radius) context.roundRect(x, y, width, height, radius);
    else context.rect(x, y, width, height);
    for (const style of [fill, pattern && this.pattern(pattern, ink)]) {
      if (!style) continue;
      context.fillStyle = style;
      context.fill();
    }
    if (stroke) {
      Object.assign(context, { strokeStyle: stroke, lineWidth: line, lineCap: "butt" });
      context.setLineDash(dash);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  pattern(name, ink) {
    const key = name + ink;
    if (!this.patterns.has(key)) {
      const tile = new ifo.CanvasPen(document.createElement("canvas"), 8, 8, this.scale);
      tile.context.globalAlpha = 0.34;
      tile.stroke(ifo.PATTERNS[name], { color: ink, width: 1.1 });
      const pattern = this.context.createPattern(tile.context.canvas, "repeat");
      pattern.setTransform(new DOMMatrix().scale(1 / this.scale));
      this.patterns.set(key, pattern);
    }
    return this.patterns.get(key);
  }

  stroke(d, { x = 0, y = 0, color, width, dash = [], cap = "butt" }) {
    const { context } = this;
    Object.assign(context, { strokeStyle: color, lineWidth: width, lineCap: cap });
    context.setLineDash(dash);
    context.translate(x, y);
    context.stroke(pathFor(d));
    context.translate(-x, -y);
  }

  write(text, x, y, { color, size, weight, align }) {
    const { context } = this;
    const font = fontOf(size, weight);
    // A change of the font is slow, also to an equal one.
    if (this.font !== font) context.font = font;
    this.font = font;
    context.textAlign = align;
    context.fillStyle = color;
    context.fillText(text, x, y);
  }

  // Draws with the origin at (x, y), and nothing outside of width and height.
  inside(x, y, width, height, draw) {
    const { context } = this;
    context.save();
    context.translate(x, y);
    context.beginPath();
    context.rect(0, 0, width, height);
    context.clip();
    draw();
    context.restore();
    this.font = null;
  }
};

// Draws into an SVG document. XMLSerializer escapes all text.
ifo.SvgPen = class extends Pen {
  constructor(width, height) {
    super();
    this.defs = svgElement("defs", {});
    this.root = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, this.defs);
    this.parent = this.root;
  }

  add(tag, attributes) {
    this.parent.append(svgElement(tag, attributes));
  }

  rect(x, y, width, height, { fill = "none", stroke = "none", pattern, ink, radius = 0, alpha = 1, dash = [], line = 1 }) {
    const shape = { x, y, width: Math.max(width, 0), height, rx: width > 2 * radius ? radius : 0, opacity: alpha };
    this.add("rect", { ...shape, fill, stroke, "stroke-width": line, "stroke-dasharray": dash.join(" ") });
    if (pattern) this.add("rect", { ...shape, fill: `url(#${this.pattern(pattern, ink)})` });
  }

  pattern(name, ink) {
    const id = `${name}-${ink.replace(/[^0-9a-z]/gi, "")}`;
    if (!this.defs.querySelector(`#${id}`)) {
      const path = svgElement("path", { d: ifo.PATTERNS[name], stroke: ink, "stroke-opacity": 0.34, "stroke-width": 1.1, fill: "none" });
      this.defs.append(svgElement("pattern", { id, width: 8, height: 8, patternUnits: "userSpaceOnUse" }, path));
    }
    return id;
  }

  stroke(d, { x = 0, y = 0, color, width, dash = [], cap = "butt" }) {
    const line = { stroke: color, "stroke-width": width, "stroke-dasharray": dash.join(" "), "stroke-linecap": cap };
    this.add("path", { d, transform: `translate(${x} ${y})`, fill: "none", ...line });
  }

  write(text, x, y, { color, size, weight, align }) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    const font = { "font-size": size, "font-weight": weight, "font-family": ifo.theme.font };
    this.add("text", { x, y, fill: color, ...font, "text-anchor": anchor, "dominant-baseline": "central" });
    // XML has no other control characters.
    this.parent.lastChild.textContent = text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, " ");
  }

  inside(x, y, width, height, draw) {
    const id = `clip-${this.defs.childElementCount}`;
    this.defs.append(svgElement("clipPath", { id }, svgElement("rect", { width, height })));
    const outer = this.parent;
    this.parent = svgElement("g", { transform: `translate(${x} ${y})`, "clip-path": `url(#${id})` });
    outer.append(this.parent);
    draw();
    this.parent = outer;
  }
};
