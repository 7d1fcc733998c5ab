// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// How a simulated island goes on where a dead process of its name was, and what
// of that process's training is merged already: worker/island_checkpoint.h and
// worker/sync/fragment_window.h in virtual time.
#include <cstddef>
#include <optional>
#include <utility>

#include "tests/simulation/island.h"

namespace causeway::simulation {

bool Island::CheckpointFits(const v1::JoinResponse& joined) const {
  const uint64_t history =
      process_.parts.scenario->config.storage().update_history();
  for (const v1::FragmentHead& head : joined.heads()) {
    const Checkpoint::Fragment& saved =
        (*checkpoint_)->fragments[head.fragment()];
    // Contributions here take so many processes, this one included.
    if (saved.head.version() > head.version() ||
        head.version() - saved.head.version() > history ||
        (saved.head.version() == head.version() &&
         saved.head.digest() != head.digest()) ||
        saved.window.size() >= kMostIntervals) {
      return false;
    }
  }
  return true;
}

std::optional<Checkpoint> Island::TakeCheckpoint(
    const v1::JoinResponse& joined) {
  if (checkpoint_ == nullptr || !checkpoint_->has_value()) return std::nullopt;
  Checkpoint& left = **checkpoint_;
  const Checkpoint taken = left;
  // Who comes after this process must not take what it contributes for what
  // was in flight.
  left.instance = process_.number + 1;
  for (Checkpoint::Fragment& fragment : left.fragments) fragment.sent.clear();
  if (!CheckpointFits(joined)) return std::nullopt;
  return taken;
}

void Island::Restore(const Checkpoint& saved, const v1::JoinResponse& joined) {
  process_.parts.world->Trace("island ", IslandName(process_.island),
                              "   process ", process_.number,
                              " goes on from step ", saved.step);
  joined_ = joined;
  joined_.set_run_step(saved.step);
  for (size_t id = 0; id < saved.fragments.size(); ++id) {
    *joined_.mutable_heads(static_cast<int>(id)) = saved.fragments[id].head;
    anchors_.push_back(saved.fragments[id].anchor);
  }
  // What was in flight may have to be sent again.
  rebased_ = true;
  catching_up_ = true;
  MakeLinks(&saved);
}

void Island::Save() {
  // Now and then; what is written while the process is killed is not there.
  if (checkpoint_ == nullptr || !process_.parts.world->chance.OneIn(4)) return;
  Checkpoint saved{.instance = process_.number + 1, .step = step_};
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    const Fragment& fragment = fragments_[id];
    // If it may be an earlier process that is part of the next update, nobody
    // will know which of the two it is.
    const bool known = fragment.link->version() >= fragment.others_until;
    std::vector<Interval> sent = fragment.restored;
    sent.resize(known ? fragment.restored_sent : 0);
    if (known && fragment.sent > 0) {
      sent.push_back(Window(id).back());
      sent.back().end = sent.back().begin + fragment.sent;
    }
    saved.fragments.push_back({.head = fragment.link->head(),
                               .anchor = fragment.link->anchor(),
                               .window = Window(id),
                               .sent = std::move(sent)});
  }
  *checkpoint_ = std::move(saved);
}

std::vector<Interval> Island::Window(uint32_t id) const {
  const Fragment& fragment = fragments_[id];
  std::vector<Interval> window = fragment.restored;
  if (fragment.window > 0) {
    window.push_back({.process = process_.number,
                      .fragment = id,
                      .begin = fragment.trained - fragment.window,
                      .end = fragment.trained});
  }
  return window;
}

void Island::SplitWindow(const Checkpoint::Fragment& saved, uint32_t id) {
  Fragment& fragment = fragments_[id];
  fragment.may_have_forgotten = true;
  fragment.restored = saved.window;
  fragment.forgotten = saved.sent.size();
  if (saved.sent.empty()) return;
  Interval& all = fragment.restored[saved.sent.size() - 1];
  if (saved.sent.back() == all) return;
  // The last process went on training after it had sent.
  Interval rest = all;
  all.end = rest.begin = saved.sent.back().end;
  fragment.restored.insert(fragment.restored.begin() +
                               static_cast<std::ptrdiff_t>(saved.sent.size()),
                           rest);
}

void Island::Settle(const Link::Taken& taken, Fragment& fragment) {
  const uint64_t sent = std::exchange(fragment.sent, 0);
  const size_t restored_sent = std::exchange(fragment.restored_sent, 0);
  const size_t forgotten = std::exchange(fragment.forgotten, 0);
  std::vector<Interval>& restored = fragment.restored;
  const auto take_out = [&](size_t intervals) {
    restored.erase(restored.begin(),
                   restored.begin() + static_cast<std::ptrdiff_t>(intervals));
  };
  if (taken.includes_island) {
    fragment.window -= sent;
    take_out(restored_sent);
  } else if (!fragment.may_have_forgotten ||
             taken.from_version >= fragment.others_until ||
             !(taken.includes_other || taken.skipped_include_other)) {
    return;
  } else if (forgotten > 0 && !taken.skipped_include_other) {
    take_out(forgotten);
  } else {
    // The same training again as what was merged.
    fragment.may_have_forgotten = false;
    fragment.trained -= fragment.window;
    fragment.window = 0;
    restored.clear();
  }
}

}  // namespace causeway::simulation
