// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/nccl_collectives.h"

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
#include "common/status_macros.h"
#include "worker/collective/nccl_library.h"

namespace causeway {
namespace {

// The key under which rank 0 leaves NCCL's id.
constexpr char kIdKey[] = "nccl/id";

// The pause between polls: short beside a collective, long beside a poll.
constexpr absl::Duration kPollPause = absl::Microseconds(50);

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
                                        const NcclOptions& options,
                                        Rendezvous* rendezvous) {
  ncclUniqueId id;
  if (options.rank == 0) {
    RETURN_IF_ERROR(NcclStatus(nccl, nccl.get_unique_id(&id), "making an id"));
    RETURN_IF_ERROR(rendezvous->Put(
        kIdKey, absl::string_view(id.internal, sizeof(id.internal))));
    return id;
  }
  ASSIGN_OR_RETURN(const std::string bytes,
                   rendezvous->Get(kIdKey, options.connect_timeout));
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
  NcclCollectives(const NcclLibrary* nccl, const NcclOptions& options)
      : nccl_(*nccl), options_(options) {}

  ~NcclCollectives() override {
    if (communicator_ != nullptr) {
      // Destroying would wait for peers that may be gone.
      nccl_.abort(communicator_);
    }
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Connect(const ncclUniqueId& id) {
    RETURN_IF_ERROR(UseDevice());
    RETURN_IF_ERROR(
        CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                   "making the stream of collectives"));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    RETURN_IF_ERROR(Check(nccl_.init_rank(&communicator_, options_.size, id,
                                          options_.rank, &config),
                          "connecting the ranks' GPUs"));
    return AwaitLaunch(options_.now() + options_.connect_timeout,
                       "connecting the ranks' GPUs");
  }

  absl::Status ReduceScatter(const DeviceVectors& vectors,
                             absl::Time deadline) override {
    constexpr absl::string_view kDoing = "reduce-scatter on the GPUs";
    return Run(deadline, kDoing, [&]() -> ncclResult_t {
      float* const values = vectors.own.data();
      if (AreEqual(vectors.shards)) {
        const Slice& own = vectors.shards[options_.rank];
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
        const Slice& own = vectors.shards[options_.rank];
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
                      absl::StrCat("taking device ", options_.device));
  }

  // NCCL's own operations take consecutive parts of one size.
  static bool AreEqual(const std::vector<Slice>& shards) {
    return std::all_of(shards.begin(), shards.end(), [&](const Slice& shard) {
      return shard.size() == shards[0].size();
    });
  }

  // Calls operation(rank, its shard, values) for all ranks as one NCCL
  // operation.
  template <typename Operation>
  ncclResult_t ForEachShard(const DeviceVectors& vectors, Operation operation) {
    ncclResult_t result = nccl_.group_start();
    for (int rank = 0; rank < options_.size; ++rank) {
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
    absl::Status status = Check(launch(), doing);
    if (status.ok()) status = AwaitLaunch(deadline, doing);
    if (status.ok()) status = AwaitStream(deadline, doing);
    if (!status.ok()) {
      // Ends the kernels that wait for other ranks, and thus the stream's work.
      nccl_.abort(std::exchange(communicator_, nullptr));
    }
    return status;
  }

  // Returns the communicator's state: ncclInProgress while a call is in
  // progress.
  absl::StatusOr<ncclResult_t> Poll(absl::Time deadline,
                                    absl::string_view doing) {
    if (aborted_) return absl::AbortedError(absl::StrCat(doing, ": given up"));
    ncclResult_t state = ncclSuccess;
    RETURN_IF_ERROR(Check(nccl_.get_async_error(communicator_, &state), doing));
    RETURN_IF_ERROR(Check(state, doing));
    if (options_.now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          doing, ": not done in time, though every rank has begun it"));
    }
    return state;
  }

  absl::Status AwaitLaunch(absl::Time deadline, absl::string_view doing) {
    while (true) {
      ASSIGN_OR_RETURN(const ncclResult_t state, Poll(deadline, doing));
      if (state == ncclSuccess) return absl::OkStatus();
      absl::SleepFor(kPollPause);
    }
  }

  absl::Status AwaitStream(absl::Time deadline, absl::string_view doing) {
    while (true) {
      const cudaError_t done = cudaStreamQuery(stream_);
      if (done == cudaSuccess) return absl::OkStatus();
      if (done != cudaErrorNotReady) return CudaStatus(done, doing);
      RETURN_IF_ERROR(Poll(deadline, doing).status());
      absl::SleepFor(kPollPause);
    }
  }

  const NcclLibrary& nccl_;
  const NcclOptions options_;
  cudaStream_t stream_ = nullptr;
  // Null before Connect and after an error.
  ncclComm_t communicator_ = nullptr;
  std::atomic<bool> aborted_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceCollectives>> ConnectNccl(
    const NcclOptions& options, Rendezvous* rendezvous) {
  ASSIGN_OR_RETURN(const NcclLibrary* const nccl, LoadNccl());
  auto collectives = std::make_unique<NcclCollectives>(nccl, options);
  ASSIGN_OR_RETURN(const ncclUniqueId id,
                   ExchangeId(*nccl, options, rendezvous));
  RETURN_IF_ERROR(collectives->Connect(id));
  return collectives;
}

}  // namespace causeway
