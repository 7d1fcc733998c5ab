// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The timeline of fragments in flight.

// Returns the time from an island's send to its earliest use of the update, tau
// inner steps, in milliseconds.
function overlapMillis() {
  const sync = (state.run.config || {}).synchronization || {};
  const seconds = state.islands.map((one) => num((one.progress || {}).step_seconds))
    .filter((s) => s > 0);
  if (seconds.length === 0) return 0;
  const mean = seconds.reduce((a, b) => a + b) / seconds.length;
  return 1000 * num(sync.overlap_steps) * mean;
}

// Returns how far back to look, in milliseconds: about four rounds.
function windowMillis(rounds) {
  const merges = new Map();
  for (const round of rounds) {
    const f = num(round.fragment);
    if (!merges.has(f)) merges.set(f, []);
    merges.get(f).push(millis(round.merged_at));
  }
  const gaps = [];
  for (const times of merges.values()) {
    times.sort((a, b) => a - b);
    const newest = times.slice(-5);
    if (newest.length > 1) {
      gaps.push((last(newest) - newest[0]) / (newest.length - 1));
    }
  }
  gaps.sort((a, b) => a - b);
  const gap = gaps.length ? gaps[gaps.length >> 1] : 15000;
  return Math.min(86400e3, Math.max(5000, 4.2 * gap));
}

function timelineBars(from, now) {
  const overlap = overlapMillis();
  const bars = [];
  for (const round of state.rounds.values()) {
    const row = num(round.fragment);
    const merged = millis(round.merged_at);
    const sent = round.sent_at ? millis(round.sent_at) : merged;
    const delivered = round.delivered_at ? millis(round.delivered_at) : merged;
    const applied = Math.max(delivered, sent + overlap);
    if (Math.min(now, applied) < from) continue;
    const version = num(round.version);
    bars.push({ row, version, from: sent, to: merged, kind: "sent" });
    if (round.delivered_at) {
      bars.push({ row, version, from: merged, to: Math.min(now, delivered),
        kind: "update" });
    }
    bars.push({ row, version, from: delivered, to: Math.min(now, applied),
      kind: "hold" });
  }
  for (const fragment of state.fragments) {
    const head = fragment.head || {};
    if (!fragment.sent_at) continue;
    bars.push({ row: num(head.fragment), version: num(head.version) + 1,
      from: millis(fragment.sent_at), to: now, kind: "sent", open: true });
  }
  return bars;
}

const timeline = el("div", { class: "plot", role: "img" });
const timelineLegend = el("ul", { class: "legend" },
  ...[["sent", "islands send, the coordinator merges"],
    ["update", "merged: the update goes to the islands"],
    ["hold", "waits for the step at which it is applied"]].map(([kind, text]) => {
    const swatch = el("i", { class: "block" });
    swatch.style.background = `var(--${kind})`;
    return el("li", {}, swatch, text);
  }));
byId("timeline").append(timeline, timelineLegend);
new ResizeObserver(() => {
  if (timeline.clientWidth !== timeline.drawnWidth) drawTimeline();
}).observe(timeline);

function drawTimeline() {
  const rows = state.fragments.length;
  const width = timeline.clientWidth;
  timeline.drawnWidth = width;
  if (width === 0) return;
  const rounds = [...state.rounds.values()];
  const open = state.fragments.some((fragment) => fragment.sent_at);
  if (rounds.length === 0 && !open) {
    timeline.replaceChildren(
      el("p", { class: "empty" }, "no fragment has been sent yet"));
    return;
  }
  // After the run, the picture ends with its last round.
  const ended = state.run.state === "FINISHED" || state.ended;
  const newest = Math.max(...rounds.map((round) =>
    millis(round.delivered_at || round.merged_at)));
  const now = ended && isFinite(newest) ? newest : state.now;
  const from = now - windowMillis(rounds);
  const rowHeight = Math.max(5, Math.min(26, Math.floor(360 / rows)));
  const left = rowHeight >= 12 ? 84 : 34;
  const height = rows * rowHeight + 24;
  const x = (time) => left +
    (width - left - 8) * Math.min(1, Math.max(0, (time - from) / (now - from)));
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
  const seconds = (now - from) / 1000;
  for (const ago of ticks(0, seconds, width > 500 ? 8 : 4).marks) {
    const at = x(now - 1000 * ago);
    if (at < left + 12) continue;
    root.append(svg("line", { class: "grid", x1: at, x2: at, y1: 0,
      y2: height - 20 }));
    root.append(svg("text", { x: Math.min(at, width - 16), y: height - 5,
      "text-anchor": "middle" }, ago === 0 ? (ended ? "end" : "now")
      : "−" + duration(ago).replace(".0", "").replace(" 0 s", "")));
  }
  for (let row = 0; row < rows; ++row) {
    if (rowHeight < 12 && row % 5 !== 0) continue;
    root.append(svg("text", { class: "name", x: left - 8, "text-anchor": "end",
      y: row * rowHeight + rowHeight / 2 + 4 },
    rowHeight >= 12 ? "fragment " + row : row));
  }
  for (const bar of timelineBars(from, now)) {
    const begin = x(bar.from);
    const rect = svg("rect", { x: begin, y: bar.row * rowHeight + rowHeight * 0.18,
      width: Math.max(bar.kind === "hold" ? 0 : 2, x(bar.to) - begin),
      height: rowHeight * 0.64, rx: 2 },
    svg("title", {}, `fragment ${bar.row}, version ${bar.version}: ` +
      duration((bar.to - bar.from) / 1000)));
    rect.style.fill = `var(--${bar.kind})`;
    if (bar.open) rect.style.opacity = 0.6;
    root.append(rect);
  }
  timeline.replaceChildren(root);
  timeline.setAttribute("aria-label", `The last ${duration(seconds)} of ` +
    plural(rows, "fragment") + ", " + plural(state.fragments.filter(
    (fragment) => fragment.sent_at).length, "round") + " open");
}

