// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/island_ranks.h"

#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "proto/island.pb.h"
#include "worker/collective/communicator.h"
#include "worker/collective/culprit.h"
#include "worker/collective/device_collectives.h"
#include "worker/collective/gpu_collectives.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rank_stamps.h"
#include "worker/collective/tcp_transport.h"
#include "worker/collective/time_limit.h"
#include "worker/data/dataset.h"
#include "worker/replica/orders.h"
#include "worker/training/rank.h"

namespace causeway {
namespace {

// The key under which rank 0 leaves the run for the other ranks.
constexpr char kRunKey[] = "run";

// The key that another process than rank 0's writes once it has opened its
// data, and the one that rank 0's writes once all have.
std::string DataKey(int process) {
  return absl::StrCat("data of process ", process);
}
constexpr char kAllDataKey[] = "data of all processes";

// Repeats `call` for this key of rank 0's table until it succeeds or cannot. A
// process that is lost meanwhile is found by CrewWatch.
template <typename Call>
absl::Status Persist(const ProcessRankOptions& process, const std::string& key,
                     const Call& call) {
  while (true) {
    const absl::Status status = call(key);
    if (!absl::IsDeadlineExceeded(status) && !absl::IsUnavailable(status)) {
      return status;
    }
    if (process.pause != nullptr && !process.pause()) {
      return absl::CancelledError("stopped before the island's start");
    }
    RETURN_IF_ERROR(CheckWhileConnecting(process.rendezvous));
    LOG_EVERY_N(INFO, 50) << "waiting for the " << key;
  }
}

// Waits until all processes have opened their data, which may take one of them
// hours longer than another.
absl::Status AwaitData(const ProcessRankOptions& process) {
  Rendezvous* const table = process.rendezvous;
  const auto await = [table](const std::string& key) {
    return table->Get(key, TimeLimit::kSlice).status();
  };
  if (process.rank == 0) {
    for (int other = 1; other < process.size; ++other) {
      RETURN_IF_ERROR(Persist(process, DataKey(other), await));
    }
    return table->Put(kAllDataKey, "");
  }
  const absl::Status told =
      Persist(process, DataKey(process.rank),
              [table](const std::string& key) { return table->Put(key, ""); });
  // The answer to an earlier try may have been lost.
  if (!told.ok() && !absl::IsAlreadyExists(told)) return told;
  return Persist(process, kAllDataKey, await);
}

// The ranks on threads of this process that follow rank 0.
class Followers {
 public:
  ~Followers() { Join().IgnoreError(); }

  // The ranks' table, if all ranks are in this process.
  Rendezvous* rendezvous() { return &rendezvous_; }

  // Starts a rank: calls follow() on its own thread.
  template <typename Follow>
  void Start(Follow follow) {
    threads_.emplace_back([this, follow = std::move(follow)]() mutable {
      const absl::Status status = follow();
      LOG_IF(ERROR, !status.ok())
          << "a rank has ended: "
          << status.ToString(absl::StatusToStringMode::kWithNoExtraData);
      absl::MutexLock lock(&mu_);
      status_.Update(status);
    });
  }

  // Waits for all ranks; returns the first error.
  absl::Status Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    absl::MutexLock lock(&mu_);
    return status_;
  }

 private:
  LocalRendezvous rendezvous_;
  std::vector<std::thread> threads_;
  absl::Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<Rank::Options> OptionsFor(const v1::RunConfig& config,
                                         const IslandRanksOptions& options) {
  ASSIGN_OR_RETURN(Dataset dataset,
                   OpenDataset(config, options.data, options.data_weights));
  std::string digest = dataset.Digest();
  return Rank::Options{
      .config = config,
      .dataset = std::make_shared<const Dataset>(std::move(dataset)),
      .data_digest = std::move(digest),
      .shard = options.shard,
      .data_order = options.data_order,
      .device = options.devices[0],
      .threads = options.threads,
      .anchors_on_device = options.anchors_on_device,
      .beside_other_gpus = options.devices.size() > 1,
      // The other ranks notice a missing pulse in time.
      .pulse = options.timeout / 4,
      .now = options.now,
      .diagnosed = options.diagnosed};
}

// Returns whether all ranks of the island share a GPU, if they have one.
bool SharesGpu(const IslandRanksOptions& options, bool one_process) {
  return one_process && options.devices.size() == 1;
}

// NCCL, which is not used by ranks that all share a GPU, refuses two ranks on
// one.
absl::Status CheckRanksPerDevice(const IslandRanksOptions& options, int ranks,
                                 bool one_process) {
  if (options.devices[0].is_host() || SharesGpu(options, one_process) ||
      static_cast<size_t>(ranks) <= options.devices.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      ranks, " ranks have ", options.devices.size(),
      " GPUs in this process; allowed: a GPU for each rank, or, in an island "
      "of one process, one for all of them"));
}

// Checks that processes train on the same kind of device. Otherwise ranks on
// GPUs would begin operations that the others do not know.
absl::Status CheckDevices(const Device& own, Communicator* communicator) {
  std::vector<double> gpus(communicator->size());
  gpus[communicator->rank()] = own.is_host() ? 0 : 1;
  RETURN_IF_ERROR(communicator->AllReduce(absl::MakeSpan(gpus)));
  const auto name = [&](size_t rank) {
    return gpus[rank] == 0 ? "the CPU" : "a GPU";
  };
  for (size_t other = 1; other < gpus.size(); ++other) {
    if (gpus[other] == gpus[0]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", other, " trains on ", name(other), ", and rank 0 on ", name(0),
        ": give all processes of the island GPUs, or none (--device)"));
  }
  return absl::OkStatus();
}

