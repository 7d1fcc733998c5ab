// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/fragment_window.h"

#include <utility>

namespace causeway {

FragmentWindow::FragmentWindow(const v1::IslandCheckpoint::Fragment& saved,
                               uint64_t joined_version)
    : training_({.tokens = saved.tokens(),
                 .restored_tokens = saved.tokens(),
                 .inner_steps = saved.inner_steps()}),
      others_until_(joined_version + 1),
      restored_(true),
      forgotten_({.tokens = saved.sent_tokens(),
                  .restored_tokens = saved.sent_tokens(),
                  .inner_steps = saved.sent_inner_steps()}) {}

void FragmentWindow::Add(uint64_t tokens) {
  training_.tokens += tokens;
  training_.inner_steps += tokens > 0 ? 1 : 0;
}

bool FragmentWindow::Settle(const FragmentUpdate& update) {
  const Training sent = std::exchange(sent_, {});
  const Training forgotten = std::exchange(forgotten_, {});
  if (update.includes_island) {
    training_ -= sent;
    return true;
  }
  // An update that was not asked about is of the time after the join.
  if (!restored_ || update.from_version >= others_until_) return false;
  if (!update.includes_other && !update.skipped_include_other) return false;
  if (forgotten.tokens > 0 && !update.skipped_include_other) {
    training_ -= forgotten;
    return true;
  }
  restored_ = false;
  training_ = {};
  return true;
}

void FragmentWindow::Save(uint64_t version,
                          v1::IslandCheckpoint::Fragment& saved) const {
  saved.set_tokens(training_.tokens);
  saved.set_inner_steps(training_.inner_steps);
  // If it may be an earlier process whose contribution the next update holds,
  // the process that goes on from here must not take it for this one's.
  const Training sent = version < others_until_ ? Training() : sent_;
  saved.set_sent_tokens(sent.tokens);
  saved.set_sent_inner_steps(sent.inner_steps);
}

}  // namespace causeway
