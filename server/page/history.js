// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The curves of the run.

const color = (i) => `var(--c${i % 8})`;
// More islands than this are drawn as one bundle.
const kNamedCurves = 7;
const step = (x) => "step " + Math.round(x).toLocaleString();
const low = () => 170;
const kPlain = { size: 1, name: "" };

const charts = {
  loss: new Chart(byId("loss"), {
    label: "Training and validation loss by inner step",
    axis: "nats per token", unit: () => kPlain,
    value: loss, at: step, empty: "no round has been merged yet",
    height: (width) => (width > 700 ? 300 : 220),
  }),
  rate: new Chart(byId("rate"), {
    label: "Tokens per second by inner step",
    axis: "tokens/s", unit: (high) => unitOf(high, kCounts), value: count,
    at: step, zero: true, empty: "nothing yet", height: low,
  }),
  traffic: new Chart(byId("traffic"), {
    label: "Bytes by inner step", axis: "bytes",
    unit: (high) => unitOf(high, kBytes), value: bytes, at: step, sums: true,
    zero: true, empty: "nothing yet", height: low,
  }),
  part: new Chart(byId("part"), {
    label: "Share of live islands that were merged", axis: "of live islands",
    unit: () => ({ size: 1, name: " %" }),
    value: (y) => y.toFixed(1) + " %", at: step, zero: true, most: 100,
    empty: "nothing yet", height: low,
  }),
};

byId("log").addEventListener("change", (event) =>
  charts.loss.setLog(event.target.checked));

// Returns the training curves by island.
function islandCurves() {
  const curves = new Map();
  for (const point of state.training) {
    for (const island of point.islands || []) {
      if (!num(island.loss)) continue;
      if (!curves.has(island.island_id)) curves.set(island.island_id, []);
      curves.get(island.island_id).push([num(point.run_step), island.loss]);
    }
  }
  return [...curves.entries()].sort((a, b) => (a[0] < b[0] ? -1 : 1));
}

// Returns the step at which the model had a version, which may lie between two
// points.
function stepOf(version) {
  const points = state.training;
  const i = points.findIndex((point) => num(point.version) >= version);
  if (i < 0) return points.length ? num(last(points).run_step) : version;
  const after = points[i];
  if (i === 0 || num(after.version) === version) return num(after.run_step);
  const before = points[i - 1];
  const share = (version - num(before.version)) /
    (num(after.version) - num(before.version));
  return num(before.run_step) +
    share * (num(after.run_step) - num(before.run_step));
}

function drawHistory() {
  const islands = islandCurves();
  const many = islands.length > kNamedCurves;
  const steps = (value) => state.training.map(
    (point) => [num(point.run_step), value(point)]);
  const series = islands.map(([name, points], i) => ({
    name, points, thin: many, unnamed: many,
    color: many ? "var(--faint)" : color(i + 1),
  }));
  if (many) {
    series.push({ name: "training, mean of islands", color: color(1),
      points: steps((point) => num(point.loss)).filter((point) => point[1]) });
  }
  series.push({
    name: "validation, merged model", color: color(0), dots:
      state.validations.length < 40,
    points: state.validations.map(({ validation }) =>
      [stepOf(num(validation.version)), num(validation.loss)]),
  });
  charts.loss.set(series);
  if (many) {
    const swatch = el("i");
    swatch.style.background = "var(--faint)";
    charts.loss.legend.prepend(
      el("li", {}, swatch, "training, single islands"));
  }
  charts.rate.set([{ name: "all islands", unnamed: true, color: color(0),
    points: steps((point) => num(point.tokens_per_second)) }]);
  charts.traffic.set([
    { name: "to the coordinator", color: color(0),
      points: steps((point) => num(point.bytes_up)) },
    { name: "to the islands", color: color(2),
      points: steps((point) => num(point.bytes_down)) }]);
  const shares = [];
  state.training.forEach((point, i) => {
    const now = point.participation || {};
    const before = (i && state.training[i - 1].participation) || {};
    const since = (field) => num(now[field]) - num(before[field]);
    const share = tookPart({ live: since("live"), merged: since("merged") });
    if (share !== undefined) shares.push([num(point.run_step), 100 * share]);
  });
  charts.part.set([{ name: "merged", unnamed: true, color: color(2),
    points: shares }]);
}

