// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/island_runner.h"

#include <utility>

#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/outer_loop/retry.h"

namespace causeway {

absl::Status IslandRunner::Run() {
  for (int restarts = 0;; ++restarts) {
    const absl::Status status = RunOnce();
    if (!absl::IsOutOfRange(status)) return status;
    if (options_.give_up != nullptr) RETURN_IF_ERROR(options_.give_up());
    if (was_sound_ || SaysVersionIsLost(status)) restarts = 0;
    if (restarts == options_.restarts) return status;
    LOG(WARNING) << "the replica can no longer be used (" << status.message()
                 << "); starting again from the run's parameters";
  }
}

absl::Status IslandRunner::RunOnce() {
  has_handed_in_ = false;
  const std::unique_ptr<CoordinatorClient> client = options_.connect();
  Island island(options_.island(), client.get());
  {
    absl::MutexLock lock(&mu_);
    if (leaving_) return absl::CancelledError("stopped before the start");
    island_ = &island;
  }
  const absl::Status status = island.Run();
  has_handed_in_ = island.HasHandedIn();
  was_sound_ = island.RoundsMade() >= kSoundRounds;
  absl::MutexLock lock(&mu_);
  island_ = nullptr;
  return status;
}

void IslandRunner::RequestLeave(absl::string_view reason) {
  absl::MutexLock lock(&mu_);
  leaving_ = true;
  if (island_ != nullptr) island_->RequestLeave(reason);
}

void IslandRunner::Stop() {
  absl::MutexLock lock(&mu_);
  leaving_ = true;
  if (island_ != nullptr) island_->Stop();
}

std::optional<v1::IslandProgress> IslandRunner::Progress() {
  absl::MutexLock lock(&mu_);
  if (island_ == nullptr) return std::nullopt;
  return island_->CurrentProgress();
}

bool IslandRunner::GetsOn() {
  absl::MutexLock lock(&mu_);
  if (island_ == nullptr) return true;
  const uint64_t step = island_->Step();
  return step != std::exchange(seen_step_, step) || !island_->IsTraining();
}

}  // namespace causeway
