"use strict";
// Elements, colours, patterns and glyphs, and the two pens of the timeline: one for a canvas (screen
// and PNG), one for SVG. Text from the cluster becomes a text node or is drawn, never markup.

// Creates an element. Strings among the children become text nodes.
ifo.el = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((it) => it !== null && it !== undefined && it !== false));
  return element;
};
ifo.$ = (id) => document.getElementById(id);
const { el, $ } = ifo;
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
  const states = {};
  for (const name of Object.keys(ifo.STATES)) {
    const key = name.toLowerCase();
    states[name] = { ink: value(`${key}-ink`), fill: value(`${key}-fill`) };
  }
  ifo.theme = { states, font: value("font") };
  for (const name of ["text", "muted", "surface", "subtle", "line", "grid", "accent", "page"]) ifo.theme[name] = value(name);
};

// The swatch of a state, as an SVG element: colour, pattern and glyph.
ifo.swatch = (state, glyph = ifo.stateOf(state).glyph) => {
  const svg = svgElement("svg", { viewBox: "0 0 16 16", class: `swatch state-${state.toLowerCase()}`, "aria-hidden": "true" });
  svg.append(svgElement("rect", { x: 0.75, y: 0.75, width: 14.5, height: 14.5, rx: 4 }));
  svg.append(svgElement("path", { d: ifo.GLYPHS[glyph], transform: "translate(3 3)" }));
  return svg;
};
function svgElement(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const paths = new Map();
const pathFor = (d) => {
  if (!paths.has(d)) paths.set(d, new Path2D(d));
  return paths.get(d);
};

// Draws on a canvas. `scale` is the number of device pixels for each CSS pixel.
ifo.CanvasPen = class {
  constructor(canvas, width, height, scale) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    this.context = canvas.getContext("2d");
    this.scale = scale;
    this.patterns = new Map();
    this.widths = new Map();
    this.context.scale(scale, scale);
    this.context.textBaseline = "middle";
  }

  rect(x, y, width, height, { fill, stroke, pattern, ink, radius = 0, alpha = 1, dash, line = 1 }) {
    const { context } = this;
    context.globalAlpha = alpha;
    context.beginPath();
    if (radius && width > 2 * radius) context.roundRect(x, y, width, height, radius);
    else context.rect(x, y, width, height);
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    if (pattern) {
      context.fillStyle = this.pattern(pattern, ink);
      context.fill();
    }
    if (stroke) {
      context.strokeStyle = stroke;
      context.lineWidth = line;
      context.setLineDash(dash || []);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  pattern(name, ink) {
    const key = name + ink;
    if (!this.patterns.has(key)) {
      const tile = document.createElement("canvas");
      tile.width = 8 * this.scale;
      tile.height = 8 * this.scale;
      const context = tile.getContext("2d");
      context.scale(this.scale, this.scale);
      context.strokeStyle = ink;
      context.globalAlpha = 0.34;
      context.lineWidth = 1.1;
      context.stroke(pathFor(ifo.PATTERNS[name]));
      const pattern = this.context.createPattern(tile, "repeat");
      pattern.setTransform(new DOMMatrix().scale(1 / this.scale));
      this.patterns.set(key, pattern);
    }
    return this.patterns.get(key);
  }

  line(x1, y1, x2, y2, color, width = 1, dash = []) {
    const { context } = this;
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    context.strokeStyle = color;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.stroke();
  }

  glyph(name, x, y, color, width = 1.5) {
    const { context } = this;
    context.translate(x, y);
    context.strokeStyle = color;
    context.lineWidth = width;
    context.lineCap = "round";
    context.setLineDash([]);
    context.stroke(pathFor(ifo.GLYPHS[name]));
    context.lineCap = "butt";
    context.translate(-x, -y);
  }

  measure(text, size, weight = 400) {
    const key = `${weight} ${size} ${text}`;
    if (!this.widths.has(key)) {
      if (this.widths.size > 20000) this.widths.clear();
      this.font(size, weight);
      this.widths.set(key, this.context.measureText(text).width);
    }
    return this.widths.get(key);
  }

  font(size, weight) {
    const font = `${weight} ${size}px ${ifo.theme.font}`;
    if (this.lastFont !== font) {
      this.context.font = font;
      this.lastFont = font;
    }
  }

  text(text, x, y, { color, size = 12, weight = 400, align = "left", max = Infinity }) {
    const shown = this.fit(text, size, weight, max);
    if (!shown) return;
    this.font(size, weight);
    this.context.textAlign = align;
    this.context.fillStyle = color;
    this.context.fillText(shown, x, y);
  }

  // Returns the text, cut with "…" to `max` pixels.
  fit(text, size, weight, max) {
    const width = this.measure(text, size, weight);
    if (width <= max) return text;
    const keep = Math.floor((text.length * (max - 10)) / width);
    return keep >= 3 ? `${text.slice(0, keep)}…` : "";
  }

  // Draws with the origin at (x, y), and nothing outside of width and height.
  inside(x, y, width, height, draw) {
    this.context.save();
    this.lastFont = null;
    this.context.translate(x, y);
    this.context.beginPath();
    this.context.rect(0, 0, width, height);
    this.context.clip();
    draw();
    this.context.restore();
    this.lastFont = null;
  }
};

// Draws into an SVG document with the same methods. XMLSerializer escapes all text.
ifo.SvgPen = class {
  constructor(width, height) {
    this.ruler = new ifo.CanvasPen(document.createElement("canvas"), 1, 1, 1);
    this.defs = svgElement("defs", {});
    this.root = svgElement("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` }, this.defs);
    this.parent = this.root;
    this.count = 0;
  }

  rect(x, y, width, height, { fill, stroke, pattern, ink, radius = 0, alpha = 1, dash, line = 1 }) {
    const shape = { x, y, width: Math.max(width, 0), height, rx: radius, opacity: alpha };
    const add = (own) => this.parent.append(svgElement("rect", { ...shape, ...own }));
    add({ fill: fill || "none", stroke: stroke || "none", "stroke-width": line, "stroke-dasharray": (dash || []).join(" ") });
    if (pattern) add({ fill: `url(#${this.pattern(pattern, ink)})` });
  }

  pattern(name, ink) {
    const id = `${name}-${ink.replace(/[^0-9a-z]/gi, "")}`;
    if (!this.defs.querySelector(`#${id}`)) {
      const path = svgElement("path", { d: ifo.PATTERNS[name], stroke: ink, "stroke-opacity": 0.34, "stroke-width": 1.1, fill: "none" });
      this.defs.append(svgElement("pattern", { id, width: 8, height: 8, patternUnits: "userSpaceOnUse" }, path));
    }
    return id;
  }

  line(x1, y1, x2, y2, color, width = 1, dash = []) {
    this.parent.append(svgElement("line", { x1, y1, x2, y2, stroke: color, "stroke-width": width, "stroke-dasharray": dash.join(" ") }));
  }

  glyph(name, x, y, color, width = 1.5) {
    const attributes = { d: ifo.GLYPHS[name], transform: `translate(${x} ${y})`, fill: "none", stroke: color, "stroke-width": width };
    this.parent.append(svgElement("path", { ...attributes, "stroke-linecap": "round" }));
  }

  measure(text, size, weight) {
    return this.ruler.measure(text, size, weight);
  }

  text(text, x, y, { color, size = 12, weight = 400, align = "left", max = Infinity }) {
    const shown = this.ruler.fit(text, size, weight, max);
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    const attributes = { x, y, fill: color, "font-size": size, "font-weight": weight, "text-anchor": anchor };
    const font = { "font-family": ifo.theme.font, "dominant-baseline": "central" };
    const clean = (it) => it.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, " ");
    if (shown) this.parent.append(svgElement("text", { ...attributes, ...font }, clean(shown)));
  }

  inside(x, y, width, height, draw) {
    this.count += 1;
    const id = `clip-${this.count}`;
    this.defs.append(svgElement("clipPath", { id }, svgElement("rect", { width, height })));
    const outer = this.parent;
    this.parent = svgElement("g", { transform: `translate(${x} ${y})`, "clip-path": `url(#${id})` });
    outer.append(this.parent);
    draw();
    this.parent = outer;
  }
};