// Makes rank `thread` of this process. Must run on the rank's own thread,
// because ranks wait for each other. `connect` makes a transport between all
// ranks for each name.
template <typename Connect>
absl::StatusOr<std::unique_ptr<Rank>> MakeRank(
    Rank::Options own, const IslandRanksOptions& options, int thread,
    bool one_process, Rendezvous* rendezvous, const Connect& connect) {
  own.device = options.devices[thread % options.devices.size()];
  MessageCommunicatorOptions messages = {.timeout = options.timeout,
                                         .now = options.now};
  RankCommunicators communicators;
  ASSIGN_OR_RETURN(std::unique_ptr<Transport> orders, connect("orders"));
  ASSIGN_OR_RETURN(std::unique_ptr<Transport> replica, connect("replica"));
  ASSIGN_OR_RETURN(std::unique_ptr<Transport> training, connect("training"));
  communicators.orders =
      MakeMessageCommunicator(messages, std::move(orders), rendezvous);
  if (!one_process) {
    RETURN_IF_ERROR(CheckDevices(own.device, communicators.orders.get()));
  }
  std::unique_ptr<DeviceCollectives> collectives;
  if (!own.device.is_host() && training->size() > 1) {
    absl::Status status = DescribeDevices({own.device}).status();
    if (status.ok()) {
      auto connected = ConnectGpus({.device = own.device.index,
                                    .shared = SharesGpu(options, one_process),
                                    .timeout = options.timeout,
                                    .now = options.now},
                                   communicators.orders.get(), rendezvous);
      status = connected.status();
      if (connected.ok()) collectives = *std::move(connected);
    }
    // Tell the other ranks the reason.
    if (!status.ok()) communicators.orders->Abort(status);
    RETURN_IF_ERROR(status);
  }
  messages.lane = RankLane::kTrainingCollective;
  communicators.training = MakeMessageCommunicator(
      messages, std::move(training), rendezvous, std::move(collectives));
  communicators.replica =
      MakeMessageCommunicator({.timeout = kNoLimit,
                               .now = options.now,
                               .lane = RankLane::kReplicaCollective},
                              std::move(replica), rendezvous);
  return Rank::Create(own, std::move(communicators));
}

absl::StatusOr<std::unique_ptr<Rank>> MakeRankOfProcess(
    const Rank::Options& own, const IslandRanksOptions& options,
    const ProcessRankOptions& process, int thread) {
  return MakeRank(own, options, thread, /*one_process=*/false,
                  process.rendezvous, [&](const char* name) {
                    return ConnectTcp(
                        {.rank = process.rank * process.threads + thread,
                         .size = process.size * process.threads,
                         .name = name,
                         .host = process.host,
                         .encrypt = process.encrypt,
                         .connect_timeout = process.connect_timeout,
                         .now = options.now},
                        process.rendezvous);
                  });
}

// Starts the ranks of a process from number `first` on.
void StartFollowers(const Rank::Options& own, const IslandRanksOptions& options,
                    const ProcessRankOptions& process, int first,
                    Followers& followers) {
  for (int i = first; i < process.threads; ++i) {
    followers.Start([=]() -> absl::Status {
      ASSIGN_OR_RETURN(const std::unique_ptr<Rank> rank,
                       MakeRankOfProcess(own, options, process, i));
      if (process.connected != nullptr) process.connected();
      return rank->Follow();
    });
  }
}

}  // namespace

