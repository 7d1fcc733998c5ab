// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/replica.h"

#include <algorithm>
#include <utility>

namespace causeway::simulation {

Replica::Replica(std::vector<uint32_t> processes, v1::FragmentHead head,
                 Contents anchor, std::vector<Interval> restored)
    : processes_(std::move(processes)),
      process_(processes_.back()),
      head_(std::move(head)),
      anchor_(std::move(anchor)),
      beyond_(std::move(restored)),
      at_start_(anchor_) {
  for (const Interval& interval : beyond_) {
    at_start_[interval.process] = interval.end;
  }
}

void Replica::Train() {
  if (beyond_.empty() || beyond_.back().process != process_) {
    beyond_.push_back({.process = process_,
                       .fragment = head_.fragment(),
                       .begin = trained_,
                       .end = trained_});
  }
  beyond_.back().end = ++trained_;
}

void Replica::Prepare(v1::FragmentHead head, Contents anchor) {
  next_head_ = std::move(head);
  next_anchor_ = std::move(anchor);
}

void Replica::Apply(bool includes_island) {
  const bool merged = std::any_of(
      processes_.begin(), processes_.end(), [this](uint32_t process) {
        return StepsOf(next_anchor_, process) > StepsOf(anchor_, process);
      });
  head_ = next_head_;
  anchor_ = next_anchor_;
  if (includes_island) Mix(merged);
  snapshot_.clear();
}

void Replica::Mix(bool merged) {
  const uint64_t kept =
      snapshot_.empty() ? 0 : StepsIn(beyond_) - StepsIn(snapshot_);
  for (Interval& interval : beyond_) {
    uint64_t gone = StepsOf(anchor_, interval.process);
    for (const Interval& taken : snapshot_) {
      if (!merged && taken.process == interval.process) gone = taken.end;
    }
    interval.begin = std::min(interval.end, std::max(interval.begin, gone));
  }
  std::erase_if(beyond_, [](const Interval& interval) {
    return interval.begin == interval.end;
  });
  // An earlier process's contribution was merged, whose snapshot is missing.
  const uint64_t lost = DropTo(kept);
  if (!merged) given_up_ += lost;
}

void Replica::GiveUpTo(uint64_t left) { given_up_ += DropTo(left); }

uint64_t Replica::DropTo(uint64_t left) {
  uint64_t surplus = StepsIn(beyond_);
  surplus -= std::min(surplus, left);
  const uint64_t dropped = surplus;
  for (Interval& interval : beyond_) {
    // The steps were never merged, so the steps after them take their numbers.
    const uint64_t steps = std::min(surplus, interval.end - interval.begin);
    interval.end -= steps;
    surplus -= steps;
    if (interval.process == process_) {
      trained_ -= steps;
    } else {
      at_start_[interval.process] = interval.end;
    }
  }
  std::erase_if(beyond_, [](const Interval& interval) {
    return interval.begin == interval.end;
  });
  return dropped;
}

}  // namespace causeway::simulation
