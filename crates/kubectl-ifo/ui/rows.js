"use strict";
// The rows of the timeline: a group (namespace, component, node or owner), below it one row for each
// object with its bars, and below that, if it is open, one row for each object of the same work.

ifo.ROW = { group: 30, track: 24, child: 20, pad: 4 };

const ownerOf = (piece) => {
  const owner = piece.root.owners.find((it) => it.controller) || piece.root.owners[0];
  return owner ? `${owner.kind}/${owner.name}` : ifo.target(piece.root);
};
ifo.GROUPINGS = {
  component: (piece) => [piece.component || "(no component)"],
  namespace: (piece) => [piece.namespace || "(cluster)"],
  node: (piece) => (piece.nodes.length ? piece.nodes : ["(no node)"]),
  owner: (piece) => [ownerOf(piece)],
};

// Puts bars that overlap in time into different tracks. Returns lists of bars, sorted by start.
function tracksOf(bars) {
  const tracks = [];
  bars.sort((a, b) => a.start - b.start);
  for (const bar of bars) {
    const free = tracks.find((track) => track[track.length - 1].last <= bar.start);
    if (free) free.push(bar);
    else if (tracks.length < 12) tracks.push([bar]);
    else tracks[11].push(bar);
  }
  return tracks;
}

const barOf = (piece, operation) => ({
  piece,
  operation,
  start: operation.start,
  last: operation.active ? Infinity : Math.max(operation.end, operation.start),
});

// Returns the rows of the pieces that are visible between `from` and `to`.
ifo.buildRows = (view, from, to) => {
  const groups = new Map();
  const keysOf = ifo.GROUPINGS[view.group] || ifo.GROUPINGS.namespace;
  let shown = 0;
  for (const piece of ifo.model.pieces) {
    if (piece.start > to || (!piece.active && piece.end < from) || !ifo.fits(piece, view)) continue;
    shown += 1;
    for (const key of keysOf(piece)) {
      let lanes = groups.get(key);
      if (!lanes) groups.set(key, (lanes = new Map()));
      const lane = lanes.get(piece.root.path);
      if (lane) lane.push(piece);
      else lanes.set(piece.root.path, [piece]);
    }
  }
  const rows = [];
  const byName = (a, b) => (a[0] < b[0] ? -1 : 1);
  for (const [name, lanes] of [...groups].sort(byName)) addGroup(rows, view, name, [...lanes].sort(byName));
  let y = 0;
  for (const row of rows) {
    row.y = y;
    y += row.height;
  }
  return { rows, height: y, shown };
};

function addGroup(rows, view, name, lanes) {
  const id = `group ${name}`;
  const open = !view.closed.has(id);
  const isOwnLane = view.group === "owner" && lanes.length === 1 && ifo.target(lanes[0][1][0].root) === name;
  if (!isOwnLane) {
    const pieces = lanes.flatMap((it) => it[1]);
    const active = pieces.filter((it) => it.active).length;
    const bad = pieces.filter((it) => ifo.attentionRank(it) < 4).sort((a, b) => ifo.attentionRank(a) - ifo.attentionRank(b));
    const worst = bad.length ? bad[0].state : "";
    rows.push({ kind: "group", id, name, level: 1, height: ifo.ROW.group, open, active, bad: bad.length, worst, count: pieces.length, tracks: [], pieces });
  }
  if (!open && !isOwnLane) return;
  for (const [path, pieces] of lanes) addLane(rows, view, `${id} ${path}`, pieces, isOwnLane ? 1 : 2);
}

function addLane(rows, view, id, pieces, level) {
  const { root } = pieces[0];
  const hasChildren = pieces.some((it) => it.members.length > 1);
  const open = hasChildren && view.expanded !== view.toggled.has(id);
  const tracks = tracksOf(pieces.map((it) => barOf(it, it)));
  const height = Math.max(tracks.length, 1) * ifo.ROW.track + ifo.ROW.pad;
  rows.push({ kind: "lane", id, level, height, tracks, pieces, subject: root.subject, open: hasChildren ? open : null });
  if (!open) return;
  const children = new Map();
  for (const piece of pieces) {
    for (const it of piece.members) {
      if (it === piece.root && piece.members.length === 1) continue;
      if (!children.has(it.path)) children.set(it.path, []);
      children.get(it.path).push(barOf(piece, it));
    }
  }
  for (const [path, bars] of children) {
    const own = tracksOf(bars);
    const { subject } = bars[0].operation;
    const childHeight = own.length * ifo.ROW.child + ifo.ROW.pad;
    rows.push({ kind: "child", id: `${id} ${path}`, level: level + 1, height: childHeight, tracks: own, pieces: [], subject, open: null });
  }
}

// Returns the index of the first row below `y`.
ifo.rowAt = (rows, y) => {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].y + rows[middle].height <= y) low = middle + 1;
    else high = middle;
  }
  return low;
};

ifo.visibleRows = (frame) => {
  const end = frame.scroll + frame.height;
  const count = ifo.rowAt(frame.rows, end);
  return frame.rows.slice(ifo.rowAt(frame.rows, frame.scroll), count + 1).filter((it) => it.y < end);
};

// Returns the index of the first bar of a track that ends at or after `ms`.
ifo.barFrom = (track, ms) => {
  let low = 0;
  let high = track.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (track[middle].last < ms) low = middle + 1;
    else high = middle;
  }
  return low;
};
