// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of NCCL that this project calls, for ranks that are threads of
// one process, each on a device of its own. Communicators do not block: calls
// return at once, and an operation is done when all ranks have called it; their
// streams wait until then. Numbers are fp32, and sums are in the order of
// ranks.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tests/cuda_emulator/cuda_state.h"

using causeway::ptx::CurrentDevice;

namespace {

// One rank's arguments of an operation.
struct Part {
  const float* from;
  float* to;
  cudaStream_t stream;
};
Part PartOf(const void* from, void* to, cudaStream_t stream) {
  const auto& memory = causeway::ptx::TheRuntime().memory;
  return {reinterpret_cast<const float*>(memory.InHost(from)),
          reinterpret_cast<float*>(memory.InHost(to)), stream};
}
// Runs the operation for all ranks.
using Work = std::function<void(const std::vector<Part>&)>;

// The ranks that share an id.
struct Group {
  absl::Mutex mu;
  std::vector<int> devices ABSL_GUARDED_BY(mu);
  ncclResult_t state ABSL_GUARDED_BY(mu) = ncclSuccess;
  // The operations that some ranks, but not all, have called, by number.
  struct Operation {
    std::map<int, Part> parts;
  };
  std::map<uint64_t, Operation> operations ABSL_GUARDED_BY(mu);
};

absl::Mutex groups_mu(absl::kConstInit);
std::map<uint64_t, Group*>& Groups() {
  static auto& groups = *new std::map<uint64_t, Group*>;
  return groups;
}

// Writes a result after all inputs were read, so that operations may be in
// place.
void Write(const std::vector<float>& values, float* to) {
  std::copy(values.begin(), values.end(), to);
}
std::vector<float> Sum(const std::vector<Part>& parts, size_t begin,
                       size_t count) {
  std::vector<float> sum(count);
  for (const Part& part : parts) {
    for (size_t i = 0; i < count; ++i) sum[i] += part.from[begin + i];
  }
  return sum;
}

}  // namespace

struct ncclComm {
  Group* group = nullptr;
  int rank = 0;
  int size = 0;
  uint64_t operations = 0;
};

namespace {

// Joins an operation. The last rank that joins does the work.
ncclResult_t Call(ncclComm_t communicator, Part part, ncclDataType_t type,
                  const Work& work) {
  if (type != ncclFloat32) return ncclInvalidArgument;
  // This runs the operations before this one in the stream.
  if (causeway::ptx::Wait(part.stream) != cudaSuccess) {
    return ncclUnhandledCudaError;
  }
  Group& group = *communicator->group;
  absl::MutexLock lock(&group.mu);
  if (group.state != ncclSuccess) return group.state;
  const uint64_t number = communicator->operations++;
  Group::Operation& operation = group.operations[number];
  operation.parts[communicator->rank] = part;
  ++causeway::ptx::StreamOf(part.stream)->held;
  if (static_cast<int>(operation.parts.size()) < communicator->size) {
    return ncclInProgress;
  }
  std::vector<Part> parts;
  for (const auto& [rank, of_rank] : operation.parts) parts.push_back(of_rank);
  work(parts);
  for (const Part& of_rank : parts) {
    --causeway::ptx::StreamOf(of_rank.stream)->held;
  }
  group.operations.erase(number);
  return ncclSuccess;
}

}  // namespace

// The names are NCCL's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  absl::MutexLock lock(&groups_mu);
  const uint64_t number = Groups().size() + 1;
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id->internal, &number, sizeof(number));
  Groups()[number] = new Group;
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  Group* group = nullptr;
  {
    absl::MutexLock lock(&groups_mu);
    const auto found = Groups().find(number);
    if (found == Groups().end() || config->blocking != 0) {
      return ncclInvalidArgument;
    }
    group = found->second;
  }
  *communicator = new ncclComm{group, rank, size};
  absl::MutexLock lock(&group->mu);
  // Two ranks must not share a device.
  if (std::count(group->devices.begin(), group->devices.end(),
                 CurrentDevice()) > 0) {
    group->state = ncclInvalidUsage;
  }
  group->devices.push_back(CurrentDevice());
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator,
                                   ncclResult_t* state) {
  absl::MutexLock lock(&communicator->group->mu);
  *state = communicator->group->state;
  if (*state == ncclSuccess &&
      static_cast<int>(communicator->group->devices.size()) <
          communicator->size) {
    *state = ncclInProgress;
  }
  return ncclSuccess;
}

// Gives up the operations that other ranks have not joined.
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  Group& group = *communicator->group;
  {
    absl::MutexLock lock(&group.mu);
    for (auto& [number, operation] : group.operations) {
      const auto own = operation.parts.find(communicator->rank);
      if (own == operation.parts.end()) continue;
      --causeway::ptx::StreamOf(own->second.stream)->held;
      operation.parts.erase(own);
    }
  }
  delete communicator;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "an error of the emulator";
  }
}
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count,
                               ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t communicator, cudaStream_t stream) {
  return Call(communicator, PartOf(from, to, stream), type,
              [count](const std::vector<Part>& parts) {
                std::vector<std::vector<float>> sums;
                for (size_t rank = 0; rank < parts.size(); ++rank) {
                  sums.push_back(Sum(parts, rank * count, count));
                }
                for (size_t rank = 0; rank < parts.size(); ++rank) {
                  Write(sums[rank], parts[rank].to);
                }
              });
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count,
                        ncclDataType_t type, ncclRedOp_t, int root,
                        ncclComm_t communicator, cudaStream_t stream) {
  return Call(communicator, PartOf(from, to, stream), type,
              [count, root](const std::vector<Part>& parts) {
                Write(Sum(parts, 0, count), parts[root].to);
              });
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count,
                           ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  return Call(communicator, PartOf(from, to, stream), type,
              [count](const std::vector<Part>& parts) {
                std::vector<float> all;
                for (const Part& part : parts) {
                  all.insert(all.end(), part.from, part.from + count);
                }
                for (const Part& part : parts) Write(all, part.to);
              });
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count,
                           ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return Call(communicator, PartOf(from, to, stream), type,
              [count, root](const std::vector<Part>& parts) {
                const float* const values = parts[root].from;
                const std::vector<float> copy(values, values + count);
                for (const Part& part : parts) Write(copy, part.to);
              });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