absl::Status CheckTrainable(const v1::JoinResponse& joined) {
  if (!joined.config().has_tensors()) return absl::OkStatus();
  int tensors = 0;
  std::string first;
  for (const v1::Fragment& fragment : joined.plan().fragments()) {
    if (tensors == 0 && fragment.tensors_size() > 0) {
      first = Printable(fragment.tensors(0).name());
    }
    tensors += fragment.tensors_size();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "run ", joined.identity().run_id(), " is defined by its ", tensors,
      " tensors (", first,
      ", ...), not by a model: causeway-worker trains the "
      "models that docs/models.md names, and cannot know how these tensors are "
      "trained. Islands of this run need a trainer of their own"));
}

absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeThreadedIsland(
    const v1::RunConfig& config, const IslandRanksOptions& options, int ranks,
    std::vector<float> parameters) {
  RETURN_IF_ERROR(CheckRanksPerDevice(options, ranks, /*one_process=*/true));
  // Report errors in the data before taking memory.
  ASSIGN_OR_RETURN(Rank::Options own, OptionsFor(config, options));
  const auto followers = std::make_shared<Followers>();
  // The transports by name and by rank.
  const auto transports = std::make_shared<
      std::map<std::string, std::vector<std::unique_ptr<Transport>>>>();
  for (const char* const name : {"orders", "replica", "training"}) {
    (*transports)[name] = MakeLocalTransports(ranks);
  }
  const auto make_rank = [=, rendezvous = followers->rendezvous()](
                             const Rank::Options& own, int thread) {
    return MakeRank(
        own, options, thread, /*one_process=*/true, rendezvous,
        [&](const char* name) -> absl::StatusOr<std::unique_ptr<Transport>> {
          return std::move(transports->at(name)[thread]);
        });
  };
  for (int i = 1; i < ranks; ++i) {
    followers->Start([=]() -> absl::Status {
      ASSIGN_OR_RETURN(const std::unique_ptr<Rank> rank, make_rank(own, i));
      return rank->Follow();
    });
  }
  own.others = followers;
  ASSIGN_OR_RETURN(std::unique_ptr<Rank> rank, make_rank(own, 0));
  RETURN_IF_ERROR(rank->ShareParameters(std::move(parameters)));
  return rank;
}

absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeLeadingRank(
    const v1::RunConfig& config, const IslandRanksOptions& options,
    const ProcessRankOptions& process, std::vector<float> parameters) {
  RETURN_IF_ERROR(
      CheckRanksPerDevice(options, process.threads, /*one_process=*/false));
  // Let the others read their data at the same time, which may take minutes.
  v1::IslandRun run;
  *run.mutable_config() = config;
  run.set_shard(options.shard);
  run.set_data_order(options.data_order);
  run.set_encrypt(process.encrypt);
  RETURN_IF_ERROR(process.rendezvous->Put(kRunKey, run.SerializeAsString()));
  ASSIGN_OR_RETURN(Rank::Options own, OptionsFor(config, options));
  RETURN_IF_ERROR(AwaitData(process));
  const auto followers = std::make_shared<Followers>();
  StartFollowers(own, options, process, 1, *followers);
  own.others = followers;
  ASSIGN_OR_RETURN(std::unique_ptr<Rank> rank,
                   MakeRankOfProcess(own, options, process, 0));
  RETURN_IF_ERROR(rank->ShareParameters(std::move(parameters)));
  return rank;
}

absl::Status RunFollowingRank(IslandRanksOptions options,
                              ProcessRankOptions process) {
  RETURN_IF_ERROR(
      CheckRanksPerDevice(options, process.threads, /*one_process=*/false));
  ASSIGN_OR_RETURN(const std::string text,
                   process.rendezvous->Get(kRunKey, process.connect_timeout));
  v1::IslandRun run;
  if (!run.ParseFromString(text)) {
    return absl::DataLossError("rank 0's description of the run is damaged");
  }
  process.encrypt = run.encrypt();
  options.shard = run.shard();
  options.data_order = run.data_order();
  ASSIGN_OR_RETURN(const Rank::Options own, OptionsFor(run.config(), options));
  RETURN_IF_ERROR(AwaitData(process));
  Followers followers;
  StartFollowers(own, options, process, 0, followers);
  return followers.Join();
}

}  // namespace causeway
