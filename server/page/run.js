// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The run's facts, islands, rounds, ledger and events.

const progress = (island) => island.progress || {};
const isLive = (island) => island.state === "LIVE";
const isHeard = (island) => isLive(island) && !island.is_unheard;
const stateOf = (island) =>
  (isLive(island) && island.draining ? "draining" : words(island.state));
const rateOf = (link) => 8 * num((link || {}).bytes_per_second) / 1e6;
const mbit = (link) => (rateOf(link) > 0 ? rateOf(link).toPrecision(3) : "–");
const moved = (value) => (num(value) ? bytes(value) : "–");
const bits = (island) => num(progress(island).uplink_bits);
const age = (island) => num(island.heartbeat_age_seconds);
const lateness = (island) => {
  if (island.is_unheard) return "–";
  const { late_updates: late, overrun_steps: steps } = progress(island);
  return num(late) + (num(steps) ? ` (+${num(steps)})` : "");
};
function islandClass(island) {
  if (!isLive(island)) return island.state === "LEFT" ? "" : "bad";
  return island.draining || island.data_differs || age(island) > 10 ? "warn"
    : "good";
}
function waitShare(island) {
  const seconds = (state.now - millis(island.joined_at)) / 1000;
  return seconds > 0 ? num(progress(island).wait_seconds) / seconds : 0;
}
function activity(island) {
  if (!isLive(island)) return island.reason || "";
  if (island.data_differs) return "reads other data than the run's";
  const trouble = progress(island).rank_trouble;
  return (trouble && trouble.text) || progress(island).activity || "";
}

const islandTable = new DataTable(byId("islands_table"), [
  { title: "Island", value: (i) => i.island_id || "" },
  { title: "State", value: (i) => (isLive(i) ? "0" : "1") + i.state,
    text: stateOf, pill: islandClass },
  { title: "Step", n: true, value: (i) => num(progress(i).run_step),
    text: (i) => String(num(progress(i).run_step) || (i.is_unheard ? "–" : 0)) },
  { title: "Loss", n: true, value: (i) => num(progress(i).loss),
    text: (i) => loss(progress(i).loss) },
  { title: "Tokens/s", n: true,
    value: (i) => (isHeard(i) ? num(progress(i).tokens_per_second) : 0),
    text: (i) => (isHeard(i) ? count(progress(i).tokens_per_second) : "–") },
  { title: "Waited", n: true, value: waitShare,
    text: (i) => (isHeard(i) ? percent(waitShare(i), 1) : "–") },
  { title: "Late", n: true,
    value: (i) => num(progress(i).late_updates), text: lateness },
  { title: "Up", n: true, value: (i) => num(progress(i).bytes_up),
    text: (i) => moved(progress(i).bytes_up) },
  { title: "Mbit/s", n: true, value: (i) => rateOf(progress(i).uplink),
    text: (i) => mbit(progress(i).uplink) },
  { title: "Bits", n: true, value: bits,
    text: (i) => (bits(i) ? String(+bits(i).toPrecision(3)) : "–") },
  { title: "Down", n: true, value: (i) => num(progress(i).bytes_down),
    text: (i) => moved(progress(i).bytes_down) },
  { title: "Mbit/s", n: true,
    value: (i) => rateOf(progress(i).downlink),
    text: (i) => mbit(progress(i).downlink) },
  { title: "Round trip", n: true,
    value: (i) => num(progress(i).round_trip_seconds),
    text: (i) => (num(progress(i).round_trip_seconds)
      ? (1000 * progress(i).round_trip_seconds).toPrecision(3) + " ms" : "–") },
  { title: "Heard", n: true, value: age,
    text: (i) => (isHeard(i) ? duration(age(i)) : "–") },
  { title: "Activity", long: true, value: activity, text: activity },
], (island) => island.island_id || "");
islandTable.gone = (island) => !isLive(island);

