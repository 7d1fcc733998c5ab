// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests that a training loop's tensors on a GPU give the same bits as tensors
// in host memory, whether the replica's parts are on the device or in host
// memory.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/run_config.h"
#include "common/tensors/tensors_layout.h"
#include "common/testing/cuda_device.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "worker/collective/rendezvous.h"
#include "worker/embedding/embedded_rank.h"
#include "worker/embedding/local_tensors.h"
#include "worker/replica/device/device_queue.h"
#include "worker/replica/testing/local_communicators.h"

namespace causeway {
namespace {

constexpr char kConfig[] = R"pb(
  name: "run"
  tensors {
    sequence_length: 8
    tensor { name: "a" shape: 65 shape: 127 }
    tensor { name: "h.0.w" shape: 130 shape: 200 }
    tensor { name: "h.1.w" shape: 3 }
  }
  training { total_steps: 100 batch_size: 1 }
  synchronization {
    inner_steps_per_round: 10
    fragments: 2
    overlap_steps: 2
    uplink_format: INT4
  }
)pb";

// Memory of the device with the values of a tensor.
class DeviceTensor {
 public:
  DeviceTensor(const std::vector<char>& bytes) : bytes_(bytes.size()) {
    EXPECT_EQ(cudaMalloc(&memory_, bytes_), cudaSuccess);
    Set(bytes);
  }
  ~DeviceTensor() { cudaFree(memory_); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  void* memory() const { return memory_; }
  std::vector<char> Get() const {
    std::vector<char> bytes(bytes_);
    EXPECT_EQ(cudaMemcpy(bytes.data(), memory_, bytes_, cudaMemcpyDefault),
              cudaSuccess);
    return bytes;
  }
  // Returns at once: the copy is in the stream.
  void Set(const std::vector<char>& bytes, cudaStream_t stream = nullptr) {
    EXPECT_EQ(cudaMemcpyAsync(memory_, bytes.data(), bytes_, cudaMemcpyDefault,
                              stream),
              cudaSuccess);
  }

 private:
  void* memory_ = nullptr;
  const size_t bytes_;
};

struct Case {
  ElementType type;
  bool anchors_on_device = false;
};

class EmbeddedRankCudaTest : public testing::TestWithParam<Case> {
 protected:
  // An island of one rank, with its tensors.
  struct Rank {
    std::vector<std::vector<char>> host;
    std::vector<std::unique_ptr<DeviceTensor>> device;
    // Training writes the tensors on this stream.
    cudaStream_t stream = nullptr;
    std::optional<LocalTensors> tensors;
    LocalRendezvous rendezvous;
    std::unique_ptr<EmbeddedRank> rank;
    std::vector<std::unique_ptr<FragmentReplica>> fragments;

    std::vector<char> Bytes(size_t tensor) const {
      return device.empty() ? host[tensor] : device[tensor]->Get();
    }
    void Set(size_t tensor, const std::vector<char>& bytes) {
      if (device.empty()) {
        std::memcpy(host[tensor].data(), bytes.data(), bytes.size());
      } else {
        device[tensor]->Set(bytes, stream);
      }
    }
  };

  void SetUp() override {
    SKIP_WITHOUT_CUDA_DEVICE();
    ASSERT_OK_AND_ASSIGN(*joined_.mutable_config(),
                         ParseRunConfig(kConfig, "test"));
    ASSERT_OK_AND_ASSIGN(
        layout_, MakeTensorsLayout(joined_.config().tensors(),
                                   ListedTensors(joined_.config().tensors())));
    ASSERT_OK_AND_ASSIGN(*joined_.mutable_plan(),
                         MakeFragmentPlan(layout_, joined_.config()));
    ASSERT_OK_AND_ASSIGN(layout_, RunLayout(joined_.config(), joined_.plan()));
  }

  size_t BytesOf(const TensorSpec& tensor) const {
    return static_cast<size_t>(tensor.size) *
           (GetParam().type == ElementType::kFloat32 ? 4 : 2);
  }

  void Make(bool on_device, Rank& rank) {
    std::vector<TensorBuffer> buffers;
    for (const TensorSpec& tensor : layout_.tensors) {
      rank.host.emplace_back(BytesOf(tensor));
      TensorBuffer& buffer = buffers.emplace_back();
      buffer = {.name = tensor.name,
                .type = GetParam().type,
                .data = rank.host.back().data(),
                .on_device = on_device};
      if (!on_device) continue;
      rank.device.push_back(std::make_unique<DeviceTensor>(rank.host.back()));
      buffer.data = rank.device.back()->memory();
    }
    ASSERT_OK_AND_ASSIGN(rank.tensors,
                         LocalTensors::Create(layout_, buffers, true,
                                              GetParam().anchors_on_device));
    ASSERT_OK_AND_ASSIGN(
        rank.rank, EmbeddedRank::Create(
                       layout_, &*rank.tensors,
                       std::move(LocalCommunicators(1, &rank.rendezvous)[0]),
                       absl::Minutes(1)));
    std::vector<float> values(static_cast<size_t>(layout_.size));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 251) / 100 - 1;
    }
    ASSERT_OK(rank.rank->ShareParameters(std::move(values)));
    ASSERT_OK_AND_ASSIGN(rank.fragments, rank.rank->MakeReplica(joined_));
  }

