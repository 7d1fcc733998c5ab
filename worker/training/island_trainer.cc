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
#include "worker/collective/device_collectives.h"
#include "worker/collective/gloo_transport.h"
#include "worker/collective/gpu_collectives.h"
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

// What outlives rank 0: the other ranks of this process, and the tables in
// which ranks find one another.
class Followers {
 public:
  ~Followers() { Join().IgnoreError(); }

  // For ranks that are all threads of this process.
  LocalRendezvous* rendezvous() { return &rendezvous_; }
  RendezvousPart* replica_rendezvous() { return &replica_rendezvous_; }

  // A rank: follow() is called on a thread of its own.
  template <typename Follow>
  void Start(Follow follow) {
    threads_.emplace_back([this, follow = std::move(follow)]() mutable {
      const absl::Status status = follow();
      LOG_IF(ERROR, !status.ok()) << "a rank has ended: " << status;
      absl::MutexLock lock(&mu_);
      status_.Update(status);
    });
  }

  // What rank 0 uses.
  void Keep(std::unique_ptr<RendezvousPart> part) { kept_ = std::move(part); }

  // Waits for all; the first error.
  absl::Status Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    absl::MutexLock lock(&mu_);
    return status_;
  }

 private:
  LocalRendezvous rendezvous_;
  RendezvousPart replica_rendezvous_{&rendezvous_, kReplicaPrefix};
  std::unique_ptr<RendezvousPart> kept_;
  std::vector<std::thread> threads_;
  absl::Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
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
      .device = options.devices[0],
      .threads = options.threads,
      .anchors_on_device = options.anchors_on_device,
      .stochastic_rounding = options.stochastic_rounding,
      .bf16_gradients = options.bf16_gradients,
      .now = options.now};
}

// NCCL refuses two ranks on one GPU; `shared` says that there is another way.
absl::Status CheckRanksPerDevice(const IslandTrainerOptions& options, int ranks,
                                 bool shared) {
  if (options.devices[0].is_host() || shared ||
      static_cast<size_t>(ranks) <= options.devices.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      ranks, " ranks have ", options.devices.size(),
      " GPUs in this process; allowed: a GPU for each rank, or, in an island "
      "of one process, one for all of them"));
}

// Those of rank number `thread` of this process.
Rank::Options ForThread(Rank::Options rank_options,
                        const IslandTrainerOptions& options, int thread) {
  rank_options.device = options.devices[thread % options.devices.size()];
  return rank_options;
}

// A rank of one process among others, with its connections.
struct ProcessRank {
  // Declared first: the rank uses it.
  std::unique_ptr<RendezvousPart> replica_rendezvous;
  std::unique_ptr<Rank> rank;
};

absl::StatusOr<std::unique_ptr<Transport>> Connect(
    const ProcessRankOptions& process, int thread, Rendezvous* rendezvous) {
  return ConnectGloo({.rank = process.rank * process.threads + thread,
                      .size = process.size * process.threads,
                      .host = process.host,
                      .connect_timeout = process.connect_timeout},
                     rendezvous);
}

// For the rank's own thread: ranks on GPUs wait for one another here, for at
// most `connect_timeout`. `shared` says that all of them have one GPU and are
// threads of this process.
absl::StatusOr<std::unique_ptr<Communicator>> MakeTrainingCommunicator(
    const IslandTrainerOptions& options, const Device& device, bool shared,
    absl::Duration connect_timeout, std::unique_ptr<Transport> transport,
    Rendezvous* rendezvous) {
  const MessageCommunicatorOptions messages = {
      .timeout = options.timeout,
      .now = options.now,
      .rounds = options.bf16_between_ranks};
  if (device.is_host() || transport->size() == 1) {
    return MakeMessageCommunicator(messages, std::move(transport), rendezvous);
  }
  // Before the others are waited for.
  absl::StatusOr<std::unique_ptr<DeviceCollectives>> collectives =
      [&]() -> absl::StatusOr<std::unique_ptr<DeviceCollectives>> {
    RETURN_IF_ERROR(DescribeDevices({device}).status());
    return ConnectGpus({.device = device.index,
                        .shared = shared,
                        .connect_timeout = connect_timeout,
                        .now = options.now},
                       transport.get(), rendezvous);
  }();
  if (!collectives.ok()) {
    // So that the others hear why.
    MakeMessageCommunicator(messages, std::move(transport), rendezvous)
        ->Abort(collectives.status());
    return collectives.status();
  }
  return MakeMessageCommunicator(messages, std::move(transport), rendezvous,
                                 *std::move(collectives));
}

std::unique_ptr<Communicator> MakeReplicaCommunicator(
    const IslandTrainerOptions& options, std::unique_ptr<Transport> transport,
    Rendezvous* rendezvous) {
  return MakeMessageCommunicator({.timeout = kNoLimit, .now = options.now},
                                 std::move(transport), rendezvous);
}

