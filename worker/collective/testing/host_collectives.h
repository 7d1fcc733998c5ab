// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Device collectives for tests, with the host as the device that all ranks
// share. A failing rank may free memory that another still reads: unlike a
// GPU's runtime, the host does not wait for the reader.
#ifndef WORKER_COLLECTIVE_TESTING_HOST_COLLECTIVES_H_
#define WORKER_COLLECTIVE_TESTING_HOST_COLLECTIVES_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/collective/device_collectives.h"

namespace causeway {

class HostCollectives : public DeviceCollectives {
 public:
  explicit HostCollectives(int rank) : rank_(rank) {}

  // Adds in order of rank.
  absl::Status ReduceScatter(const DeviceVectors& vectors,
                             absl::Time /*deadline*/) override {
    const Slice& shard = vectors.shards[rank_];
    for (int64_t i = shard.begin; i < shard.end; ++i) {
      float sum = vectors.addresses[0][i];
      for (size_t rank = 1; rank < vectors.addresses.size(); ++rank) {
        sum += vectors.addresses[rank][i];
      }
      vectors.own[i] = sum;
    }
    return absl::OkStatus();
  }
  absl::Status AllGather(const DeviceVectors& vectors,
                         absl::Time /*deadline*/) override {
    for (size_t rank = 0; rank < vectors.shards.size(); ++rank) {
      const Slice& shard = vectors.shards[rank];
      if (static_cast<int>(rank) == rank_) continue;
      std::copy_n(vectors.addresses[rank] + shard.begin, shard.size(),
                  vectors.own.data() + shard.begin);
    }
    return absl::OkStatus();
  }
  void Abort() override {}

 private:
  const int rank_;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_TESTING_HOST_COLLECTIVES_H_
