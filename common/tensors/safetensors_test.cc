// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/tensors/safetensors.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// Returns a file of the given header and tensor bytes, built by hand from the
// format's description.
std::string FileOf(absl::string_view header, absl::string_view data) {
  std::string file;
  for (int i = 0; i < 8; ++i) {
    file.push_back(static_cast<char>(header.size() >> (8 * i)));
  }
  return absl::StrCat(file, header, data);
}

// {"v": [1.0, -2.5], "n": 7 as a byte}, with an unsorted header and padding,
// written out byte by byte: 1.0f = 3f800000, -2.5f = c0200000.
std::string GoldenFile() {
  return FileOf(R"({"n":{"dtype":"U8","shape":[],"data_offsets":[8,9]},)"
                R"("__metadata__":{"made by":"hand"},)"
                R"("v":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}   )",
                absl::string_view("\x00\x00\x80\x3f\x00\x00\x20\xc0\x07", 9));
}

TEST(SafetensorsTest, ReadsAFileMadeByHand) {
  const std::string file = GoldenFile();
  ASSERT_OK_AND_ASSIGN(const Safetensors contents, ParseSafetensors(file));
  EXPECT_THAT(contents.metadata, ElementsAre(Pair("made by", "hand")));
  ASSERT_EQ(contents.tensors.size(), 2);
  EXPECT_EQ(contents.tensors[0].name, "v");
  EXPECT_EQ(contents.tensors[0].dtype, "F32");
  EXPECT_THAT(contents.tensors[0].shape, ElementsAre(2, 1));
  EXPECT_EQ(contents.tensors[0].bytes.data(), file.data() + file.size() - 9);
  EXPECT_EQ(contents.tensors[1].name, "n");
  EXPECT_THAT(contents.tensors[1].shape, IsEmpty());
  EXPECT_EQ(contents.tensors[1].bytes, "\x07");
}

TEST(SafetensorsTest, WritesExactlyTheFormat) {
  const std::vector<float> values = {1.0f, -2.5f};
  Safetensors contents{
      .tensors = {{"n", "U8", {}, "\x07"}, FloatTensor("v", {2, 1}, values)},
      .metadata = {{"made by", "us"}}};
  ASSERT_OK_AND_ASSIGN(const std::string header,
                       EncodeSafetensorsHeader(contents));
  const std::string json =
      R"({"__metadata__":{"made by":"us"},)"
      R"("v":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("n":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  const std::string padding(63 - (8 + json.size() + 63) % 64, ' ');
  EXPECT_EQ(header, FileOf(json + padding, ""));
  EXPECT_EQ(header.size() % 64, 0);
  EXPECT_EQ(contents.tensors[0].name, "v");
}

TEST(SafetensorsTest, FilesRoundTripThroughTheDisk) {
  const std::string path = testing::TempDir() + "/round_trip.safetensors";
  std::vector<float> values(1001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5f * i - 7;
  ASSERT_OK(WriteSafetensors(
      path, {.tensors = {{"odd", "U8", {3}, "abc"},
                         FloatTensor("values", {7, 143}, values),
                         FloatTensor("none", {0, 5}, {})},
             .metadata = {{"quote\"and\n", "caf\xc3\xa9"}, {"empty", ""}}}));
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(path));
  EXPECT_THAT(file.contents().Floats("values"),
              IsOkAndHolds(testing::ElementsAreArray(values)));
  EXPECT_THAT(file.contents().Floats("none"), IsOkAndHolds(IsEmpty()));
  ASSERT_OK_AND_ASSIGN(const SafetensorsTensor* odd,
                       file.contents().Find("odd"));
  EXPECT_EQ(odd->bytes, "abc");
  EXPECT_THAT(
      file.contents().metadata,
      ElementsAre(Pair("empty", ""), Pair("quote\"and\n", "caf\xc3\xa9")));
  EXPECT_THAT(file.contents().Metadata("quote\"and\n"),
              IsOkAndHolds("caf\xc3\xa9"));
}

TEST(SafetensorsTest, AnEmptyFileIsValid) {
  Safetensors nothing;
  ASSERT_OK_AND_ASSIGN(const std::string file,
                       EncodeSafetensorsHeader(nothing));
  ASSERT_OK_AND_ASSIGN(const Safetensors read, ParseSafetensors(file));
  EXPECT_THAT(read.tensors, IsEmpty());
}

