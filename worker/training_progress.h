// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What an island tells of its training: to the coordinator with each heartbeat,
// and in a line of the log now and then.
#ifndef WORKER_TRAINING_PROGRESS_H_
#define WORKER_TRAINING_PROGRESS_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "proto/coordinator.pb.h"
#include "worker/inner_trainer.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/shared_outer_loop.h"

namespace causeway {

// Report may come from any thread, the rest from the one that trains.
class TrainingProgress {
 public:
  // `client` and `loop` outlive the object. A line is logged every
  // `log_interval`.
  TrainingProgress(CoordinatorClient* client, const SharedOuterLoop* loop,
                   Clock now, absl::Duration log_interval);

  // Returns what the next heartbeat says. The loss is the mean since the last
  // one.
  v1::IslandProgress Report();

  // The island takes part in a run with this configuration.
  void SetRun(const v1::RunConfig& config);

  // A step that took `duration` was made; logs if it is time, or if it is the
  // last one.
  void Record(uint64_t step, const InnerStepResult& result,
              absl::Duration duration);

  // Returns the time that training stood still for synchronization.
  absl::Duration waited() const;

 private:
  // Steps and tokens of some time, and what the steps took of it.
  struct Rate {
    absl::Time since = absl::InfinitePast();
    uint64_t tokens = 0;
    uint64_t steps = 0;
    absl::Duration step_time = absl::ZeroDuration();
  };

  // Takes over what the outer loop knows.
  void ReadLoop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RecordRanks(const InnerStepResult& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UpdateRate(uint64_t tokens, absl::Duration duration, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  CoordinatorClient* const client_;
  const SharedOuterLoop* const loop_;
  const Clock now_;
  const absl::Duration log_interval_;

  absl::Mutex mu_;
  v1::IslandProgress progress_ ABSL_GUARDED_BY(mu_);
  uint64_t total_steps_ ABSL_GUARDED_BY(mu_) = 0;
  // "training (DDP)" and the like.
  std::string training_ ABSL_GUARDED_BY(mu_);
  // Since the last heartbeat.
  double loss_sum_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t loss_count_ ABSL_GUARDED_BY(mu_) = 0;
  // Under way.
  Rate rate_ ABSL_GUARDED_BY(mu_);
  absl::Time logged_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace causeway

#endif  // WORKER_TRAINING_PROGRESS_H_
