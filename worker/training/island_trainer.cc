// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/island_trainer.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "proto/island.pb.h"
#include "worker/collective/gloo_transport.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/data/dataset.h"
#include "worker/training/rank.h"

namespace causeway {
namespace {

// Where rank 0 leaves the run for the others.
constexpr char kRunKey[] = "run";

// Ranks that are threads, and what they have in common.
struct FollowingThreads {
  LocalRendezvous rendezvous;
  std::vector<std::thread> threads;

  ~FollowingThreads() {
    for (std::thread& thread : threads) thread.join();
  }
};

class IslandTrainer : public InnerTrainer {
 public:
  // `followers` may be null. Life is shown each `period`.
  IslandTrainer(std::unique_ptr<FollowingThreads> followers,
                std::unique_ptr<Rank> rank, absl::Duration period)
      : followers_(std::move(followers)), rank_(std::move(rank)) {
    if (rank_->communicator().size() > 1) {
      pulse_ = std::thread([this, period] { ShowLife(period); });
    }
  }

  ~IslandTrainer() override {
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
      if (failure_.ok()) failure_ = rank_->End();
      LOG_IF(WARNING, !failure_.ok())
          << "the island's ranks did not end together: " << failure_.message();
    }
    if (pulse_.joinable()) pulse_.join();
  }

  absl::Span<float> parameters() override { return rank_->parameters(); }

  void ParametersChanged() override { changed_ = true; }

  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override {
    absl::MutexLock lock(&mu_);
    RETURN_IF_ERROR(failure_);
    if (std::exchange(changed_, false)) {
      failure_ = rank_->ShareParameters();
      RETURN_IF_ERROR(failure_);
    }
    absl::StatusOr<InnerStepResult> result = rank_->Step(run_step);
    failure_ = result.status();
    return result;
  }

  absl::Status Save(TrainerState& state) override {
    absl::MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = rank_->Save(state);
    return failure_;
  }

  absl::Status Restore(const TrainerState& state) override {
    absl::MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = rank_->Restore(state);
    return failure_;
  }

 private:
  // While the outer loop keeps this rank from training.
  void ShowLife(absl::Duration period) {
    absl::MutexLock lock(&mu_);
    while (!mu_.AwaitWithTimeout(absl::Condition(&stopping_), period)) {
      if (failure_.ok()) failure_ = rank_->ShowLife();
    }
  }

  const std::unique_ptr<FollowingThreads> followers_;
  const std::unique_ptr<Rank> rank_;
  // The other ranks have other parameters: none at first.
  bool changed_ = true;

  // Held by whoever uses the communicator.
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::thread pulse_;
};

std::unique_ptr<InnerTrainer> Lead(std::unique_ptr<FollowingThreads> followers,
                                   std::unique_ptr<Rank> rank,
                                   const IslandTrainerOptions& options,
                                   absl::Span<const float> parameters) {
  CHECK_EQ(parameters.size(), rank->parameters().size());
  std::copy(parameters.begin(), parameters.end(), rank->parameters().begin());
  // Often enough for the others to hear of it in time.
  return std::make_unique<IslandTrainer>(std::move(followers), std::move(rank),
                                         options.timeout / 4);
}

absl::StatusOr<Rank::Options> OptionsFor(const v1::RunConfig& config,
                                         const IslandTrainerOptions& options,
                                         uint32_t shard) {
  ASSIGN_OR_RETURN(Dataset dataset, OpenDataset(config, options.data));
  return Rank::Options{
      .config = config,
      .dataset = std::make_shared<const Dataset>(std::move(dataset)),
      .shard = shard,
      .device = options.device,
      .threads = options.threads,
      .now = options.now};
}

absl::StatusOr<std::unique_ptr<Communicator>> Connect(
    const IslandTrainerOptions& options, const ProcessRankOptions& process) {
  ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                   ConnectGloo({.rank = process.rank,
                                .size = process.size,
                                .host = process.host,
                                .connect_timeout = process.connect_timeout},
                               process.rendezvous));
  return MakeMessageCommunicator(
      {.timeout = options.timeout, .now = options.now}, std::move(transport),
      process.rendezvous);
}

}  // namespace

absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeThreadedIsland(
    const v1::RunConfig& config, const IslandTrainerOptions& options, int ranks,
    std::vector<float> parameters) {
  // Everything that can be wrong with the data is said before memory is taken.
  ASSIGN_OR_RETURN(const Rank::Options rank_options,
                   OptionsFor(config, options, options.shard));
  auto followers = std::make_unique<FollowingThreads>();
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (std::unique_ptr<Transport>& transport : MakeLocalTransports(ranks)) {
    communicators.push_back(MakeMessageCommunicator(
        {.timeout = options.timeout, .now = options.now}, std::move(transport),
        &followers->rendezvous));
  }
  for (int i = 1; i < ranks; ++i) {
    followers->threads.emplace_back(
        [rank_options, communicator = std::move(communicators[i])]() mutable {
          absl::StatusOr<std::unique_ptr<Rank>> rank =
              Rank::Create(rank_options, std::move(communicator));
          const absl::Status status =
              rank.ok() ? (*rank)->Follow() : rank.status();
          LOG_IF(ERROR, !status.ok()) << "a rank has ended: " << status;
        });
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Rank> rank,
                   Rank::Create(rank_options, std::move(communicators[0])));
  return Lead(std::move(followers), std::move(rank), options, parameters);
}

absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeLeadingRank(
    const v1::RunConfig& config, const IslandTrainerOptions& options,
    const ProcessRankOptions& process, std::vector<float> parameters) {
  ASSIGN_OR_RETURN(const Rank::Options rank_options,
                   OptionsFor(config, options, options.shard));
  v1::IslandRun run;
  *run.mutable_config() = config;
  run.set_shard(options.shard);
  RETURN_IF_ERROR(process.rendezvous->Put(kRunKey, run.SerializeAsString()));
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                   Connect(options, process));
  ASSIGN_OR_RETURN(std::unique_ptr<Rank> rank,
                   Rank::Create(rank_options, std::move(communicator)));
  return Lead(nullptr, std::move(rank), options, parameters);
}

absl::Status RunFollowingRank(const IslandTrainerOptions& options,
                              const ProcessRankOptions& process) {
  ASSIGN_OR_RETURN(const std::string text,
                   process.rendezvous->Get(kRunKey, process.connect_timeout));
  v1::IslandRun run;
  if (!run.ParseFromString(text)) {
    return absl::DataLossError("what rank 0 says of the run is damaged");
  }
  ASSIGN_OR_RETURN(const Rank::Options rank_options,
                   OptionsFor(run.config(), options, run.shard()));
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                   Connect(options, process));
  ASSIGN_OR_RETURN(const std::unique_ptr<Rank> rank,
                   Rank::Create(rank_options, std::move(communicator)));
  LOG(INFO) << "rank " << process.rank << " of " << process.size
            << " follows rank 0";
  return rank->Follow();
}

}  // namespace causeway
