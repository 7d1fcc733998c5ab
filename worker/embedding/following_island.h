// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_EMBEDDING_FOLLOWING_ISLAND_H_
#define WORKER_EMBEDDING_FOLLOWING_ISLAND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/coordinator.pb.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/time_limit.h"
#include "worker/embedding/embedded_island.h"
#include "worker/embedding/embedded_rank.h"
#include "worker/embedding/local_tensors.h"
#include "worker/inner_trainer.h"

namespace causeway {

// A rank that follows rank 0. Its own thread carries out the orders, and
// touches the tensors only while the training loop is in NextStep or Save.
class FollowingIsland : public EmbeddedIsland {
 public:
  // Waits for rank 0's rendezvous.
  static absl::StatusOr<std::unique_ptr<EmbeddedIsland>> Open(
      const EmbeddedIslandOptions& options);
  ~FollowingIsland() override;

  const char* leader() const override { return options_.leader.c_str(); }
  absl::Status AwaitRun(absl::Duration timeout) override;
  absl::Status Attach(const std::vector<TensorBuffer>& buffers) override;
  void SetStream(void* stream) override { tensors_->SetStream(stream); }
  absl::StatusOr<std::optional<uint64_t>> NextStep(
      absl::Duration timeout) override;
  void Stepped(const InnerStepResult& result) override;
  void SettleFirst() override;
  void Fail(const absl::Status& status) override;
  absl::Status Failure() override;
  absl::Status Save(const std::string& directory) override;

  void RequestLeave(absl::string_view /*reason*/) override {}
  absl::StatusOr<v1::IslandProgress> Progress() override { return OnlyRank0(); }
  std::string Activity() const override { return "following rank 0"; }
  absl::Duration Waited() const override { return absl::ZeroDuration(); }
  absl::Status ReadMerged(absl::Span<float> /*model*/) override {
    return OnlyRank0();
  }

 private:
  FollowingIsland(EmbeddedIslandOptions options,
                  std::unique_ptr<Rendezvous> rendezvous)
      : options_(std::move(options)), rendezvous_(std::move(rendezvous)) {}

  absl::Status OnlyRank0() const;
  // Returns a time limit for another rank, or for the training loop.
  TimeLimit Limit() const {
    return {options_.rank_timeout, &options_.connection.now};
  }
  // Returns whether rank 0 has said that there are no more steps.
  bool is_over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return ordered_ == EmbeddedRank::kFinished ||
           ordered_ == EmbeddedRank::kLeft;
  }
  // Ends this rank, and with it the island.
  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // On the thread.
  absl::Status Follow();
  absl::Status Train(uint64_t step);
  void Saved();
  // Waits until the training loop stops using the tensors.
  //   DEADLINE_EXCEEDED  The loop must hang: rank 0 has long had other orders.
  absl::Status AwaitTensors();

  EmbeddedIslandOptions options_;
  const std::unique_ptr<Rendezvous> rendezvous_;
  std::optional<LocalTensors> tensors_;
  std::thread thread_;

  absl::Mutex mu_;
  // Null before the ranks are connected, and after the thread has ended.
  EmbeddedRank* rank_ ABSL_GUARDED_BY(mu_) = nullptr;
  // The step that rank 0 has ordered but NextStep has not returned yet.
  std::optional<uint64_t> ordered_ ABSL_GUARDED_BY(mu_);
  // The last step that was ordered.
  uint64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  // Say whether the training loop is in a step, and in Save within it.
  bool in_step_ ABSL_GUARDED_BY(mu_) = false;
  bool in_save_ ABSL_GUARDED_BY(mu_) = false;
  // The status with which rank 0's orders have ended, if they have.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace causeway

#endif  // WORKER_EMBEDDING_FOLLOWING_ISLAND_H_