function names(list) {
  if (!list || list.length === 0) return "–";
  return list.length > 4 ? plural(list.length, "island") : list.join(", ");
}

const version = (fragment) => num((fragment.head || {}).version);
const fragmentTable = new DataTable(byId("fragments_table"), [
  { title: "Fragment", value: (f) => num((f.head || {}).fragment) },
  { title: "Version", n: true, value: version,
    text: (f) => version(f) + " of " + num(f.final_version) },
  { title: "Took part", n: true, value: (f) => num((f.participation || {}).merged),
    text: (f) => (version(f) > 0 && f.participation ? num(f.participation.merged) + " of " +
      Math.max(num(f.participation.live), num(f.participation.merged)) : "–") },
  { title: "Norm", n: true, value: (f) => num(f.merged_norm),
    text: (f) => (f.merged_norm ? f.merged_norm.toPrecision(3) : "–") },
  { title: "Similarity", n: true, value: (f) => num(f.similarity),
    text: (f) => (f.similarity === undefined ? "–" : Number(f.similarity).toFixed(3)) },
  { title: "Contributed", long: true, value: (f) => (f.contributed || []).length,
    text: (f) => names(f.contributed) },
  { title: "Awaited", long: true, value: (f) => (f.awaited || []).length,
    text: (f) => names(f.awaited) },
], (fragment) => num((fragment.head || {}).fragment));

const quarantineTable = new DataTable(byId("quarantine_table"), [
  { title: "Id", n: true, value: (q) => num(q.id) },
  { title: "Island", value: (q) => q.island_id || "" },
  { title: "Fragment", n: true, value: (q) => num(q.fragment) },
  { title: "Version", n: true, value: (q) => num(q.base_version) },
  { title: "Norm", n: true, value: (q) => num(q.norm),
    text: (q) => (isFinite(q.norm) ? Number(q.norm).toPrecision(3)
      : String(q.norm === undefined ? "–" : q.norm)) },
  { title: "Reason", long: true, value: (q) => q.reason || "" },
], (entry) => num(entry.id));

const factNodes = new Map();
function fact(title, value, detail, shade) {
  if (!factNodes.has(title)) {
    const nodes = [el("span", {}, title), el("b"), el("span")];
    factNodes.set(title, nodes);
    byId("facts").append(el("div", { class: "fact" }, ...nodes));
  }
  const nodes = factNodes.get(title);
  setText(nodes[1], value);
  setText(nodes[2], detail);
  setClass(nodes[2], shade || "");
}

const kStateClass = { RUNNING: "good", FINISHED: "good", SUSPENDED: "bad",
  PAUSED: "warn", WAITING_FOR_ISLANDS: "warn" };
const kSeverityClass = { CRITICAL: "bad", WARNING: "warn" };

// Returns the text and the class of the run's state, as `causeway status` says
// it.
function shownState(run) {
  const first = (run.attention || [])[0];
  if (run.alone_since && run.state !== "FINISHED") {
    return [`${words(run.state)} when last heard of`, "bad"];
  }
  if (run.missing_since) {
    return ["waiting for islands", run.state === "RUNNING" ? "bad" : "warn"];
  }
  if (run.state === "RUNNING" && first && first.severity === "CRITICAL") {
    return ["standing still", "bad"];
  }
  return [words(run.state), kStateClass[run.state] || ""];
}

function drawRun() {
  const run = state.run;
  const name = (run.config || {}).name || run.run_id || "";
  setText(byId("run"), name);
  document.title = (name ? name + " · " : "") + "Causeway";
  const [text, shade] = shownState(run);
  byId("state").hidden = !run.state;
  setText(byId("state"), text);
  setClass(byId("state"), "pill " + shade);
  const share = num(run.total_steps) ?
    Math.min(1, num(run.run_step) / num(run.total_steps)) : 0;
  byId("bar_done").style.width = 100 * share + "%";
  byId("bar").setAttribute("aria-valuenow", Math.round(100 * share));
  setText(byId("bar_left"), `step ${num(run.run_step).toLocaleString()} of ` +
    `${num(run.total_steps).toLocaleString()} (${percent(share, 1)})`);
  setText(byId("bar_right"), run.missing_since
    ? `${text} for ${duration((state.now - millis(run.missing_since)) / 1000)}`
    : run.seconds_left !== undefined
      ? `about ${duration(num(run.seconds_left))} left`
      : run.state === "RUNNING" && shade === "good" ? "" : text);
  drawFacts(run);
}

