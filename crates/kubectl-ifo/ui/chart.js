"use strict";
// Draws the timeline with a pen: axis, gaps, bars and their marks. The state of the page comes in
// as `frame`: {from, to, width, height, rows, scroll, selected, hovered, now, seen}. `seen` is the time
// until which the page has seen the cluster.

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600];

const xOf = (frame, ms) => ((ms - frame.from) * frame.width) / (frame.to - frame.from);
const timeAt = (frame, x) => frame.from + ((frame.to - frame.from) * x) / frame.width;
// An upright line of one pixel is sharp only in the middle of a pixel.
const sharp = (x) => Math.round(x) + 0.5;

// Returns the times of the ticks of the axis, at least `gap` pixels apart, aligned to local time.
function ticksOf(frame, gap) {
  const perPixel = (frame.to - frame.from) / frame.width;
  const step = (STEPS.find((it) => it * 1000 >= gap * perPixel) || STEPS[STEPS.length - 1]) * 1000;
  const offset = new Date(frame.from).getTimezoneOffset() * 60000;
  const ticks = [];
  for (let at = Math.ceil((frame.from - offset) / step) * step + offset; at <= frame.to; at += step) ticks.push(at);
  return { ticks, step };
}

ifo.drawAxis = (pen, frame, height) => {
  const { theme } = ifo;
  const { ticks, step } = ticksOf(frame, 90);
  pen.rect(0, 0, frame.width, height, { fill: theme.surface });
  const now = sharp(xOf(frame, frame.now));
  for (const at of ticks) {
    const x = sharp(xOf(frame, at));
    pen.line(x, height - 5, x, height, theme.line);
    const isDay = step >= 86400000 || ifo.minutes(at) === "00:00";
    const label = isDay ? ifo.day(at) : step >= 60000 ? ifo.minutes(at) : ifo.clock(at);
    if (Math.abs(x - now) < 52 || x < 24 || x > frame.width - 24) continue;
    pen.text(label, x, height - 15, { color: isDay ? theme.text : theme.muted, weight: isDay ? 600 : 400, align: "center" });
  }
  if (now >= 0 && now <= frame.width) {
    pen.rect(now - 18, height - 24, 36, 18, { fill: theme.accent, radius: 9 });
    pen.text(frame.frozen ? "end" : "now", now, height - 15, { color: theme.surface, size: 11, weight: 600, align: "center" });
  }
  pen.line(0, height - 0.5, frame.width, height - 0.5, theme.line);
};

ifo.drawChart = (pen, frame) => {
  const { theme } = ifo;
  pen.rect(0, 0, frame.width, frame.height, { fill: theme.surface });
  const visible = ifo.visibleRows(frame);
  for (const row of visible) {
    const y = row.y - frame.scroll;
    if (row.kind === "group") pen.rect(0, y, frame.width, row.height, { fill: theme.subtle });
    if (row.id === frame.current) pen.rect(0, y, frame.width, row.height, { fill: theme.accent, alpha: 0.08 });
  }
  for (const at of ticksOf(frame, 90).ticks) {
    const x = sharp(xOf(frame, at));
    pen.line(x, 0, x, frame.height, theme.grid);
  }
  const gaps = frame.gaps.map((it) => [it.label, edgesOf(frame, it)]).filter((it) => it[1]);
  for (const [, edges] of gaps) drawGap(pen, frame, edges);
  const now = sharp(xOf(frame, frame.now));
  if (now >= 0 && now <= frame.width) pen.line(now, 0, now, frame.height, theme.accent, 1.5);
  for (const row of visible) drawRow(pen, frame, row, row.y - frame.scroll);
  for (const [label, edges] of gaps) drawGapLabel(pen, frame, label, edges);
};

// The edges of a gap, if it is visible.
function edgesOf(frame, gap) {
  const left = Math.max(xOf(frame, gap.from), -1);
  const right = Math.min(xOf(frame, gap.to || frame.now), frame.width + 1);
  return right > 0 && left < frame.width ? { left, right: Math.max(right, left + 2) } : null;
}

function drawGap(pen, frame, { left, right }) {
  const { theme } = ifo;
  pen.rect(left, -1, right - left, frame.height + 2, { fill: theme.subtle, pattern: "stripes", ink: theme.muted, alpha: 0.55 });
  for (const x of [left, right]) pen.line(x, 0, x, frame.height, theme.muted, 1, [3, 3]);
}

function drawGapLabel(pen, frame, label, { left, right }) {
  const { theme } = ifo;
  const room = right - left - 20;
  if (room < 40 || frame.height < 60) return;
  const [middle, width] = [(left + right) / 2, Math.min(pen.measure(label), room) + 16];
  pen.rect(middle - width / 2, frame.height - 34, width, 22, { fill: theme.surface, stroke: theme.line, radius: 6 });
  pen.text(label, middle, frame.height - 23, { color: theme.text, align: "center", max: room });
}