TEST(SafetensorsTest, LookUpsSayWhatThereIs) {
  const std::string file = GoldenFile();
  ASSERT_OK_AND_ASSIGN(const Safetensors contents, ParseSafetensors(file));
  EXPECT_THAT(contents.Find("w"), IsNotFound("there are: v, n"));
  EXPECT_THAT(contents.Floats("n"), IsInvalidArgument("is U8, want F32"));
  EXPECT_THAT(contents.Metadata("missing"), IsNotFound("missing"));
}

struct BadHeader {
  std::string header;
  std::string data;
  std::string problem;
};

TEST(SafetensorsTest, RefusesEveryBrokenHeader) {
  const std::string good = R"("a":{"dtype":"U8","shape":[2],)"
                           R"("data_offsets":[0,2]})";
  const BadHeader cases[] = {
      {"", "", "does not begin with '{'"},
      {"[]", "", "does not begin with '{'"},
      {" {}", "", "does not begin with '{'"},
      {"{", "", "not JSON"},
      {"{} {}", "", "not JSON"},
      {"{\"\xff\":1}", "", "not JSON"},
      {absl::StrCat("{", good, ",", good, "}"), "xx", "\"a\" appears twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "", "appears twice"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "", "\"k\" is given twice"},
      {R"({"__metadata__":{"k":1}})", "", "\"k\" must not be a number"},
      {R"({"__metadata__":{"k":["v"]}})", "", "must not be an array"},
      {R"({"__metadata__":{"k":{"v":"w"}}})", "", "must not be an object"},
      {R"({"__metadata__":"v"})", "", "must not be a string"},
      {R"({"a":[1]})", "", "must not be an array"},
      {R"({"a":null})", "", "must not be null"},
      {R"({"a":{}})", "", "needs dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[2]}})", "", "needs dtype"},
      {R"({"a":{"dtype":"U8","dtype":"U8"}})", "", "\"dtype\" is given twice"},
      {R"({"a":{"typ":"U8"}})", "", "\"typ\" is not a field"},
      {R"({"a":{"dtype":7}})", "", "must not be a number"},
      {R"({"a":{"dtype":["U8"]}})", "", "must not be an array"},
      {R"({"a":{"shape":"2"}})", "", "must be an array"},
      {R"({"a":{"shape":["2"]}})", "", "must not be a string"},
      {R"({"a":{"shape":[[2]]}})", "", "must not be an array"},
      {R"({"a":{"shape":[{}]}})", "", "must not be an object"},
      {R"({"a":{"shape":[true]}})", "", "must not be a boolean"},
      {R"({"a":{"shape":[-2]}})", "", "must not be negative, is -2"},
      {R"({"a":{"shape":[2.5]}})", "", "must be a whole number, is 2.5"},
      {R"({"a":{"shape":[18446744073709551615]}})", "", "too large"},
      {R"({"a":{"data_offsets":[0,1,2]}})", "", "more than two"},
      {R"({"a":{"data_offsets":[-1,1]}})", "", "must not be negative"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", "xx",
       "impossible data_offsets [2, 0]"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2]}})", "xx",
       "impossible data_offsets [2]"},
      {R"({"a":{"dtype":"F3","shape":[2],"data_offsets":[0,2]}})", "xx",
       "unknown dtype \"F3\"; known are BOOL, U8"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,2]}})", "xx",
       "has 2 bytes; its shape [2] of F32 needs 8"},
      {absl::StrCat("{", good, "}"), "x", "the file is cut off"},
      {absl::StrCat("{", good, "}"), "xxx", "1 bytes after the last tensor"},
      {absl::StrCat("{", good, R"(,"b":{"dtype":"U8","shape":[2],)",
                    R"("data_offsets":[3,5]}})"),
       "xxxxx", "\"b\" begins at byte 3; the one before ends at 2"},
      {absl::StrCat("{", good, R"(,"b":{"dtype":"U8","shape":[2],)",
                    R"("data_offsets":[1,3]}})"),
       "xxx", "\"b\" begins at byte 1; the one before ends at 2"},
      {R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],)"
       R"("data_offsets":[0,0]}})",
       "", "impossible shape [4294967296, 4294967296]"},
  };
  for (const BadHeader& bad : cases) {
    EXPECT_THAT(ParseSafetensors(FileOf(bad.header, bad.data)),
                IsInvalidArgument(bad.problem))
        << bad.header;
  }
}

