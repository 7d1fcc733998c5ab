// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes the outer steps of closed rounds: merges the contributions, makes the
// new version durable, has it committed, and publishes it, as
// server/rules/commit_sequence.h says.
//
// Threads:
//   * the merge threads make outer steps, so that a merge never delays a
//     heartbeat. Each makes one on a fragment of its own: while it waits for
//     the disk or for followers, others compute;
//   * the prepare thread begins to write contributions to the disk, so that no
//     island waits for a busy disk.
//
// Thread-safe.
#ifndef SERVER_OUTER_STEPS_H_
#define SERVER_OUTER_STEPS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/os/thread_pool.h"
#include "outer_optimizer/outer_step.h"
#include "proto/coordinator.pb.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"
#include "proto/status.pb.h"
#include "server/buffer_pool.h"
#include "server/fragment_heads.h"
#include "server/replication/log_feed.h"
#include "server/rules/effects.h"
#include "server/rules/log_batch.h"
#include "server/staging.h"
#include "server/storage/state_directory.h"

namespace causeway {

class OuterSteps {
 public:
  struct Options {
    v1::RunConfig config;
    v1::FragmentPlan plan;
    Clock now;
    // The threads that compute an outer step, at least 1.
    int threads = 1;
    // The folder to which the kernel may write memory; empty for none.
    std::string memory_dir;
  };
  // The outer steps work on these, which must outlive them.
  struct Stores {
    StateDirectory& state;
    FragmentHeads& heads;
    LogFeed& feed;
    Staging& staging;
  };
  // Merge threads call these, without a lock, to ask and tell the rules.
  struct Rules {
    // Begins the commit of a version. Returns the batch for the log
    // (Journal::BeginCommit).
    std::function<absl::StatusOr<LogBatch>(
        const ClosedRound& closed, const OuterStepOutcome& outcome,
        absl::Span<const float> shares, CommitRecord commit)>
        begin_commit;
    // Writes the batch of a commit to the log.
    std::function<absl::Status(const LogBatch& batch)> write;
    // Waits until it is found out whether the commit, whose write ended with
    // `unknown`, succeeded, and returns the outcome. Must return soon once Stop
    // is about to be called.
    std::function<absl::Status(const ClosedRound& closed,
                               const absl::Status& unknown)>
        await_outcome;
    // Takes the result of an outer step.
    std::function<void(const ClosedRound& closed,
                       const absl::StatusOr<OuterStepOutcome>& outcome)>
        ended;
  };

  OuterSteps(Options options, Stores stores);
  ~OuterSteps() { Stop(); }

  void Start(Rules rules);
  // Waits for the outer steps under way; begins no others.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // Makes outer steps of more rounds.
  void Add(absl::Span<const ClosedRound> rounds) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    closed_.insert(closed_.end(), rounds.begin(), rounds.end());
  }
  // Has a large verified contribution written to the disk if its fragment's
  // next merge may record it. `ready` returns the number of ready islands,
  // about as many as that merge has contributions.
  void Prepare(const v1::ContributionHeader& header,
               absl::FunctionRef<uint32_t()> ready) ABSL_LOCKS_EXCLUDED(mu_);
  // Describes the outer steps since the start of this process.
  void Describe(v1::RunStatus& status) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A version that an outer step has made.
  struct MadeVersion;

  // Waits for work in a queue and removes it; returns none after Stop.
  template <typename Work>
  std::optional<Work> AwaitNext(std::deque<Work> OuterSteps::*queue)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Execute(const ClosedRound& closed) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<MadeVersion> Merge(const ClosedRound& closed)
      ABSL_LOCKS_EXCLUDED(merge_mu_);
  // Merges, makes the result durable, and publishes it.
  absl::StatusOr<OuterStepOutcome> MakeVersion(const ClosedRound& closed);
  // Shows followers the record of the merge, and makes it durable.
  absl::Status WriteMerge(const ClosedRound& closed, MadeVersion& made);
  absl::Status WriteCommit(const ClosedRound& closed, MadeVersion& made);
  void WritePrepared(const v1::ContributionHeader& header);

  const Options options_;
  const Stores stores_;
  // One for each fragment.
  const std::vector<OuterStepOptions> step_options_;
  Rules rules_;
  // Held while values are merged. Merges take turns with all threads: the first
  // is done earlier than if they shared the threads, and the last no later.
  absl::Mutex merge_mu_;
  ThreadPool merge_pool_ ABSL_GUARDED_BY(merge_mu_);
  // Memory for reuse, of versions and updates that are no longer read.
  BufferPool memory_;

  mutable absl::Mutex mu_;
  std::deque<ClosedRound> closed_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::ContributionHeader> verified_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // The sum of inner steps times the fragment's values, over the contributions
  // merged.
  double merged_step_values_ ABSL_GUARDED_BY(mu_) = 0;
  v1::DurationHistogram durations_ ABSL_GUARDED_BY(mu_);
  v1::DurationHistogram commits_ ABSL_GUARDED_BY(mu_);

  std::vector<std::thread> threads_;
};

}  // namespace causeway

#endif  // SERVER_OUTER_STEPS_H_