absl::StatusOr<ProcessRank> ConnectRank(const Rank::Options& rank_options,
                                        const IslandTrainerOptions& options,
                                        const ProcessRankOptions& process,
                                        int thread) {
  ProcessRank connected;
  connected.replica_rendezvous =
      std::make_unique<RendezvousPart>(process.rendezvous, kReplicaPrefix);
  const Rank::Options own = ForThread(rank_options, options, thread);
  Rank::Communicators communicators;
  ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                   Connect(process, thread, process.rendezvous));
  ASSIGN_OR_RETURN(
      communicators.training,
      MakeTrainingCommunicator(options, own.device, /*shared=*/false,
                               process.connect_timeout, std::move(transport),
                               process.rendezvous));
  ASSIGN_OR_RETURN(
      transport, Connect(process, thread, connected.replica_rendezvous.get()));
  communicators.replica = MakeReplicaCommunicator(
      options, std::move(transport), connected.replica_rendezvous.get());
  ASSIGN_OR_RETURN(connected.rank, Rank::Create(own, std::move(communicators)));
  return connected;
}

absl::Status FollowAmongProcesses(const Rank::Options& rank_options,
                                  const IslandTrainerOptions& options,
                                  const ProcessRankOptions& process,
                                  int thread) {
  ASSIGN_OR_RETURN(const ProcessRank connected,
                   ConnectRank(rank_options, options, process, thread));
  LOG(INFO) << "rank " << connected.rank->communicator().rank() << " of "
            << connected.rank->communicator().size() << " follows rank 0";
  return connected.rank->Follow();
}

}  // namespace

absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeThreadedIsland(
    const v1::RunConfig& config, const IslandTrainerOptions& options, int ranks,
    std::vector<float> parameters) {
  const bool shared = options.devices.size() == 1;
  RETURN_IF_ERROR(CheckRanksPerDevice(options, ranks, shared));
  // Everything that can be wrong with the data is said before memory is taken.
  ASSIGN_OR_RETURN(const Rank::Options rank_options,
                   OptionsFor(config, options, options.shard));
  auto followers = std::make_unique<Followers>();
  std::vector<std::unique_ptr<Transport>> transports =
      MakeLocalTransports(ranks);
  std::vector<std::unique_ptr<Transport>> replica_transports =
      MakeLocalTransports(ranks);
  const auto make_rank = [=, tables = followers.get()](
                             int thread, std::unique_ptr<Transport> transport,
                             std::unique_ptr<Transport> replica_transport)
      -> absl::StatusOr<std::unique_ptr<Rank>> {
    const Rank::Options own = ForThread(rank_options, options, thread);
    Rank::Communicators communicators;
    ASSIGN_OR_RETURN(
        communicators.training,
        MakeTrainingCommunicator(options, own.device, shared, options.timeout,
                                 std::move(transport), tables->rendezvous()));
    communicators.replica = MakeReplicaCommunicator(
        options, std::move(replica_transport), tables->replica_rendezvous());
    return Rank::Create(own, std::move(communicators));
  };
  for (int i = 1; i < ranks; ++i) {
    followers->Start([=, transport = std::move(transports[i]),
                      replica_transport = std::move(
                          replica_transports[i])]() mutable -> absl::Status {
      ASSIGN_OR_RETURN(
          const std::unique_ptr<Rank> rank,
          make_rank(i, std::move(transport), std::move(replica_transport)));
      return rank->Follow();
    });
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<Rank> rank,
      make_rank(0, std::move(transports[0]), std::move(replica_transports[0])));
  return Lead(std::move(followers), std::move(rank), options,
              std::move(parameters));
}

absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeLeadingRank(
    const v1::RunConfig& config, const IslandTrainerOptions& options,
    const ProcessRankOptions& process, std::vector<float> parameters) {
  RETURN_IF_ERROR(
      CheckRanksPerDevice(options, process.threads, /*shared=*/false));
  ASSIGN_OR_RETURN(const Rank::Options rank_options,
                   OptionsFor(config, options, options.shard));
  v1::IslandRun run;
  *run.mutable_config() = config;
  run.set_shard(options.shard);
  RETURN_IF_ERROR(process.rendezvous->Put(kRunKey, run.SerializeAsString()));
  auto followers = std::make_unique<Followers>();
  for (int i = 1; i < process.threads; ++i) {
    followers->Start([=] {
      return FollowAmongProcesses(rank_options, options, process, i);
    });
  }
  ASSIGN_OR_RETURN(ProcessRank connected,
                   ConnectRank(rank_options, options, process, 0));
  followers->Keep(std::move(connected.replica_rendezvous));
  return Lead(std::move(followers), std::move(connected.rank), options,
              std::move(parameters));
}

absl::Status RunFollowingRank(const IslandTrainerOptions& options,
                              const ProcessRankOptions& process) {
  RETURN_IF_ERROR(
      CheckRanksPerDevice(options, process.threads, /*shared=*/false));
  ASSIGN_OR_RETURN(const std::string text,
                   process.rendezvous->Get(kRunKey, process.connect_timeout));
  v1::IslandRun run;
  if (!run.ParseFromString(text)) {
    return absl::DataLossError("what rank 0 says of the run is damaged");
  }
  ASSIGN_OR_RETURN(const Rank::Options rank_options,
                   OptionsFor(run.config(), options, run.shard()));
  Followers followers;
  for (int i = 0; i < process.threads; ++i) {
    followers.Start([&, i] {
      return FollowAmongProcesses(rank_options, options, process, i);
    });
  }
  return followers.Join();
}

}  // namespace causeway