// Draws what needs attention, the most severe first. Compares texts, so that
// nothing is announced twice.
function drawAttention() {
  const list = state.run.attention || [];
  const host = byId("attention_list");
  byId("attention").hidden = list.length === 0;
  const shown = JSON.stringify(list);
  if (host.dataset.shown === shown) return;
  host.dataset.shown = shown;
  host.replaceChildren(...list.map((one) => el("li", {
    class: kSeverityClass[one.severity] || "",
  }, el("span", {}, one.text || "",
    el("small", {}, one.since ? " since " + clock(millis(one.since)) : "")),
  ...(one.command ? [el("code", {}, one.command)] : []))));
}

function drawFacts(run) {
  const validation = (run.validation || {}).validation;
  fact("Validation loss", loss(validation && validation.loss), validation
    ? "merged model, version " + num(validation.version) : "not measured");
  const training = num(run.loss) || num((last(state.training) || {}).loss);
  fact("Training loss", loss(training), "mean of the islands");
  const live = num(run.live_islands);
  const gone = departures();
  fact("Islands", String(live), gone || "live",
    /evicted|diverged/.test(gone) ? "alarm" : "");
  fact("Tokens/s", live ? count(run.tokens_per_second) : "–",
    count(run.tokens_merged) + " tokens merged");
  const took = tookPart(run.participation || {});
  fact("Rounds", count(run.rounds), "of " + count(run.total_rounds) +
    (took === undefined ? "" : `; ${percent(took, 1)} took part`));
  // The sum is that of the chart. The factor counts from the coordinator's start.
  const point = last(state.training) || {};
  const sent = num(run.bytes_sent) + num(run.bytes_received);
  fact("Traffic", bytes(num(point.bytes_up) + num(point.bytes_down)),
    sent && num(run.bytes_data_parallel)
      ? "data parallel: " + (num(run.bytes_data_parallel) / sent).toFixed(0) +
        " times as much" : "encoded");
  fact("Outer step", num(run.outer_step_seconds)
    ? (1000 * run.outer_step_seconds).toPrecision(3) + " ms" : "–",
  num(run.memory_bytes) ? bytes(run.memory_bytes) + " of memory" : "");
}

const kFates = [["merged", "merged", "--c2"], ["partial_merged", "partial", "--c4"],
  ["pending", "pending", "--sent"], ["quarantined", "quarantined", "--c1"],
  ["refused", "refused", "--c5"], ["expired", "expired", "--bad"]];

function drawLedger() {
  const ledger = state.run.ledger || {};
  const whole = num(ledger.reported);
  if (whole === 0) {
    byId("ledger").replaceChildren(
      el("p", { class: "empty" }, "no tokens reported yet"));
    return;
  }
  const bar = el("div", { class: "ledger", "aria-hidden": "true" });
  const legend = el("ul", { class: "legend" });
  for (const [field, name, shade] of kFates) {
    const tokens = num(ledger[field]);
    if (tokens === 0 && field !== "expired") continue;
    const part = el("div");
    part.style.width = 100 * tokens / whole + "%";
    part.style.background = `var(${shade})`;
    bar.append(part);
    const swatch = el("i", { class: "block" });
    swatch.style.background = `var(${shade})`;
    legend.append(el("li", {}, swatch,
      `${name} ${count(tokens)} (${percent(tokens, whole)})`));
  }
  byId("ledger").replaceChildren(bar, legend);
}

