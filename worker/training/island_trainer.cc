// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/island_trainer.h"

#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "proto/island.pb.h"
#include "worker/collective/gloo_transport.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/data/dataset.h"
#include "worker/replica/fragment_replica.h"
#include "worker/training/rank.h"

namespace causeway {
namespace {

// Where rank 0 leaves the run for the others.
constexpr char kRunKey[] = "run";

// Where ranks find one another for the replica. Its communicator waits without
// a limit: who is stuck or dead is found by training, which then aborts it.
constexpr char kReplicaPrefix[] = "replica/";
constexpr absl::Duration kNoLimit = absl::Hours(24 * 365);

// What outlives rank 0: the ranks that are threads, and the tables in which
// ranks find one another.
struct Followers {
  LocalRendezvous rendezvous;
  std::unique_ptr<RendezvousPart> replica_rendezvous =
      std::make_unique<RendezvousPart>(&rendezvous, kReplicaPrefix);
  std::vector<std::thread> threads;

  ~Followers() {
    for (std::thread& thread : threads) thread.join();
  }
};

class IslandTrainer : public InnerTrainer {
 public:
  // Life is shown each `period`.
  IslandTrainer(std::unique_ptr<Followers> followers,
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
      if (failure_.ok()) Note(rank_->End());
      LOG_IF(WARNING, !failure_.ok())
          << "the island's ranks did not end together: " << failure_.message();
    }
    if (pulse_.joinable()) pulse_.join();
  }

  absl::Status ShareParameters(std::vector<float> parameters) {
    return Do([&] { return rank_->ShareParameters(std::move(parameters)); });
  }

  absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>> MakeReplica(
      const v1::JoinResponse& joined) override {
    std::vector<std::unique_ptr<FragmentReplica>> replica;
    RETURN_IF_ERROR(Do([&]() -> absl::Status {
      ASSIGN_OR_RETURN(
          replica,
          rank_->MakeReplica(
              joined, {.take_snapshot =
                           [this](uint32_t fragment, bool eager) {
                             return Do([&] {
                               return rank_->TakeSnapshot(fragment, eager);
                             });
                           },
                       .apply =
                           [this](uint32_t fragment, const UpdateUse& use) {
                             return Do(
                                 [&] { return rank_->Apply(fragment, use); });
                           }}));
      return absl::OkStatus();
    }));
    return replica;
  }

  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override {
    InnerStepResult result;
    RETURN_IF_ERROR(Do([&]() -> absl::Status {
      ASSIGN_OR_RETURN(result, rank_->Step(run_step));
      return absl::OkStatus();
    }));
    return result;
  }

  absl::Status Save(TrainerState& state) override {
    return Do([&] { return rank_->Save(state); });
  }

  absl::Status Restore(const TrainerState& state) override {
    return Do([&] { return rank_->Restore(state); });
  }

 private:
  // While the outer loop keeps this rank from training.
  void ShowLife(absl::Duration period) {
    absl::MutexLock lock(&mu_);
    while (!mu_.AwaitWithTimeout(absl::Condition(&stopping_), period)) {
      if (failure_.ok()) Note(rank_->ShowLife());
    }
  }

  // Something that all ranks do together, unless they have failed.
  absl::Status Do(absl::FunctionRef<absl::Status()> work) {
    absl::MutexLock lock(&mu_);
    if (failure_.ok()) Note(work());
    return failure_;
  }

  void Note(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    failure_ = std::move(status);
    if (!failure_.ok()) rank_->Abort(failure_);
  }

