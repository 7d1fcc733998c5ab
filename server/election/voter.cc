// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/election/voter.h"

#include "common/status_macros.h"

namespace causeway {

absl::StatusOr<Voter::Step> Voter::Next(const absl::StatusOr<OfficeView>& view,
                                        const Holding& holding) {
  // While etcd is away, keep following the leader, which may be well.
  if (!view.ok()) {
    if (following_ != 0) patience_ = kPatience;
    return Step::kWait;
  }
  ASSIGN_OR_RETURN(const Move move, NextMove(*view, name_, holding));
  switch (move) {
    case Move::kWait:
      return Step::kWait;
    case Move::kFollow: {
      patience_ = 0;
      // Dial a leader that was elected again at once.
      const uint64_t before = std::exchange(following_, view->office.epoch());
      return before == following_ ? Step::kWait : Step::kFollow;
    }
    case Move::kCampaign:
      if (patience_ > 0) {
        --patience_;
        return Step::kWait;
      }
      return std::exchange(following_, 0) == 0 ? Step::kCampaign : Step::kPause;
  }
  return absl::InternalError("an unknown move");
}

}  // namespace causeway
