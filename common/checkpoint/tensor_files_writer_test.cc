// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/tensor_files_writer.h"

#include <signal.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/tensor_files.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

using testing::ElementsAre;

class TensorFilesWriterTest : public testing::Test {
 protected:
  // Writes `values` as one tensor of a type, and reads them again.
  absl::StatusOr<std::vector<float>> Through(const std::string& dtype,
                                             const std::vector<float>& values) {
    RETURN_IF_ERROR(
        WriteTensorFiles(directory_.path(),
                         {{"t", {static_cast<int64_t>(values.size())}, values}},
                         {.dtype = dtype})
            .status());
    ASSIGN_OR_RETURN(const TensorFiles files,
                     TensorFiles::Open(directory_.path()));
    EXPECT_EQ(files.tensors().at("t").dtype, dtype);
    std::vector<float> read(values.size());
    RETURN_IF_ERROR(
        ReadValues(files.tensors().at("t"), 0, absl::MakeSpan(read)));
    return read;
  }

  TemporaryDirectory directory_ = *TemporaryDirectory::Make("tensor_files");
};

TEST_F(TensorFilesWriterTest, EveryTypeKeepsWhatItCanRepresent) {
  // All fractions of F16 at several exponents, subnormal ones among them.
  std::vector<float> halves = {0.0f, -0.0f, 65504.0f, -65504.0f};
  for (int exponent : {-24, -14, -13, 0, 5}) {
    for (int fraction = 0; fraction < 1024; ++fraction) {
      halves.push_back(std::ldexp(
          static_cast<float>(exponent == -24 ? fraction : 1024 + fraction),
          exponent == -24 ? -24 : exponent - 10));
    }
  }
  EXPECT_THAT(Through("F16", halves), IsOkAndHolds(halves));
  EXPECT_THAT(
      Through("BF16", {1.5f, -0x1p-126f, 0x1p-133f, 3.3895314e38f}),
      IsOkAndHolds(ElementsAre(1.5f, -0x1p-126f, 0x1p-133f, 3.3895314e38f)));
  std::vector<float> many;
  std::mt19937 random(1);
  // More than one piece.
  while (many.size() < (1 << 18) + 5) {
    many.push_back(
        std::bit_cast<float>(static_cast<uint32_t>(random() & 0xbf7fffff)));
  }
  EXPECT_THAT(Through("F32", many), IsOkAndHolds(many));
}

TEST_F(TensorFilesWriterTest, RoundsToTheNearestAndTiesToEven) {
  // Steps of F16 are 2^-10 at 1, and 2^-24 below 2^-14; those of BF16 2^-7.
  EXPECT_THAT(
      Through("F16", {1 + 0x1p-11f, 1 + 0x1.8p-11f, 1 + 0x3p-11f, 0x1p-25f,
                      0x1.8p-25f, -0x3p-25f, 0x1.ffep-15f + 0x1p-26f}),
      IsOkAndHolds(ElementsAre(1, 1 + 0x1p-10f, 1 + 0x1p-9f, 0, 0x1p-24f,
                               -0x1p-23f, 0x1p-14f)));
  EXPECT_THAT(Through("BF16", {1 + 0x1p-8f, 1 + 0x1.8p-8f, -1 - 0x3p-8f}),
              IsOkAndHolds(ElementsAre(1, 1 + 0x1p-7f, -1 - 0x1p-6f)));
}

TEST_F(TensorFilesWriterTest, RefusesWhatF16HasNoRoomFor) {
  EXPECT_THAT(Through("F16", {65519}), IsOkAndHolds(ElementsAre(65504)));
  EXPECT_THAT(Through("F16", {1, -65520}).status(),
              IsInvalidArgument("\"t\" has the value -65520"));
  EXPECT_THAT(Through("F64", {1}).status(),
              IsInvalidArgument("F32, BF16, F16"));
}

TEST_F(TensorFilesWriterTest, AnEarlierIndexStaysUntilNewFilesCanBeWritten) {
  const std::string index = directory_.path() + "/model.safetensors.index.json";
  ASSERT_OK(WriteFileAtomically(index, {"earlier"}));
  EXPECT_THAT(Through("F16", {65520}), IsInvalidArgument());
  EXPECT_THAT(ReadFile(index), IsOkAndHolds("earlier"));
  EXPECT_OK(Through("F16", {1}));
  EXPECT_THAT(ReadFile(index), IsNotFound());
}

// A limit on the size of files imitates a full disk.
TEST_F(TensorFilesWriterTest, EarlierFilesStayIfTheDiskHasNoRoomForNewOnes) {
  const auto write = [&](const std::vector<float>& first,
                         const std::vector<float>& second) {
    return WriteTensorFiles(
               directory_.path(),
               {{"a", {static_cast<int64_t>(first.size())}, first},
                {"b", {static_cast<int64_t>(second.size())}, second}},
               {.most_bytes = 16})
        .status();
  };
  ASSERT_OK(write({1, 2, 3, 4}, {5, 6, 7, 8}));
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::vector<float> large(2048, 9);
  for (const bool fails_first : {true, false}) {
    EXPECT_THAT(fails_first ? write(large, {9}) : write({9, 9, 9, 9}, large),
                StatusIs(absl::StatusCode::kResourceExhausted));
    ASSERT_OK_AND_ASSIGN(const TensorFiles files,
                         TensorFiles::Open(directory_.path()));
    std::vector<float> read(4);
    EXPECT_OK(ReadValues(files.tensors().at("a"), 0, absl::MakeSpan(read)));
    EXPECT_THAT(read, ElementsAre(1, 2, 3, 4));
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

TEST_F(TensorFilesWriterTest, CutsBetweenTensors) {
  const std::vector<float> values = {1, 2, 3, 4};
  // A file has room for eight values: "a" and "b" share one, and "c" is alone
  // although it is larger.
  const std::vector<float> nine(9, 5);
  ASSERT_OK_AND_ASSIGN(
      const std::vector<std::string> files,
      WriteTensorFiles(directory_.path(),
                       {{"a", {4}, values},
                        {"b", {2, 2}, values},
                        {"c", {9}, nine},
                        {"d", {4}, values}},
                       {.most_bytes = 32, .metadata = {{"format", "pt"}}}));
  EXPECT_THAT(files, ElementsAre("model-00001-of-00003.safetensors",
                                 "model-00002-of-00003.safetensors",
                                 "model-00003-of-00003.safetensors",
                                 "model.safetensors.index.json"));
  ASSERT_OK_AND_ASSIGN(
      const std::string text,
      ReadFile(absl::StrCat(directory_.path(), "/", files.back())));
  const nlohmann::json index = nlohmann::json::parse(text);
  EXPECT_EQ(index["metadata"]["total_size"], 84);
  EXPECT_EQ(index["weight_map"]["b"], files[0]);
  EXPECT_EQ(index["weight_map"]["d"], files[2]);
  ASSERT_OK_AND_ASSIGN(const TensorFiles read,
                       TensorFiles::Open(directory_.path()));
  EXPECT_EQ(read.tensors().size(), 4);
  EXPECT_THAT(read.tensors().at("b").shape, ElementsAre(2, 2));
  for (const std::string& name : {files[0], files[1], files[2]}) {
    ASSERT_OK_AND_ASSIGN(
        const SafetensorsFile file,
        SafetensorsFile::Open(absl::StrCat(directory_.path(), "/", name)));
    EXPECT_THAT(file.contents().Metadata("format"), IsOkAndHolds("pt"));
  }
}

}  // namespace
}  // namespace causeway