  const std::unique_ptr<Followers> followers_;
  const std::unique_ptr<Rank> rank_;
  // Held by whoever uses the communicator.
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::thread pulse_;
};

absl::StatusOr<std::unique_ptr<InnerTrainer>> Lead(
    std::unique_ptr<Followers> followers, std::unique_ptr<Rank> rank,
    const IslandTrainerOptions& options, std::vector<float> parameters) {
  // Often enough for the others to hear of it in time.
  auto trainer = std::make_unique<IslandTrainer>(
      std::move(followers), std::move(rank), options.timeout / 4);
  RETURN_IF_ERROR(trainer->ShareParameters(std::move(parameters)));
  return trainer;
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

// A rank that is a process, with its connections.
struct ProcessRank {
  // Declared first: the rank uses it.
  std::unique_ptr<RendezvousPart> replica_rendezvous;
  std::unique_ptr<Rank> rank;
};

absl::StatusOr<std::unique_ptr<Communicator>> Connect(
    const IslandTrainerOptions& options, const ProcessRankOptions& process,
    absl::Duration limit, Rendezvous* rendezvous) {
  ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                   ConnectGloo({.rank = process.rank,
                                .size = process.size,
                                .host = process.host,
                                .connect_timeout = process.connect_timeout},
                               rendezvous));
  return MakeMessageCommunicator({.timeout = limit, .now = options.now},
                                 std::move(transport), rendezvous);
}

absl::StatusOr<ProcessRank> ConnectRank(const Rank::Options& rank_options,
                                        const IslandTrainerOptions& options,
                                        const ProcessRankOptions& process) {
  ProcessRank connected;
  connected.replica_rendezvous =
      std::make_unique<RendezvousPart>(process.rendezvous, kReplicaPrefix);
  Rank::Communicators communicators;
  ASSIGN_OR_RETURN(
      communicators.training,
      Connect(options, process, options.timeout, process.rendezvous));
  ASSIGN_OR_RETURN(
      communicators.replica,
      Connect(options, process, kNoLimit, connected.replica_rendezvous.get()));
  ASSIGN_OR_RETURN(connected.rank,
                   Rank::Create(rank_options, std::move(communicators)));
  return connected;
}

}  // namespace

absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeThreadedIsland(
    const v1::RunConfig& config, const IslandTrainerOptions& options, int ranks,
    std::vector<float> parameters) {
  // Everything that can be wrong with the data is said before memory is taken.
  ASSIGN_OR_RETURN(const Rank::Options rank_options,
                   OptionsFor(config, options, options.shard));
  auto followers = std::make_unique<Followers>();
  std::vector<Rank::Communicators> communicators;
  std::vector<std::unique_ptr<Transport>> transports =
      MakeLocalTransports(ranks);
  std::vector<std::unique_ptr<Transport>> replica_transports =
      MakeLocalTransports(ranks);
  for (int i = 0; i < ranks; ++i) {
    communicators.push_back(
        {.training = MakeMessageCommunicator(
             {.timeout = options.timeout, .now = options.now},
             std::move(transports[i]), &followers->rendezvous),
         .replica =
             MakeMessageCommunicator({.timeout = kNoLimit, .now = options.now},
                                     std::move(replica_transports[i]),
                                     followers->replica_rendezvous.get())});
  }
  for (int i = 1; i < ranks; ++i) {
    followers->threads.emplace_back(
        [rank_options, own = std::move(communicators[i])]() mutable {
          absl::StatusOr<std::unique_ptr<Rank>> rank =
              Rank::Create(rank_options, std::move(own));
          const absl::Status status =
              rank.ok() ? (*rank)->Follow() : rank.status();
          LOG_IF(ERROR, !status.ok()) << "a rank has ended: " << status;
        });
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Rank> rank,
                   Rank::Create(rank_options, std::move(communicators[0])));
  return Lead(std::move(followers), std::move(rank), options,
              std::move(parameters));
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
  ASSIGN_OR_RETURN(ProcessRank connected,
                   ConnectRank(rank_options, options, process));
  auto followers = std::make_unique<Followers>();
  followers->replica_rendezvous = std::move(connected.replica_rendezvous);
  return Lead(std::move(followers), std::move(connected.rank), options,
              std::move(parameters));
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
  ASSIGN_OR_RETURN(const ProcessRank connected,
                   ConnectRank(rank_options, options, process));
  LOG(INFO) << "rank " << process.rank << " of " << process.size
            << " follows rank 0";
  return connected.rank->Follow();
}

}  // namespace causeway
