// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island's training reports: to the coordinator with each heartbeat, and to
// the log at intervals.
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

// Report and Current are thread-safe; the rest is for the training thread.
class TrainingProgress {
 public:
  // `client` and `loop` outlive the object. The object logs a line every
  // `log_interval`.
  TrainingProgress(CoordinatorClient* client, const SharedOuterLoop* loop,
                   Clock now, absl::Duration log_interval);

  // Returns the next heartbeat's report. Its loss is the mean since the last
  // one.
  v1::IslandProgress Report();

  // Returns the last report, with the steps and tokens since.
  v1::IslandProgress Current();

  void SetRun(const v1::RunConfig& config);

  // Records a step that took `duration`. Logs it if a line is due or it is the
  // last step.
  void Record(uint64_t step, const InnerStepResult& result,
              absl::Duration duration);

  // Adds a rank's trouble to the next report. Steps until then do not clear it.
  void SetTrouble(const v1::RankTrouble& trouble);

  void SetData(std::string digest);

  // Records a measurement of the merged model, which took `duration`. Logs it.
  void RecordValidation(uint64_t version, const ValidationLoss& measured,
                        absl::Duration duration);

  // Returns how long training has stood still for synchronization.
  absl::Duration waited() const;

 private:
  // The steps and tokens of a period, and the time that the steps took.
  struct Rate {
    absl::Time since = absl::InfinitePast();
    uint64_t tokens = 0;
    uint64_t steps = 0;
    absl::Duration step_time = absl::ZeroDuration();
  };

  // Copies the outer loop's figures to progress_.
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
  // Is true while no report has had the trouble of SetTrouble.
  bool trouble_is_new_ ABSL_GUARDED_BY(mu_) = false;
  // Names such as "training (ACCO)", for one rank and for several. DDP on one
  // rank is plain training.
  std::string alone_ ABSL_GUARDED_BY(mu_);
  std::string together_ ABSL_GUARDED_BY(mu_);
  // Sum and number of losses since the last heartbeat.
  double loss_sum_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t loss_count_ ABSL_GUARDED_BY(mu_) = 0;
  // The measurement in progress.
  Rate rate_ ABSL_GUARDED_BY(mu_);
  absl::Time logged_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace causeway

#endif  // WORKER_TRAINING_PROGRESS_H_
