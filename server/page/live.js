// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Follows a live run by the coordinator's /api, or shows the data that a report
// brings with it.

const kPeriod = 1000;
const kTimeout = 4000;
let heard = Date.now();

// Says why the coordinator refuses a request.
class Refusal extends Error {}

async function ask(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(kTimeout) });
  if (!response.ok) throw new Refusal(await response.text());
  return response.json();
}

// Fetches the points after those that are there.
async function refreshHistory() {
  let page;
  do {
    const training = state.training.length ? num(last(state.training).version) : 0;
    const validation = state.validations.length
      ? num(last(state.validations).validation.version) : 0;
    page = await ask(`api/history?training_after=${training}` +
      `&validation_after=${validation}`);
    takeHistory(page);
  } while (page.more);
  // Thin a long history out, as the coordinator does.
  for (const list of [state.training, state.validations]) {
    while (list.length > 2048) {
      for (let i = list.length - 2; i > 0; i -= 2) list.splice(i, 1);
    }
  }
  drawHistory();
}

// The id of the newest fetched event, and the lowest severity fetched.
let seenEvent = 0;
let seenSeverity = null;

async function refreshEvents(newest) {
  const severity = byId("severity").value;
  // A takeover that lost events assigns their ids again.
  if (newest < seenEvent) seenSeverity = null;
  const after = severity === seenSeverity ? seenEvent : 0;
  if (severity === seenSeverity && newest <= seenEvent) return;
  const page = await ask(`api/events?after=${after}&min_severity=${severity}`);
  if (severity !== seenSeverity) state.events = [];
  takeEvents(page.events);
  seenSeverity = severity;
  seenEvent = Math.max(newest, num((last(state.events) || {}).id));
  drawEvents();
}

let shownRounds = null;
async function refresh() {
  const status = await ask("api/status");
  if ((status.run || {}).run_id !== state.run.run_id) {
    Object.assign(state, { training: [], validations: [], events: [],
      rounds: new Map() });
    shownRounds = seenSeverity = null;
  }
  takeStatus(status);
  heard = Date.now();
  const validation = (state.run.validation || {}).time || "";
  const rounds = num(state.run.rounds) + " " + validation;
  if (rounds !== shownRounds) {
    await refreshHistory();
    shownRounds = rounds;
  }
  await refreshEvents(num(status.newest_event));
  drawStatus();
}

async function follow() {
  const begun = Date.now();
  let lost = "";
  try {
    await refresh();
    setText(byId("freshness"), "connected");
  } catch (error) {
    const seconds = duration(Math.round((Date.now() - heard) / 1000));
    const refused = error instanceof Refusal;
    const why = refused ? `The coordinator says: ${error.message.trim()}.`
      : "The coordinator does not answer.";
    lost = why + " This is its state of " + clock(heard) +
      "; the page resumes as soon as it is back.";
    setText(byId("freshness"),
      `${refused ? "refused" : "no answer"} for ${seconds}`);
  }
  document.body.classList.toggle("stale", lost !== "");
  setClass(byId("freshness"), "freshness " + (lost ? "lost" : "live"));
  drawNotices(lost);
  // Ask a large run less often, because its answers take longer.
  const pause = document.hidden ? 5 * kPeriod : kPeriod;
  setTimeout(follow, Math.max(200, pause - (Date.now() - begun)));
}

function showReport(report) {
  takeStatus(report);
  takeHistory(report.history || {});
  takeEvents(report.events);
  state.ended = true;
  // A report lacks the events of the lowest severity.
  byId("severity").options[0].remove();
  drawStatus();
  drawHistory();
  drawEvents();
  drawNotices("");
  setText(byId("freshness"), "as of " + new Date(state.now).toLocaleString());
}

const report = byId("report");
if (report) {
  showReport(JSON.parse(report.textContent));
} else {
  drawHistory();
  follow();
}