TEST(SafetensorsTest, RefusesLengthsThatDoNotFit) {
  EXPECT_THAT(ParseSafetensors(""), IsInvalidArgument("too few"));
  EXPECT_THAT(ParseSafetensors(std::string(8, '\xff')),
              IsInvalidArgument("header of 18446744073709551615 bytes"));
  const std::string file = GoldenFile();
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_THAT(ParseSafetensors(absl::string_view(file).substr(0, size)),
                IsInvalidArgument())
        << size;
  }
}

TEST(SafetensorsTest, DeepNestingEndsAtOnce) {
  const std::string header = absl::StrCat("{\"a\":", std::string(1 << 20, '['));
  EXPECT_THAT(ParseSafetensors(FileOf(header, "")),
              IsInvalidArgument("must not be an array"));
}

TEST(SafetensorsTest, RefusesToWriteWhatItCouldNotRead) {
  const auto encode = [](Safetensors contents) {
    return EncodeSafetensorsHeader(contents).status();
  };
  EXPECT_THAT(
      encode({.tensors = {{"a", "U8", {1}, "x"}, {"a", "U8", {}, "x"}}}),
      IsInvalidArgument("used twice"));
  EXPECT_THAT(encode({.tensors = {{"__metadata__", "U8", {1}, "x"}}}),
              IsInvalidArgument("reserved"));
  EXPECT_THAT(encode({.tensors = {{"a", "U9", {1}, "x"}}}),
              IsInvalidArgument("unknown dtype"));
  EXPECT_THAT(encode({.tensors = {{"a", "U8", {2}, "x"}}}),
              IsInvalidArgument("has 1 bytes"));
  EXPECT_THAT(encode({.tensors = {{"a", "U8", {-1}, "x"}}}),
              IsInvalidArgument("impossible shape"));
  EXPECT_THAT(encode({.metadata = {{"\xff", ""}}}), IsInvalidArgument("UTF-8"));
}

TEST(SafetensorsTest, ErrorsOfFilesNameThem) {
  const std::string path = testing::TempDir() + "/broken.safetensors";
  ASSERT_OK(WriteFileAtomically(path, {"12345678"}));
  EXPECT_THAT(SafetensorsFile::Open(path), IsInvalidArgument(path));
  EXPECT_THAT(SafetensorsFile::Open(path + ".missing"), IsNotFound(path));
  EXPECT_THAT(WriteSafetensors(path, {.tensors = {{"a", "U8", {2}, "x"}}}),
              IsInvalidArgument(path));
}

// With any bytes, nothing crashes and no view leaves the file.
void CheckParse(absl::string_view file) {
  const absl::StatusOr<Safetensors> contents = ParseSafetensors(file);
  if (!contents.ok()) return;
  size_t bytes = 0;
  for (const SafetensorsTensor& tensor : contents->tensors) {
    bytes += tensor.bytes.size();
    if (tensor.bytes.empty()) continue;
    ASSERT_GE(tensor.bytes.data(), file.data());
    ASSERT_LE(tensor.bytes.data() + tensor.bytes.size(),
              file.data() + file.size());
  }
  ASSERT_LT(bytes, file.size());
}

TEST(SafetensorsTest, RandomBytesNeverCrash) {
  std::mt19937_64 random(20240611);
  for (int i = 0; i < 20000; ++i) {
    std::string header(random() % 64, '\0');
    // Half of the characters are ones that JSON consists of.
    for (char& c : header) {
      c = random() % 2 ? "{}[]\":,0a1"[random() % 10]
                       : static_cast<char>(random());
    }
    CheckParse(header);
    CheckParse(FileOf("{" + header, "data"));
  }
}

TEST(SafetensorsTest, MutationsOfAValidFileNeverCrash) {
  std::mt19937_64 random(20240612);
  const std::string golden = GoldenFile();
  for (int i = 0; i < 50000; ++i) {
    std::string file = golden;
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % file.size();
      switch (random() % 4) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.erase(at, 1 + random() % 8);
          break;
        case 2:
          file.insert(at, 1, "{}[]\":,0918"[random() % 11]);
          break;
        default:
          file.insert(at, file.substr(random() % file.size(), random() % 40));
      }
      if (file.empty()) break;
    }
    CheckParse(file);
  }
}

}  // namespace
}  // namespace causeway