  // Changes some values, as training does.
  void Train(Rank& rank, int step) {
    for (size_t t = 0; t < layout_.tensors.size(); ++t) {
      std::vector<char> bytes = rank.Bytes(t);
      for (size_t i = 0; i < bytes.size(); i += 4 + i % 12) {
        bytes[i / 4 * 4] ^= static_cast<char>(1 + (i + step) % 3);
      }
      rank.Set(t, bytes);
    }
  }

  std::string Contribution(Rank& rank, uint32_t fragment) {
    FragmentReplica& replica = *rank.fragments[fragment];
    EXPECT_OK(replica.TakeSnapshot());
    // The snapshot is taken, so training continues.
    Train(rank, 77);
    EXPECT_OK(replica.BeginContribution(0));
    std::vector<char> buffer(MaxEncodedBytes(
        UplinkSpec(joined_.config().synchronization()), replica.size()));
    const auto encoded = replica.Encode(buffer.size(), absl::MakeSpan(buffer));
    EXPECT_OK(encoded);
    EXPECT_OK(replica.EndContribution(true));
    return std::string(buffer.data(), encoded.ok() ? encoded->ready : 0);
  }

  v1::JoinResponse joined_;
  ModelLayout layout_;
};

INSTANTIATE_TEST_SUITE_P(Cases, EmbeddedRankCudaTest,
                         testing::Values(Case{ElementType::kFloat32},
                                         Case{ElementType::kFloat32, true},
                                         // Not in fp32: a part in host memory.
                                         Case{ElementType::kBfloat16},
                                         Case{ElementType::kFloat16}));

TEST_P(EmbeddedRankCudaTest, HasTheBitsOfTensorsInHostMemory) {
  Rank host, device;
  Make(false, host);
  Make(true, device);
  if (HasFailure()) return;
  for (int step = 1; step <= 3; ++step) {
    Train(host, step);
    Train(device, step);
    for (uint32_t fragment = 0; fragment < host.fragments.size(); ++fragment) {
      const std::string contribution = Contribution(host, fragment);
      EXPECT_EQ(Contribution(device, fragment), contribution);
      // The next anchor differs a little from the last one.
      std::vector<float> anchor(host.fragments[fragment]->size());
      ASSERT_OK(host.fragments[fragment]->ReadAnchor(absl::MakeSpan(anchor)));
      for (float& value : anchor) value += 0.01f;
      for (Rank* rank : {&host, &device}) {
        FragmentReplica& replica = *rank->fragments[fragment];
        ASSERT_OK(replica.ReplaceAnchor(anchor));
        // Both mixes and rebases.
        ASSERT_OK(replica.Apply(step != 2));
      }
    }
    for (size_t t = 0; t < layout_.tensors.size(); ++t) {
      EXPECT_EQ(device.Bytes(t), host.Bytes(t)) << t << " at " << step;
    }
  }
}

// A model of 16 bits has its parts in host memory, like islands of several
// ranks.
TEST_P(EmbeddedRankCudaTest, OnlyPartsOnTheDeviceTakeItsMemory) {
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  Rank device;
  Make(true, device);
  if (HasFailure()) return;
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  constexpr size_t kPieces = 64 << 20;
  if (GetParam().type == ElementType::kFloat32) {
    EXPECT_GT(before - after, kPieces);
  } else {
    EXPECT_LT(before - after, kPieces);
  }
}

TEST_P(EmbeddedRankCudaTest, WaitsForTheStreamThatTrainingHasMovedTo) {
  Rank host, device;
  Make(false, host);
  Make(true, device);
  if (HasFailure()) return;
  ASSERT_EQ(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking),
            cudaSuccess);
  device.tensors->SetStream(device.stream);
  Train(host, 1);
  Train(device, 1);
  EXPECT_EQ(Contribution(device, 0), Contribution(host, 0));
  cudaStreamDestroy(device.stream);
}

TEST_P(EmbeddedRankCudaTest, TheCurrentDeviceStays) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(devices - 1), cudaSuccess);
  {
    const KeepCurrentDevice keep;
    EXPECT_OK(NewCudaQueue(0, QueuePriority::kLow));
  }
  int device = 0;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, devices - 1);
  cudaSetDevice(0);
}

TEST_P(EmbeddedRankCudaTest, TensorsAreOnOneDevice) {
  std::vector<char> bytes(BytesOf(layout_.tensors[0]));
  const DeviceTensor first(bytes);
  std::vector<TensorBuffer> buffers = {{.name = layout_.tensors[0].name,
                                        .type = GetParam().type,
                                        .data = first.memory(),
                                        .on_device = true},
                                       {.name = layout_.tensors[1].name,
                                        .type = GetParam().type,
                                        .data = bytes.data()}};
  EXPECT_THAT(LocalTensors::Create(layout_, buffers, false).status(),
              IsInvalidArgument("on different devices"));
  buffers[1].on_device = true;
  EXPECT_THAT(LocalTensors::Create(layout_, buffers, false).status(),
              IsInvalidArgument("not a CUDA device's"));
}

}  // namespace
}  // namespace causeway
