// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// NCCL chooses the order of sums; all ranks get the same bits. A rank that
// vanishes leaves NCCL's kernels spinning on the other GPUs. NCCL's
// communicator is therefore non-blocking: this rank polls it and its own
// stream, and aborts it at the deadline or at the first error. Messages then
// find the culprit (message_communicator.h).
#include "worker/collective/gpu_collectives.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/cuda_status.h"
#include "common/os/shared_library.h"
#include "common/status_macros.h"
#include "worker/collective/time_limit.h"

namespace causeway {
namespace {

// The key under which rank 0 leaves NCCL's id.
constexpr char kIdKey[] = "nccl/id";

// The pause between polls: short beside a collective, long beside a poll.
constexpr absl::Duration kPollPause = absl::Microseconds(50);

// The functions of NCCL that we call.
struct NcclLibrary {
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init_rank;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) get_async_error;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclReduce) reduce;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclBroadcast) broadcast;
};

absl::StatusOr<NcclLibrary> LoadLibrary() {
  // Loads the release that this program was compiled for.
  ASSIGN_OR_RETURN(
      const SharedLibrary library,
      LoadCudaLibrary("libnccl", NCCL_MAJOR,
                      absl::StrCat("ranks on several GPUs need NVIDIA's NCCL ",
                                   NCCL_MAJOR, ": install it")));
  NcclLibrary functions = {};
  absl::Status status;
  const auto find = [&](const char* name, auto& function) {
    status.Update(library.Find(name, function));
  };
  find("ncclGetUniqueId", functions.get_unique_id);
  find("ncclCommInitRankConfig", functions.init_rank);
  find("ncclCommAbort", functions.abort);
  find("ncclCommGetAsyncError", functions.get_async_error);
  find("ncclGetErrorString", functions.error_string);
  find("ncclGetLastError", functions.last_error);
  find("ncclGroupStart", functions.group_start);
  find("ncclGroupEnd", functions.group_end);
  find("ncclReduceScatter", functions.reduce_scatter);
  find("ncclReduce", functions.reduce);
  find("ncclAllGather", functions.all_gather);
  find("ncclBroadcast", functions.broadcast);
  RETURN_IF_ERROR(status);
  return functions;
}

// Returns the library, which is loaded once for the process and never unloaded.
absl::StatusOr<const NcclLibrary*> Nccl() {
  static const auto& library = *new absl::StatusOr<NcclLibrary>(LoadLibrary());
  RETURN_IF_ERROR(library.status());
  return &*library;
}

