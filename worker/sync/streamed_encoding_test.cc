// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/streamed_encoding.h"

#include <cmath>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/encoded_object.h"
#include "quantization/strips/layout.h"
#include "quantization/testing/whole_vectors.h"
#include "worker/sync/testing/encoding.h"

namespace causeway {
namespace {

std::vector<float> Values(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::sin(static_cast<float>(i));
  }
  return values;
}

class StreamedEncodingTest : public testing::TestWithParam<CodecSpec> {};

TEST_P(StreamedEncodingTest, IsTheEncodingHoweverItIsRead) {
  const CodecSpec& spec = GetParam();
  for (const size_t count : {size_t{1}, size_t{300}, kStripValues,
                             kStripValues + 1, 3 * kStripValues - 5}) {
    ASSERT_OK_AND_ASSIGN(const std::string whole, Encode(spec, Values(count)));
    for (const uint64_t step : {1'000u, 100'000u, 1u << 30}) {
      StreamedEncoding encoding = StreamValues(spec, Values(count));
      EXPECT_TRUE(IsOpen(encoding.object()));
      EXPECT_EQ(encoding.max_bytes(), MaxEncodedBytes(spec, count));
      uint64_t wanted = 0;
      do {
        wanted += step;
        const absl::string_view ready = encoding.Await(wanted);
        ASSERT_TRUE(ready.size() >= wanted || encoding.complete());
        ASSERT_EQ(ready, absl::string_view(whole).substr(0, ready.size()));
      } while (!encoding.complete());
      EXPECT_EQ(encoding.Await(0), absl::string_view(whole));
      EXPECT_EQ(encoding.object().SerializeAsString(),
                DescribeEncoding(spec, count, whole).SerializeAsString());
    }
  }
}

TEST_P(StreamedEncodingTest, MakesNoMoreThanIsWanted) {
  const CodecSpec& spec = GetParam();
  StreamedEncoding encoding = StreamValues(spec, Values(10 * kStripValues));
  EXPECT_EQ(encoding.Await(0).size(), 0u);
  EXPECT_EQ(encoding.Await(1).size(), MaxEncodedBytes(spec, kStripValues));
  EXPECT_FALSE(encoding.complete());
  EXPECT_TRUE(IsOpen(encoding.object()));
}

INSTANTIATE_TEST_SUITE_P(
    Formats, StreamedEncodingTest,
    testing::Values(CodecSpec{.format = v1::FP32},
                    CodecSpec{.format = v1::BF16},
                    CodecSpec{.format = v1::E3M0, .block_size = 128}),
    [](const auto& info) { return v1::Format_Name(info.param.format); });

TEST(StreamedEncodingFailureTest, AFailureIsTheEnd) {
  int calls = 0;
  StreamedEncoding encoding(
      {}, 4, [&](uint64_t, absl::Span<char>) -> absl::StatusOr<EncodedBytes> {
        if (++calls == 1) return EncodedBytes{.ready = 4};
        return absl::UnavailableError("rank 1 is dead");
      });
  EXPECT_EQ(encoding.Await(4).size(), 4u);
  EXPECT_OK(encoding.status());
  EXPECT_EQ(encoding.Await(8).size(), 4u);
  EXPECT_EQ(encoding.Await(16).size(), 4u);
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(encoding.status(), IsUnavailable());
  EXPECT_FALSE(encoding.complete());
  EXPECT_TRUE(IsOpen(encoding.object()));
}

TEST(StreamedEncodingOwnerTest, KeepsTheBytesWhereTheyAre) {
  std::shared_ptr<const void> owner;
  absl::string_view bytes;
  {
    StreamedEncoding encoding = StreamValues({}, {1.0f, 2.0f});
    bytes = encoding.Await(8);
    owner = encoding.owner();
  }
  ASSERT_OK_AND_ASSIGN(const std::string whole, Encode({}, {1.0f, 2.0f}));
  EXPECT_EQ(bytes, absl::string_view(whole));
}

}  // namespace
}  // namespace causeway