function drawRow(pen, frame, row, y) {
  pen.line(0, y + row.height - 0.5, frame.width, y + row.height - 0.5, ifo.theme.grid);
  if (row.kind === "group") {
    if (!row.open) drawSummary(pen, frame, row, y);
    return;
  }
  const height = ifo.ROW[row.kind];
  row.tracks.forEach((track, number) => drawTrack(pen, frame, track, y + ifo.ROW.pad / 2 + number * height, height));
}

// A closed group shows all its pieces as thin lines.
function drawSummary(pen, frame, row, y) {
  let last = -1;
  for (const piece of row.pieces) {
    const x1 = Math.max(xOf(frame, piece.start), 0);
    const x2 = Math.min(xOf(frame, Math.min(piece.end, frame.seen)), frame.width);
    if (x2 < 0 || x1 > frame.width || (x2 - x1 < 1 && Math.round(x1) === last)) continue;
    last = Math.round(x1);
    const { ink } = ifo.theme.states[piece.state] || ifo.theme.states.Unknown;
    pen.rect(x1, y + row.height / 2 - 3, Math.max(x2 - x1, 2), 6, { fill: ink, alpha: 0.45, radius: 2 });
  }
}

function drawTrack(pen, frame, track, y, height) {
  let lastPixel = -1;
  for (let at = ifo.barFrom(track, frame.from); at < track.length && track[at].operation.start <= frame.to; at += 1) {
    const { operation } = track[at];
    const start = xOf(frame, operation.start);
    const end = xOf(frame, operation.active ? frame.seen : operation.end);
    // Of several bars in one pixel, only the first is drawn.
    if (end - start < 1.5 && Math.round(start) === lastPixel) continue;
    lastPixel = Math.round(start);
    // The label of a completed operation does not reach into the future.
    const next = track[at + 1] ? xOf(frame, track[at + 1].operation.start) : Infinity;
    const limit = Math.min(next - 6, frame.width, operation.active ? Infinity : Math.max(xOf(frame, frame.now), end) - 5);
    drawBar(pen, frame, track[at], { start, end, y, height, limit });
  }
}

function drawBar(pen, frame, bar, { start, end, y, height, limit }) {
  const { theme } = ifo;
  const { piece, operation } = bar;
  const state = ifo.stateOf(operation.state);
  const colors = theme.states[operation.state] || theme.states.Unknown;
  const x1 = Math.max(start, -12);
  const width = Math.max(Math.min(end, frame.width + 12) - x1, 3);
  const barHeight = height - 6;
  const top = y + 3;
  const own = frame.selected === piece.uid;
  const marked = own || frame.hovered === operation.uid;
  const style = width < 5 ? { fill: colors.ink } : { fill: colors.fill, pattern: state.pattern, ink: colors.ink, stroke: colors.ink };
  pen.rect(x1, top, width, barHeight, {
    ...style, radius: 4, line: operation.active ? 1.5 : 1,
    dash: operation.startIsEstimated ? [4, 3] : [], alpha: state.done && !own ? 0.92 : 1,
  });
  if (marked) {
    pen.rect(x1 - 2, top - 2, width + 4, barHeight + 4, { stroke: own ? theme.accent : theme.muted, radius: 5, line: 2 });
  }
  if (operation.active) drawProgress(pen, operation, colors, x1, top, width, barHeight);
  const hasMarks = (operation.active || marked) && height === ifo.ROW.lane;
  const after = hasMarks ? drawMarks(pen, frame, operation, colors, end, top, barHeight) : x1 + width;
  const size = height === ifo.ROW.lane ? 12 : 11;
  drawLabel(pen, operation, state, colors, { left: Math.max(x1, 0) + 5, right: Math.min(x1 + width, frame.width) - 4, middle: top + barHeight / 2, after: after + 5, limit, size });
}

function drawProgress(pen, operation, colors, x, top, width, height) {
  if (operation.progress === null || width < 12) return;
  pen.rect(x + 2, top + height - 4, (width - 4) * 0.01 * operation.progress, 2.5, { fill: colors.ink });
}

