// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests collectives on GPUs: several ranks on one GPU, and NCCL with one rank
// on each.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cuda_status.h"
#include "common/testing/cuda_device.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/communicator.h"
#include "worker/collective/device_collectives.h"
#include "worker/collective/gpu_collectives.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"

namespace causeway {
namespace {

// The device of tests/cuda_emulator is slow.
bool IsEmulated() {
  cudaDeviceProp properties;
  return cudaGetDeviceProperties(&properties, 0) == cudaSuccess &&
         absl::StartsWith(properties.name, "emulator");
}

void ForEachRank(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

class DeviceVector {
 public:
  DeviceVector(int device, const std::vector<float>& values) {
    EXPECT_OK(CudaStatus(cudaSetDevice(device), "taking the device"));
    EXPECT_OK(CudaStatus(cudaMalloc(&memory_, Bytes(values)), "memory"));
    EXPECT_OK(CudaStatus(cudaMemcpy(memory_, values.data(), Bytes(values),
                                    cudaMemcpyHostToDevice),
                         "copying to the device"));
    size_ = values.size();
  }
  ~DeviceVector() { cudaFree(memory_); }
  DeviceVector(const DeviceVector&) = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;

  absl::Span<float> span() {
    return absl::MakeSpan(static_cast<float*>(memory_), size_);
  }
  std::vector<float> ToHost() const {
    std::vector<float> values(size_);
    EXPECT_OK(CudaStatus(cudaMemcpy(values.data(), memory_, Bytes(values),
                                    cudaMemcpyDeviceToHost),
                         "copying from the device"));
    return values;
  }

 private:
  static size_t Bytes(const std::vector<float>& values) {
    return values.size() * sizeof(float);
  }
  void* memory_ = nullptr;
  size_t size_ = 0;
};

// Returns small whole numbers: sums are exact in any order.
std::vector<float> Values(int rank, int64_t size) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) {
    values[i] = static_cast<float>((i * 31 + rank * 7) % 1000);
  }
  return values;
}

std::vector<float> Sum(int ranks, int64_t size) {
  std::vector<float> sum = Values(0, size);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<float> values = Values(rank, size);
    for (int64_t i = 0; i < size; ++i) sum[i] += values[i];
  }
  return sum;
}

// Makes a rank's device; called on its thread.
using MakeDevice =
    std::function<absl::StatusOr<std::unique_ptr<DeviceCollectives>>(int rank)>;

// Reduces and gathers vectors of several sizes on `ranks` threads, rank r on
// device_of(r), and prints the speed of the last.
void ExpectCollectivesWork(int ranks, const std::function<int(int)>& device_of,
                           const MakeDevice& make_device) {
  LocalRendezvous rendezvous;
  auto transports = MakeLocalTransports(ranks);
  ForEachRank(ranks, [&](int rank) {
    ASSERT_OK_AND_ASSIGN(std::unique_ptr<DeviceCollectives> device,
                         make_device(rank));
    const Clock now = SteadyWallClock();
    const auto communicator = MakeMessageCommunicator(
        {.timeout = absl::Seconds(60), .now = now}, std::move(transports[rank]),
        &rendezvous, std::move(device));
    // These give equal shards, unequal ones, and fewer values than ranks.
    const int64_t most = IsEmulated() ? 1 << 20 : 64 << 20;
    for (const int64_t size :
         {int64_t{1'600} * ranks, int64_t{100'003}, int64_t{1}, most}) {
      SCOPED_TRACE(absl::StrCat(size, " values, rank ", rank));
      DeviceVector vector(device_of(rank), Values(rank, size));
      const std::vector<float> sum = Sum(ranks, size);
      const Slice own = communicator->shard(size, rank);
      std::vector<float> want = Values(rank, size);
      for (int64_t i = own.begin; i < own.end; ++i) want[i] = sum[i];
      const absl::Time begin = now();
      ASSERT_OK(communicator->ReduceScatter(vector.span()));
      const absl::Time middle = now();
      ASSERT_EQ(vector.ToHost(), want);
      const absl::Time gather = now();
      ASSERT_OK(communicator->AllGather(vector.span()));
      const absl::Time end = now();
      ASSERT_EQ(vector.ToHost(), sum);
      if (rank != 0 || size < 1 << 20) continue;
      const double gigabytes = static_cast<double>(4 * size) / 1e9;
      std::cout << ranks << " ranks, " << (size >> 20)
                << " Mi values: reduce-scatter "
                << gigabytes / absl::ToDoubleSeconds(middle - begin)
                << " GB/s, all-gather "
                << gigabytes / absl::ToDoubleSeconds(end - gather)
                << " GB/s of the vector\n";
    }
  });
}

