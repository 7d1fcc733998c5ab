// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/weighted_merge.h"

#include <array>
#include <cstring>
#include <string>
#include <thread>  // NOLINT: the queue is what is shared, not a lock.
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/testing/values.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

constexpr uint64_t kSize = 3 * WeightedMerge::kTileValues + 77;

// Runs every test with contributions of each of these three specs.
class WeightedMergeTest
    : public testing::TestWithParam<std::array<CodecSpec, 3>> {
 protected:
  void SetUp() override {
    for (uint32_t i = 0; i < 3; ++i) {
      encoded_[i] = Encode(GetParam()[i], Values(kSize, i)).value();
      contributions_.push_back(
          OpenDecoder(GetParam()[i], encoded_[i], kSize).value());
    }
  }

  // Computes the definition, with weight(j, i) for value j of contribution i.
  template <typename Weight>
  std::vector<float> Plain(const Weight& weight) const {
    std::vector<float> sum(kSize);
    for (size_t i = 0; i < encoded_.size(); ++i) {
      std::vector<float> decoded(kSize);
      EXPECT_TRUE(
          Decode(GetParam()[i], encoded_[i], absl::MakeSpan(decoded)).ok());
      for (uint64_t j = 0; j < kSize; ++j) {
        const float product = weight(j, i) * decoded[j];
        sum[j] += product;
      }
    }
    return sum;
  }

  std::vector<float> Merged(const MergeWeights& weights) const {
    WeightedMerge merge(contributions_, weights);
    std::vector<float> merged(kSize, 77);
    for (uint64_t begin = 0; begin < kSize;
         begin += WeightedMerge::kTileValues) {
      merge.Sum(begin, absl::MakeSpan(merged).subspan(
                           begin, WeightedMerge::kTileValues));
    }
    return merged;
  }

  static void ExpectSameBits(const std::vector<float>& a,
                             const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  }

  std::array<std::string, 3> encoded_;
  Contributions contributions_;
};

constexpr CodecSpec kFp32 = {.format = v1::FP32};
constexpr CodecSpec kBf16 = {.format = v1::BF16};
constexpr CodecSpec kE3m0 = {.format = v1::E3M0};
constexpr CodecSpec kInt8 = {.format = v1::INT8, .block_size = 64};
constexpr CodecSpec kInt8Coded = {
    .format = v1::INT8, .block_size = 128, .entropy_coded = true};
constexpr CodecSpec kEcq = {.format = v1::ECQ, .entropy_coded = true};

INSTANTIATE_TEST_SUITE_P(Formats, WeightedMergeTest,
                         testing::Values(std::array{kFp32, kFp32, kFp32},
                                         std::array{kBf16, kBf16, kBf16},
                                         std::array{kE3m0, kE3m0, kE3m0},
                                         std::array{kInt8, kInt8, kInt8},
                                         std::array{kE3m0, kBf16, kE3m0},
                                         std::array{kInt8, kInt8, kInt8Coded},
                                         std::array{kEcq, kFp32, kInt8Coded}),
                         [](const auto& info) {
                           return absl::StrCat(
                               v1::Format_Name(info.param[0].format), "_",
                               v1::Format_Name(info.param[1].format), "_",
                               v1::Format_Name(info.param[2].format), "_",
                               info.param[2].block_size);
                         });

TEST_P(WeightedMergeTest, EqualsItsDefinitionBitForBit) {
  const std::vector<float> shares = {0.2f, 0.0f, 0.8f};
  ExpectSameBits(Merged({.shares = shares}),
                 Plain([&](uint64_t, size_t i) { return shares[i]; }));
}

// Tensors begin and end inside blocks, one lies within a block, and values in a
// gap and at the end are in no tensor.
TEST_P(WeightedMergeTest, TensorsHaveWeightsOfTheirOwn) {
  const MergeWeights weights = {
      .shares = {0.2f, 0.3f, 0.5f},
      .tensors = {{0, 100}, {100, 101}, {300, 5000}, {5000, 6144}},
      .tensor_weights = {1, 2, 3, -4, 5, 6, 7, -8, 9, 0, 0, 0.1f}};
  ExpectSameBits(
      Merged(weights), Plain([&](uint64_t j, size_t i) {
        for (size_t t = 0; t < weights.tensors.size(); ++t) {
          if (j >= weights.tensors[t].begin && j < weights.tensors[t].end) {
            return weights.tensor_weights[3 * t + i];
          }
        }
        return weights.shares[i];
      }));
}

TEST(StripQueueTest, DealsEveryStripOnceInOrder) {
  StripQueue queue(2 * kStripValues + 5);
  EXPECT_EQ(queue.Take(), (ValueRange{0, kStripValues}));
  EXPECT_EQ(queue.Take(), (ValueRange{kStripValues, 2 * kStripValues}));
  EXPECT_EQ(queue.Take(), (ValueRange{2 * kStripValues, 2 * kStripValues + 5}));
  EXPECT_EQ(queue.Take(), std::nullopt);
  EXPECT_EQ(queue.Take(), std::nullopt);
  EXPECT_EQ(StripQueue(0).Take(), std::nullopt);
}

TEST(StripQueueTest, ThreadsShareTheStrips) {
  constexpr uint64_t kStrips = 1000;
  StripQueue queue(kStrips * kStripValues);
  std::vector<int> taken(kStrips);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (const auto strip = queue.Take()) {
        ++taken[strip->begin / kStripValues];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(taken, testing::Each(1));
}

}  // namespace
}  // namespace causeway