// The expected end, the usual duration and the limit. Returns the right edge of the marks.
function drawMarks(pen, frame, operation, colors, end, top, height) {
  const { theme } = ifo;
  const middle = top + height / 2;
  let edge = end;
  if (operation.active && operation.eta > frame.now) {
    const x = Math.min(xOf(frame, operation.eta), frame.width + 20);
    pen.line(end, middle, x, middle, colors.ink, 1.5, [3, 3]);
    pen.rect(x - 4, middle - 4, 8, 8, { fill: theme.surface, stroke: colors.ink, radius: 3.9, line: 1.5 });
    edge = Math.max(edge, x + 5);
  }
  if (!operation.expected) return edge;
  const isLimit = operation.expected.source !== "History";
  for (const [seconds, size] of [[operation.expected.typicalSeconds, 1], [operation.expected.p95Seconds, 0]]) {
    const x = sharp(xOf(frame, operation.start + seconds * 1000));
    if (!seconds || x < 0 || x > frame.width) continue;
    pen.line(x, top - 2, x, top + height + 2, theme.text, size ? 2 : 1, size ? [] : [2, 2]);
    if (isLimit) {
      pen.line(x - 4, top - 2, x, top - 2, theme.text, 2);
      pen.line(x - 4, top + height + 2, x, top + height + 2, theme.text, 2);
    }
    if (x > end && x < end + 40) edge = Math.max(edge, x + 3);
  }
  return edge;
}

const barText = (operation) => {
  const marks = [operation.active && operation.progress !== null && `${operation.progress}%`, operation.overdue && "overdue", operation.stalled && "stalled"];
  return [operation.operation, ...marks.filter(Boolean)].join(" · ");
};

// The glyph and the text stand in the bar, or behind it where they do not fit.
function drawLabel(pen, operation, state, colors, { left, right, middle, after, limit, size }) {
  const text = barText(operation);
  const length = pen.measure(text, size);
  const inside = right - left;
  const hasGlyph = inside >= 12;
  const behind = after + (hasGlyph ? 0 : 14);
  const { text: bright, muted } = ifo.theme;
  if (hasGlyph) pen.glyph(state.glyph, left, middle - 5, colors.ink);
  else if (limit >= after + 12) pen.glyph(state.glyph, after, middle - 5, colors.ink);
  if (inside >= length + 16 || (inside >= 60 && limit < behind + length)) {
    pen.text(text, left + 15, middle, { color: bright, size, max: inside - 15 });
  } else if (limit >= behind + (state.done ? length : Math.min(length, 40))) {
    pen.text(text, behind, middle, { color: state.done ? muted : bright, size, max: limit - behind });
  }
}

// Returns the bar at a point of the chart, or null.
ifo.barAt = (frame, x, y) => {
  const row = frame.rows[ifo.rowAt(frame.rows, y + frame.scroll)];
  if (!row || !row.tracks.length) return null;
  const number = Math.floor((y + frame.scroll - row.y - ifo.ROW.pad / 2) / ifo.ROW[row.kind]);
  const track = row.tracks[Math.max(0, Math.min(number, row.tracks.length - 1))];
  const [first, last] = [timeAt(frame, x - 4), timeAt(frame, x + 4)];
  const bar = track[ifo.barFrom(track, first)];
  return bar && bar.operation.start <= last && first <= frame.seen ? bar : null;
};

// Draws the current view with its labels, for a file.
ifo.drawPicture = (pen, frame, tree) => {
  const { theme } = ifo;
  const [top, axis] = [64, 32];
  const width = tree + frame.width;
  pen.rect(0, 0, width, top + axis + frame.height + 36, { fill: theme.surface });
  pen.text(frame.title, 16, 22, { color: theme.text, size: 16, weight: 600, max: width - 32 });
  pen.text(frame.subtitle, 16, 46, { color: theme.muted, size: 12, max: width - 32 });
  pen.inside(0, top + axis, tree, frame.height, () => ifo.visibleRows(frame).forEach((row) => {
    const y = row.y - frame.scroll;
    const isGroup = row.kind === "group";
    if (isGroup) pen.rect(0, y, tree, row.height, { fill: theme.subtle });
    const label = isGroup ? `${row.name}${row.active ? ` · ${row.active} in flight` : ""}` : `${row.subject.name} ${row.subject.kind}`;
    pen.text(label, row.level * 14, y + Math.min(row.height, 30) / 2, { color: theme.text, weight: isGroup ? 600 : 400, max: tree - row.level * 14 - 8 });
  }));
  pen.inside(tree, top, frame.width, axis, () => ifo.drawAxis(pen, frame, axis));
  pen.inside(tree, top + axis, frame.width, frame.height, () => ifo.drawChart(pen, frame));
  legend(pen, top + axis + frame.height + 18);
};

function legend(pen, y) {
  let x = 16;
  for (const [name, state] of Object.entries(ifo.STATES)) {
    if (name === "Unknown") continue;
    const colors = ifo.theme.states[name];
    pen.rect(x, y - 8, 24, 16, { fill: colors.fill, stroke: colors.ink, pattern: state.pattern, ink: colors.ink, radius: 4 });
    pen.glyph(state.glyph, x + 7, y - 5, colors.ink);
    pen.text(name, x + 30, y, { color: ifo.theme.muted });
    x += 48 + pen.measure(name);
  }
}
