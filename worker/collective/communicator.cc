// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/communicator.h"

#include <utility>

namespace causeway {

absl::string_view CollectiveName(Collective collective) {
  switch (collective) {
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kAllReduce:
      return "all-reduce";
    case Collective::kBroadcast:
      return "broadcast";
  }
  return "unknown collective";
}

void Pending::State::Finish(absl::Status status) {
  absl::MutexLock lock(&mu_);
  status_ = std::move(status);
  done_ = true;
}

absl::Status Pending::State::Wait() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&done_));
  return status_;
}

bool Pending::State::done() {
  absl::MutexLock lock(&mu_);
  return done_;
}

}  // namespace causeway
