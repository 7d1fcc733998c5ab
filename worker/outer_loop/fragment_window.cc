// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/outer_loop/fragment_window.h"

#include <algorithm>
#include <utility>

namespace causeway {

FragmentWindow::Training& FragmentWindow::Training::operator+=(
    const Training& more) {
  tokens += more.tokens;
  restored_tokens += more.restored_tokens;
  inner_steps += more.inner_steps;
  return *this;
}

FragmentWindow::Training& FragmentWindow::Training::operator-=(
    const Training& part) {
  // Tokens without inner steps would have no weight in a merge.
  if (tokens <= part.tokens || inner_steps <= part.inner_steps) {
    return *this = {};
  }
  tokens -= part.tokens;
  // The training of earlier processes comes first.
  restored_tokens -= std::min(restored_tokens, part.tokens);
  inner_steps -= part.inner_steps;
  return *this;
}

FragmentWindow::FragmentWindow(const v1::IslandCheckpoint::Fragment& saved,
                               uint64_t joined_version)
    : training_({.tokens = saved.tokens(),
                 .restored_tokens = saved.tokens(),
                 .inner_steps = saved.inner_steps()}),
      earlier_until_(joined_version + 1) {}

void FragmentWindow::Add(uint64_t tokens) {
  training_.tokens += tokens;
  training_.inner_steps += tokens > 0 ? 1 : 0;
}

bool FragmentWindow::Settle(const AnchorChange& update) {
  const Training sent = std::exchange(sent_, {});
  if (update.includes_island) {
    training_ -= sent;
    return true;
  }
  // Later updates contain no training of an earlier process.
  if (update.from_version >= earlier_until_ || update.other.tokens == 0) {
    return false;
  }
  // The parameters keep what was trained since the snapshot, or nothing if
  // there is none.
  if (sent == Training()) {
    training_ = {};
  } else {
    training_ -= sent.tokens > update.other.tokens ? sent : update.other;
  }
  return true;
}

void FragmentWindow::Save(v1::IslandCheckpoint::Fragment& saved) const {
  saved.set_tokens(training_.tokens);
  saved.set_inner_steps(training_.inner_steps);
}

}  // namespace causeway
