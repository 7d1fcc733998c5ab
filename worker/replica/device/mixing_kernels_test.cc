// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// In the emulator; on a GPU cuda_queue_cuda_test.cc runs the same kernels.
#include "worker/replica/device/mixing_kernels.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "outer_optimizer/mixing.h"

namespace causeway {
namespace {

// Aligned to 16 bytes, as malloc's memory is.
std::vector<float> Values(size_t size, float frequency) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) {
    values[i] = std::sin(frequency * static_cast<float>(i + 1));
    if (i % 97 == 3) values[i] = -0.0f;
    if (i % 101 == 5) values[i] = INFINITY;
  }
  return values;
}

std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values)
    bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST(MixingKernelsTest, AreMixAndRebase) {
  for (const size_t size : {1u, 3u, 4u, 130u, 2000u}) {
    const std::vector<float> other = Values(size, 0.3f);
    for (const float mixing : {0.0f, 0.25f, 0.9f, 1.0f}) {
      std::vector<float> want = Values(size, 0.7f);
      std::vector<float> got = want;
      Mix(other, mixing, absl::MakeSpan(want));
      LaunchKernel(MixKernel, {.x = 3}, 64, 0, {}, other.data(), mixing,
                   static_cast<int64_t>(size), got.data());
      EXPECT_EQ(BitsOf(got), BitsOf(want)) << size << " " << mixing;
    }
    std::vector<float> want = Values(size, 0.7f);
    std::vector<float> got = want;
    Rebase(other, absl::MakeSpan(want));
    LaunchKernel(RebaseKernel, {.x = 3}, 64, 0, {}, other.data(),
                 static_cast<int64_t>(size), got.data());
    EXPECT_EQ(BitsOf(got), BitsOf(want)) << size;
  }
}

}  // namespace
}  // namespace causeway
