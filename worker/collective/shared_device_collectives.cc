// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/shared_device_collectives.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "common/status_macros.h"

namespace causeway {
namespace {

class HostMemory : public DeviceMemory {
 public:
  absl::Status Sum(absl::Span<const float* const> from, int64_t size,
                   float* to) override {
    for (int64_t i = 0; i < size; ++i) {
      float sum = from[0][i];
      for (size_t j = 1; j < from.size(); ++j) sum += from[j][i];
      to[i] = sum;
    }
    return absl::OkStatus();
  }
  absl::Status Copy(const float* from, int64_t size, float* to) override {
    std::copy_n(from, size, to);
    return absl::OkStatus();
  }
};

class SharedDeviceCollectives : public DeviceCollectives {
 public:
  SharedDeviceCollectives(int rank, std::unique_ptr<DeviceMemory> memory)
      : rank_(rank), memory_(std::move(memory)) {}

  // A rank writes to its own shard only, which nobody else reads here.
  absl::Status ReduceScatter(const DeviceVectors& vectors,
                             absl::Time /*deadline*/) override {
    RETURN_IF_ERROR(CheckNotAborted());
    const Slice& shard = vectors.shards[rank_];
    if (shard.size() == 0) return absl::OkStatus();
    std::vector<const float*> from;
    for (const float* address : vectors.addresses) {
      from.push_back(address + shard.begin);
    }
    return memory_->Sum(from, shard.size(), vectors.own.data() + shard.begin);
  }

  // Here everybody reads the own shards, and writes to the others.
  absl::Status AllGather(const DeviceVectors& vectors,
                         absl::Time /*deadline*/) override {
    for (size_t peer = 0; peer < vectors.shards.size(); ++peer) {
      RETURN_IF_ERROR(CheckNotAborted());
      const Slice& shard = vectors.shards[peer];
      if (static_cast<int>(peer) == rank_ || shard.size() == 0) continue;
      RETURN_IF_ERROR(memory_->Copy(vectors.addresses[peer] + shard.begin,
                                    shard.size(),
                                    vectors.own.data() + shard.begin));
    }
    return absl::OkStatus();
  }

  void Abort() override { aborted_ = true; }

 private:
  absl::Status CheckNotAborted() const {
    return aborted_ ? absl::AbortedError("the operation was given up")
                    : absl::OkStatus();
  }

  const int rank_;
  const std::unique_ptr<DeviceMemory> memory_;
  std::atomic<bool> aborted_ = false;
};

}  // namespace

std::unique_ptr<DeviceMemory> MakeHostMemory() {
  return std::make_unique<HostMemory>();
}

std::unique_ptr<DeviceCollectives> MakeSharedDeviceCollectives(
    int rank, std::unique_ptr<DeviceMemory> memory) {
  return std::make_unique<SharedDeviceCollectives>(rank, std::move(memory));
}

}  // namespace causeway
