// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The state of the run, from which everything is drawn.

const state = {
  run: {}, islands: [], fragments: [], quarantine: [],
  training: [], validations: [], events: [],
  rounds: new Map(),  // RoundTimes by "fragment:version"
  now: 0,  // the coordinator's time of the status, in milliseconds
};
const kMostEvents = 200;
const kMostRounds = 4000;

function takeRound(round) {
  if (!round || !round.merged_at) return;
  const key = num(round.fragment) + ":" + num(round.version);
  state.rounds.delete(key);
  state.rounds.set(key, round);
  if (state.rounds.size > kMostRounds) {
    state.rounds.delete(state.rounds.keys().next().value);
  }
}

function takeStatus(status) {
  state.run = status.run || {};
  state.islands = status.islands || [];
  state.fragments = status.fragments || [];
  state.quarantine = status.quarantine || [];
  state.now = millis(state.run.time);
  for (const fragment of state.fragments) takeRound(fragment.last_round);
}

function takeHistory(history) {
  for (const point of history.training || []) {
    state.training.push(point);
    for (const round of point.rounds || []) takeRound(round);
    delete point.rounds;
  }
  state.validations.push(...(history.validations || []));
}

// Returns the share of live islands that were merged; undefined if there were
// none. An island that left before the round closed is merged, but not live.
function tookPart(participation) {
  const [live, merged] = [num(participation.live), num(participation.merged)];
  return live + merged > 0 ? Math.min(1, merged / live) : undefined;
}

function takeEvents(events) {
  state.events = state.events.concat(events || []).slice(-kMostEvents);
}