absl::StatusCode CodeOf(ncclResult_t result) {
  switch (result) {
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return absl::StatusCode::kFailedPrecondition;
    case ncclSystemError:
    case ncclRemoteError:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

// Returns whether a call has failed; one in progress has not.
bool Failed(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

absl::Status NcclStatus(const NcclLibrary& nccl, ncclResult_t result,
                        absl::string_view doing) {
  if (!Failed(result)) return absl::OkStatus();
  // Describes the last error of this process.
  const absl::string_view detail = nccl.last_error(nullptr);
  return absl::Status(
      CodeOf(result),
      absl::StrCat(doing, ": NCCL says: ", nccl.error_string(result),
                   detail.empty() ? "" : "; ", detail));
}

absl::StatusOr<ncclUniqueId> ExchangeId(const NcclLibrary& nccl,
                                        const GpuCollectivesOptions& options,
                                        int rank, Rendezvous* rendezvous) {
  ncclUniqueId id;
  if (rank == 0) {
    RETURN_IF_ERROR(NcclStatus(nccl, nccl.get_unique_id(&id), "making an id"));
    RETURN_IF_ERROR(rendezvous->Put(
        kIdKey, absl::string_view(id.internal, sizeof(id.internal))));
    return id;
  }
  ASSIGN_OR_RETURN(const std::string bytes,
                   rendezvous->Get(kIdKey, options.timeout));
  if (bytes.size() != sizeof(id.internal)) {
    return absl::DataLossError(absl::StrCat(
        "rank 0's NCCL id has ", bytes.size(), " bytes, not ",
        sizeof(id.internal), ": the ranks have different versions of NCCL"));
  }
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

class NcclCollectives : public DeviceCollectives {
 public:
  NcclCollectives(const NcclLibrary* nccl, const GpuCollectivesOptions& options,
                  int rank, int size)
      : nccl_(*nccl), options_(options), rank_(rank), size_(size) {}

  ~NcclCollectives() override {
    if (communicator_ != nullptr) {
      // Destroying would wait for peers that may be gone.
      nccl_.abort(communicator_);
    }
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Connect(const ncclUniqueId& id) {
    RETURN_IF_ERROR(UseDevice());
    // All ranks wait for a collective, so its blocks have priority.
    int least = 0;
    int greatest = 0;
    RETURN_IF_ERROR(
        CudaStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                   "querying stream priorities"));
    RETURN_IF_ERROR(CudaStatus(
        cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
        "making the stream of collectives"));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    RETURN_IF_ERROR(
        Check(nccl_.init_rank(&communicator_, size_, id, rank_, &config),
              "connecting the ranks' GPUs"));
    TimeLimit limit(options_.timeout, &options_.now);
    return AwaitLaunch(limit, "connecting the ranks' GPUs");
  }

  absl::Status ReduceScatter(const DeviceVectors& vectors,
                             absl::Time deadline) override {
    constexpr absl::string_view kDoing = "reduce-scatter on the GPUs";
    return Run(deadline, kDoing, [&]() -> ncclResult_t {
      float* const values = vectors.own.data();
      if (AreEqual(vectors.shards)) {
        const Slice& own = vectors.shards[rank_];
        return nccl_.reduce_scatter(values, values + own.begin, own.size(),
                                    ncclFloat32, ncclSum, communicator_,
                                    stream_);
      }
      return ForEachShard(vectors, [&](int root, float* shard, size_t size) {
        return nccl_.reduce(shard, shard, size, ncclFloat32, ncclSum, root,
                            communicator_, stream_);
      });
    });
  }

  absl::Status AllGather(const DeviceVectors& vectors,
                         absl::Time deadline) override {
    constexpr absl::string_view kDoing = "all-gather on the GPUs";
    return Run(deadline, kDoing, [&]() -> ncclResult_t {
      float* const values = vectors.own.data();
      if (AreEqual(vectors.shards)) {
        const Slice& own = vectors.shards[rank_];
        return nccl_.all_gather(values + own.begin, values, own.size(),
                                ncclFloat32, communicator_, stream_);
      }
      return ForEachShard(vectors, [&](int root, float* shard, size_t size) {
        return nccl_.broadcast(shard, shard, size, ncclFloat32, root,
                               communicator_, stream_);
      });
    });
  }

  void Abort() override { aborted_ = true; }

 private:
  absl::Status Check(ncclResult_t result, absl::string_view doing) const {
    return NcclStatus(nccl_, result, doing);
  }

  absl::Status UseDevice() {
    return CudaStatus(cudaSetDevice(options_.device),
                      absl::StrCat("selecting device ", options_.device));
  }

  // NCCL's own operations take consecutive parts of one size.
  static bool AreEqual(const std::vector<Slice>& shards) {
    return std::all_of(shards.begin(), shards.end(), [&](const Slice& shard) {
      return shard.size() == shards[0].size();
    });
  }

  // Calls operation(rank, shard, size) for all ranks as one NCCL operation.
  template <typename Operation>
  ncclResult_t ForEachShard(const DeviceVectors& vectors, Operation operation) {
    ncclResult_t result = nccl_.group_start();
    for (int rank = 0; rank < size_; ++rank) {
      const Slice& shard = vectors.shards[rank];
      if (shard.size() == 0 || Failed(result)) continue;
      result = operation(rank, vectors.own.data() + shard.begin,
                         static_cast<size_t>(shard.size()));
    }
    const ncclResult_t ended = nccl_.group_end();
    return Failed(result) ? result : ended;
  }

  template <typename Launch>
  absl::Status Run(absl::Time deadline, absl::string_view doing,
                   Launch launch) {
    // The device is not yet current in the communicator's thread.
    RETURN_IF_ERROR(UseDevice());
    TimeLimit limit(deadline - options_.now(), &options_.now);
    absl::Status status = Check(launch(), doing);
    if (status.ok()) status = AwaitLaunch(limit, doing);
    if (status.ok()) status = AwaitStream(limit, doing);
    if (!status.ok()) {
      // Ends the kernels that wait for other ranks, and thus the stream's work.
      nccl_.abort(std::exchange(communicator_, nullptr));
    }
    return status;
  }

  // Returns the communicator's state: ncclInProgress while a call is in
  // progress.
  absl::StatusOr<ncclResult_t> Poll(TimeLimit& limit, absl::string_view doing) {
    if (aborted_) return absl::AbortedError(absl::StrCat(doing, ": given up"));
    ncclResult_t state = ncclSuccess;
    RETURN_IF_ERROR(Check(nccl_.get_async_error(communicator_, &state), doing));
    RETURN_IF_ERROR(Check(state, doing));
    if (limit.IsOver()) {
      return absl::DeadlineExceededError(absl::StrCat(
          doing, ": not done in time, though every rank has begun it"));
    }
    return state;
  }

  absl::Status AwaitLaunch(TimeLimit& limit, absl::string_view doing) {
    while (true) {
      ASSIGN_OR_RETURN(const ncclResult_t state, Poll(limit, doing));
      if (state == ncclSuccess) return absl::OkStatus();
      absl::SleepFor(kPollPause);
    }
  }

  absl::Status AwaitStream(TimeLimit& limit, absl::string_view doing) {
    while (true) {
      const cudaError_t done = cudaStreamQuery(stream_);
      if (done == cudaSuccess) return absl::OkStatus();
      if (done != cudaErrorNotReady) return CudaStatus(done, doing);
      RETURN_IF_ERROR(Poll(limit, doing).status());
      absl::SleepFor(kPollPause);
    }
  }

  const NcclLibrary& nccl_;
  const GpuCollectivesOptions options_;
  const int rank_;
  const int size_;
  cudaStream_t stream_ = nullptr;
  // Null before Connect and after an error.
  ncclComm_t communicator_ = nullptr;
  std::atomic<bool> aborted_ = false;
};

}  // namespace

absl::Status LoadNccl() { return Nccl().status(); }

absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectNccl(
    const GpuCollectivesOptions& options, int rank, int size,
    Rendezvous* rendezvous) {
  ASSIGN_OR_RETURN(const NcclLibrary* const nccl, Nccl());
  auto collectives =
      std::make_unique<NcclCollectives>(nccl, options, rank, size);
  ASSIGN_OR_RETURN(const ncclUniqueId id,
                   ExchangeId(*nccl, options, rank, rendezvous));
  RETURN_IF_ERROR(collectives->Connect(id));
  return collectives;
}

absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectGpus(
    const GpuCollectivesOptions& options, Communicator* communicator,
    Rendezvous* rendezvous) {
  if (options.shared) {
    return MakeSharedGpuCollectives(communicator->rank(), options.device);
  }
  RETURN_IF_ERROR(LoadNccl());
  RETURN_IF_ERROR(communicator->AllToAll({}, {}));
  return ConnectNccl(options, communicator->rank(), communicator->size(),
                     rendezvous);
}

}  // namespace causeway
