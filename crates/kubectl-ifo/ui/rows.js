"use strict";
// The rows of the timeline: a group (namespace, component, node or owner), below it one row for each
// object with its bars, and below that, if it is open, one row for each object of the same work.

ifo.ROW = { group: 30, lane: 24, child: 20, pad: 4 };

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
const MAX_TRACKS = 12;
function tracksOf(bars) {
  const tracks = [];
  for (const bar of sortedBy(bars, (it) => [it.operation.start])) {
    const isFree = (track) => track[track.length - 1].operation.end <= bar.operation.start;
    const track = tracks.find(isFree) || tracks[MAX_TRACKS - 1];
    if (track) track.push(bar);
    else tracks.push([bar]);
  }
  return tracks;
}

// Returns the rows of the pieces that are visible in the window of the view.
ifo.buildRows = (view) => {
  const groups = new Map();
  const keysOf = ifo.GROUPINGS[view.group];
  const shown = ifo.model.pieces.filter((it) => ifo.isIn(it, view) && ifo.fits(it, view));
  for (const piece of shown) for (const key of keysOf(piece)) listIn(groups, key).push(piece);
  const rows = [];
  const byName = (map) => sortedBy([...map], (it) => [it[0]]);
  for (const [name, pieces] of byName(groups)) {
    const lanes = new Map();
    for (const piece of pieces) listIn(lanes, piece.root.path).push(piece);
    addGroup(rows, view, name, pieces, byName(lanes));
  }
  let height = 0;
  for (const row of rows) {
    row.y = height;
    height += row.height;
  }
  return { rows, height, shown: shown.length };
};

function addGroup(rows, view, name, pieces, lanes) {
  const id = `group ${name}`;
  const isOwnLane = view.group === "owner" && lanes.length === 1 && ifo.target(pieces[0].root) === name;
  const open = isOwnLane || !view.closed.has(id);
  if (!isOwnLane) {
    const active = pieces.filter((it) => it.active).length;
    const bad = sortedBy(pieces.filter((it) => ifo.attentionRank(it) < 4), (it) => [ifo.attentionRank(it)]);
    rows.push({ kind: "group", id, name, level: 1, height: ifo.ROW.group, open, active, bad, tracks: [], pieces });
  }
  if (!open) return;
  for (const [path, own] of lanes) addLane(rows, view, `${id} ${path}`, own, isOwnLane ? 1 : 2);
}

function addLane(rows, view, id, pieces, level) {
  const hasParts = pieces.some((it) => it.members.length > 1);
  const open = hasParts && Boolean(view.expanded) !== view.toggled.has(id);
  const bars = pieces.map((piece) => ({ piece, operation: piece }));
  rows.push(rowOfBars("lane", id, level, bars, pieces[0].root.subject, hasParts ? open : null));
  if (!open) return;
  const parts = new Map();
  for (const piece of pieces.filter((it) => it.members.length > 1)) {
    for (const operation of piece.members) listIn(parts, operation.path).push({ piece, operation });
  }
  for (const [path, own] of parts) rows.push(rowOfBars("child", `${id} ${path}`, level + 1, own, own[0].operation.subject, null));
}

function rowOfBars(kind, id, level, bars, subject, open) {
  const tracks = tracksOf(bars);
  const height = tracks.length * ifo.ROW[kind] + ifo.ROW.pad;
  return { kind, id, level, height, tracks, pieces: bars.map((it) => it.piece), subject, open };
}

// Returns the index of the first row that ends below `y`.
ifo.rowAt = (rows, y) => firstIndex(rows, (it) => it.y + it.height > y);

ifo.visibleRows = ({ rows, scroll, height }) =>
  rows.slice(ifo.rowAt(rows, scroll), firstIndex(rows, (it) => it.y >= scroll + height));

// Returns the index of the first bar of a track that ends at or after `ms`.
ifo.barFrom = (track, ms) => firstIndex(track, (it) => it.operation.end >= ms);