const kSeverities = ["", "DETAIL", "NOTICE", "WARNING", "CRITICAL"];

function drawEvents() {
  const least = Number(byId("severity").value);
  const shown = state.events.filter(
    (event) => kSeverities.indexOf(event.severity) >= least);
  byId("events").replaceChildren(...shown.reverse().map((event) => {
    const time = millis(event.time);
    return el("li", {},
      el("time", { datetime: event.time, title: new Date(time).toLocaleString() },
        clock(time)),
      el("span", { class: "kind " + (kSeverityClass[event.severity] || "") },
        words(event.kind)),
      el("span", { class: "text" }, event.text || ""));
  }));
  byId("events_empty").hidden = shown.length > 0;
}
byId("severity").addEventListener("change", drawEvents);

function drawNotices(lost) {
  const notices = [];
  if (lost) notices.push(["bad", lost]);
  // A message that needs attention is already shown as such.
  const { message, attention } = state.run;
  if (message && !(attention || []).some((one) => one.text.includes(message))) {
    notices.push(["warn", message]);
  }
  if (state.run.warning) notices.push(["warn", state.run.warning]);
  const host = byId("notices");
  if (host.textContent === notices.map((one) => one[1]).join("")) return;
  host.replaceChildren(...notices.map(([kind, text]) =>
    el("p", { class: "notice " + kind }, text)));
}

function drawStatus() {
  drawRun();
  drawAttention();
  drawTimeline();
  drawIslands();
  fragmentTable.set(state.fragments);
  const open = state.fragments.filter((fragment) => fragment.sent_at).length;
  setText(byId("rounds_count"), plural(open, "round") + " with contributions");
  byId("quarantine").hidden = state.quarantine.length === 0;
  byId("quarantine_empty").hidden = state.quarantine.length > 0;
  quarantineTable.set(state.quarantine);
  drawLedger();
  setText(byId("footer"), [state.run.run_id && "run " + state.run.run_id,
    state.run.parameters && count(state.run.parameters) + " parameters",
    state.run.started_at && "coordinator started " +
      new Date(state.run.started_at).toLocaleString()].filter(Boolean).join(" · "));
}

// The most departed islands that the coordinator sends.
const kMostNamed = 100;

// Returns how many islands have left, were evicted or have diverged.
function departures() {
  const gone = state.islands.filter((island) => !isLive(island));
  return (gone.length < kMostNamed ? "" : "at least ") +
    ["EVICTED", "DIVERGED", "LEFT"].map((kind) => {
      const n = gone.filter((island) => island.state === kind).length;
      return n ? n + " " + words(kind) : "";
    }).filter(Boolean).join(", ");
}

// The most departed islands that are shown among the others.
const kMostGone = 8;

// Draws the islands; folds the departed ones if there are more, unless the
// filter looks for them.
function drawIslands() {
  const text = byId("filter").value.trim().toLowerCase();
  const button = byId("gone");
  const gone = state.islands.filter((island) => !isLive(island)).length;
  const isFolded = gone > kMostGone && gone < state.islands.length;
  const open = !isFolded || button.getAttribute("aria-expanded") === "true";
  const shown = state.islands.filter((island) => (text
    ? (island.island_id + " " + stateOf(island)).toLowerCase().includes(text)
    : open || isLive(island)));
  islandTable.set(shown);
  button.hidden = !isFolded || text !== "";
  setText(button,
    `${open ? "Hide" : "Show"} those that are gone: ${departures()}`);
  setText(byId("islands_count"), text
    ? `${shown.length} of ${state.islands.length}`
    : `${num(state.run.live_islands)} live of ${gone < kMostNamed ? ""
      : "at least "}${state.islands.length}`);
}
byId("filter").addEventListener("input", drawIslands);
byId("gone").addEventListener("click", (event) => {
  const open = event.target.getAttribute("aria-expanded") === "true";
  event.target.setAttribute("aria-expanded", String(!open));
  drawIslands();
});

