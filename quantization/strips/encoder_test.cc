// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/encoder.h"

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "quantization/formats/dense_planes.h"
#include "quantization/strips/layout.h"

namespace causeway {
namespace {

constexpr uint64_t kStripBytes = 2 * kStripValues;

// An encoder of zeros in bf16.
class Zeros {
 public:
  explicit Zeros(uint64_t values)
      : buffer_(2 * values, '\0'),
        encoder_(Bf16Planes(), /*entropy_coded=*/false, EncodeOptions(), values,
                 absl::MakeSpan(buffer_)) {}

  void Add(uint64_t begin, uint64_t count) {
    encoder_.Encode(begin, std::vector<float>(count), {});
  }
  Encoder& encoder() { return encoder_; }

 private:
  std::string buffer_;
  Encoder encoder_;
};

TEST(EncoderTest, WholeStripsAreReadyWithoutAGap) {
  Zeros zeros(2 * kStripValues + 100);
  EXPECT_EQ(zeros.encoder().ready(), 0u);
  zeros.Add(kStripValues, kStripValues);
  zeros.Add(0, kStripValues - 256);
  EXPECT_EQ(zeros.encoder().ready(), 0u);
  zeros.Add(kStripValues - 256, 256);
  EXPECT_EQ(zeros.encoder().ready(), 2 * kStripBytes);
  zeros.Add(2 * kStripValues, 100);
  EXPECT_EQ(zeros.encoder().ready(), 2 * kStripBytes + 200);
  EXPECT_EQ(zeros.encoder().Finish(), 2 * kStripBytes + 200);
}

TEST(EncoderTest, APieceMaySpanStrips) {
  Zeros zeros(3 * kStripValues);
  zeros.Add(256, 3 * kStripValues - 256);
  EXPECT_EQ(zeros.encoder().ready(), 0u);
  zeros.Add(0, 256);
  EXPECT_EQ(zeros.encoder().Finish(), 3 * kStripBytes);
}

TEST(EncoderTest, AnEmptyVectorIsFinished) {
  EXPECT_EQ(Zeros(0).encoder().Finish(), 0u);
}

TEST(EncoderDeathTest, ValuesThatComeTwiceAreABug) {
  Zeros zeros(1000);
  zeros.Add(0, 512);
  EXPECT_DEATH(zeros.Add(256, 744), "came twice");
}

TEST(EncoderDeathTest, MissingValuesAreABug) {
  Zeros zeros(1000);
  zeros.Add(0, 512);
  EXPECT_DEATH(zeros.encoder().Finish(), "strips are missing");
}

TEST(EncoderTest, NoStripIsForgottenWhenThreadsFinishTogether) {
  constexpr uint64_t kStrips = 200;
  constexpr uint64_t kThreads = 4;
  Zeros zeros(kStrips * kStripValues);
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&zeros, thread] {
      for (uint64_t strip = thread; strip < kStrips; strip += kThreads) {
        zeros.Add(strip * kStripValues, 256);
        zeros.Add(strip * kStripValues + 256, kStripValues - 256);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(zeros.encoder().Finish(), kStrips * kStripBytes);
}

}  // namespace
}  // namespace causeway
