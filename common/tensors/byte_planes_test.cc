// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/tensors/byte_planes.h"

#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

// Returns Gaussian values, like parameters.
std::string Values(size_t bytes) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02f);
  std::string values(bytes, '\0');
  for (size_t i = 0; i + sizeof(float) <= bytes; i += sizeof(float)) {
    const float value = normal(random);
    std::memcpy(values.data() + i, &value, sizeof(value));
  }
  return values;
}

std::string Noise(size_t bytes) {
  std::mt19937 random(2);
  std::string noise(bytes, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  return noise;
}

// Decompresses to `bytes` bytes, with a guard behind the last one.
absl::StatusOr<std::string> Decompress(absl::string_view compressed,
                                       size_t width, size_t bytes) {
  std::string raw(bytes + 1, '#');
  const absl::Status status = DecompressPlanes(
      compressed, width, absl::MakeSpan(raw).subspan(0, bytes));
  EXPECT_EQ(raw.back(), '#');
  if (!status.ok()) return status;
  raw.resize(bytes);
  return raw;
}

// Returns the bytes of a plane as docs/encodings.md specifies them.
std::string Plane(absl::string_view bytes, bool is_compressed) {
  const uint32_t header =
      static_cast<uint32_t>(bytes.size()) | uint32_t{is_compressed} << 31;
  std::string plane(sizeof(header), '\0');
  std::memcpy(plane.data(), &header, sizeof(header));
  return absl::StrCat(plane, bytes);
}

std::string Zstd(absl::string_view bytes) {
  std::string frame(ZSTD_compressBound(bytes.size()), '\0');
  frame.resize(
      ZSTD_compress(frame.data(), frame.size(), bytes.data(), bytes.size(), 1));
  return frame;
}

TEST(BytePlanesTest, SeveralThreadsMakeTheSameBytes) {
  const std::string values = Values(5 * kPlanesBlock + 4321);
  const std::string whole = CompressPlanes(values, sizeof(float));
  for (const int threads : {1, 2, 7}) {
    std::string streamed;
    EXPECT_OK(StreamPlanes(values, sizeof(float), threads,
                           [&](absl::string_view piece) {
                             absl::StrAppend(&streamed, piece);
                             return absl::OkStatus();
                           }));
    EXPECT_TRUE(streamed == whole) << threads;
  }
}

TEST(BytePlanesTest, AnErrorEndsAStream) {
  const std::string values = Values(5 * kPlanesBlock);
  for (const int threads : {1, 3}) {
    int calls = 0;
    EXPECT_THAT(StreamPlanes(values, sizeof(float), threads,
                             [&](absl::string_view /*piece*/) -> absl::Status {
                               return ++calls < 3 ? absl::OkStatus()
                                                  : absl::DataLossError("full");
                             }),
                IsDataLoss("full"));
    EXPECT_EQ(calls, 3) << threads;
  }
}

TEST(BytePlanesTest, ValuesComeBackInFewerBytes) {
  for (const size_t bytes : {size_t{4000}, size_t{4003}, size_t{100 << 10},
                             kPlanesBlock, 2 * kPlanesBlock + 4 * 777 + 1}) {
    const std::string values = Values(bytes);
    const std::string compressed = CompressPlanes(values, sizeof(float));
    ASSERT_FALSE(compressed.empty()) << bytes;
    // Exponents of Gaussian values have 2.5 bits of entropy.
    EXPECT_LT(compressed.size(), 0.87 * bytes) << bytes;
    EXPECT_THAT(Decompress(compressed, sizeof(float), bytes),
                IsOkAndHolds(values));
  }
}

TEST(BytePlanesTest, EachWidthFindsItsOwnPlanes) {
  std::string pairs = Noise(20'000);
  for (size_t i = 0; i < pairs.size(); i += 2) pairs[i] = 'a';
  EXPECT_LT(CompressPlanes(pairs, 2).size(), 0.51 * pairs.size());
  EXPECT_THAT(Decompress(CompressPlanes(pairs, 2), 2, pairs.size()),
              IsOkAndHolds(pairs));
  const std::string text(5000, 'b');
  EXPECT_LT(CompressPlanes(text, 1).size(), 50u);
  EXPECT_THAT(Decompress(CompressPlanes(text, 1), 1, text.size()),
              IsOkAndHolds(text));
}

TEST(BytePlanesTest, WhatDoesNotGetSmallerIsLeft) {
  EXPECT_EQ(CompressPlanes(Noise(100'000), 4), "");
  for (size_t bytes = 0; bytes < 16; ++bytes) {
    EXPECT_EQ(CompressPlanes(std::string(bytes, 'a'), 4), "") << bytes;
  }
}

TEST(BytePlanesTest, HasTheBytesOfTheProtocol) {
  const std::string want = "abcdABCDefghEFGHxyz";
  const std::string compressed =
      absl::StrCat(Plane("aAeE", false), Plane(Zstd("bBfF"), true),
                   Plane("cCgG", false), Plane("dDhH", false), "xyz");
  EXPECT_THAT(Decompress(compressed, 4, want.size()), IsOkAndHolds(want));
}

TEST(BytePlanesTest, RefusesEveryPrefixAndEveryExtension) {
  const std::string values = Values(8001);
  const std::string compressed = CompressPlanes(values, 4);
  for (size_t size = 0; size < compressed.size(); size += 1 + size / 9) {
    EXPECT_THAT(Decompress(compressed.substr(0, size), 4, values.size()),
                IsInvalidArgument());
  }
  EXPECT_THAT(Decompress(compressed + "x", 4, values.size()),
              IsInvalidArgument("after the last plane"));
  EXPECT_THAT(Decompress(compressed, 4, values.size() - 4),
              IsInvalidArgument());
  EXPECT_THAT(Decompress(compressed, 4, values.size() + 4),
              IsInvalidArgument());
}

// A tiny frame may claim any size.
TEST(BytePlanesTest, RefusesPlanesOfAnotherSize) {
  const std::string bomb = Zstd(std::string(64 << 20, '\0'));
  ASSERT_LT(bomb.size(), 10'000u);
  const auto refused = [](const std::string& plane) {
    EXPECT_THAT(Decompress(plane, 1, 100), IsInvalidArgument());
  };
  refused(Plane(bomb, true));
  refused(Plane(Zstd(std::string(99, 'a')), true));
  refused(Plane(Zstd(std::string(101, 'a')), true));
  refused(Plane(std::string(99, 'a'), false));
  refused(Plane(std::string(101, 'a'), false));
  refused(Plane("no frame", true));
  refused("\xff\xff\xff\xff");
  EXPECT_OK(Decompress(Plane(Zstd(std::string(100, 'a')), true), 1, 100));
}

}  // namespace
}  // namespace causeway