// The test needs the library, but no GPU.
TEST(NcclLibraryTest, HasAllThatIsCalled) {
  const absl::Status loaded = LoadNccl();
  if (loaded.ok()) return;
  EXPECT_THAT(loaded,
              IsFailedPrecondition(testing::StartsWith("cannot load libnccl")));
}

TEST(DeviceCollectivesCudaTest, SeveralRanksShareOneGpu) {
  SKIP_WITHOUT_CUDA_DEVICE();
  for (const int ranks : {1, 2, 4}) {
    ExpectCollectivesWork(
        ranks, [](int) { return 0; },
        [](int rank) { return MakeSharedGpuCollectives(rank, 0); });
  }
}

TEST(DeviceCollectivesCudaTest, NcclConnectsOneRankOnEachGpu) {
  SKIP_WITHOUT_CUDA_DEVICE();
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  std::vector<int> sizes = {1};
  if (devices > 1) sizes.push_back(devices);
  for (const int ranks : sizes) {
    LocalRendezvous id;
    ExpectCollectivesWork(
        ranks, [](int rank) { return rank; },
        [&](int rank) {
          return ConnectNccl({.device = rank, .now = SteadyWallClock()}, rank,
                             ranks, &id);
        });
  }
}

// Other functions of NCCL exchange shards of different sizes than shards of one
// size. The second shard belongs to a rank that is not there.
TEST(DeviceCollectivesCudaTest, NcclExchangesUnequalShardsOnOneGpu) {
  SKIP_WITHOUT_CUDA_DEVICE();
  LocalRendezvous id;
  const Clock now = SteadyWallClock();
  ASSERT_OK_AND_ASSIGN(const auto collectives,
                       ConnectNccl({.device = 0, .now = now}, 0, 1, &id));
  const std::vector<float> values = Values(0, 1000);
  DeviceVector vector(0, values);
  const DeviceVectors vectors = {.own = vector.span(),
                                 .addresses = {vector.span().data()},
                                 .shards = {{0, 1000}, {1000, 1000}}};
  ASSERT_OK(collectives->ReduceScatter(vectors, now() + absl::Seconds(60)));
  ASSERT_OK(collectives->AllGather(vectors, now() + absl::Seconds(60)));
  EXPECT_EQ(vector.ToHost(), values);
}

TEST(DeviceCollectivesCudaTest, NcclRefusesTwoRanksOnOneGpu) {
  SKIP_WITHOUT_CUDA_DEVICE();
  LocalRendezvous id;
  ForEachRank(2, [&](int rank) {
    EXPECT_FALSE(
        ConnectNccl({.timeout = absl::Seconds(20), .now = SteadyWallClock()},
                    rank, 2, &id)
            .ok());
  });
}

TEST(DeviceCollectivesCudaTest, NcclDoesNotWaitForARankForever) {
  SKIP_WITHOUT_CUDA_DEVICE();
  LocalRendezvous id;
  EXPECT_THAT(
      ConnectNccl({.timeout = absl::Seconds(3), .now = SteadyWallClock()}, 0, 2,
                  &id),
      IsDeadlineExceeded());
}

TEST(DeviceCollectivesCudaTest, SaysThatThereIsNoDriver) {
  if (CudaDevice().ok()) GTEST_SKIP() << "there is a device";
  EXPECT_THAT(MakeSharedGpuCollectives(0, 0).status(), IsFailedPrecondition());
  LocalRendezvous id;
  EXPECT_FALSE(ConnectNccl({.now = SteadyWallClock()}, 0, 1, &id).ok());
}

}  // namespace
}  // namespace causeway
