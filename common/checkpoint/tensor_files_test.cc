// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/tensor_files.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/os/file.h"
#include "common/tensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SafetensorsTensor Of(absl::string_view dtype,
                     const std::vector<uint16_t>& bits) {
  return {.name = "t",
          .dtype = std::string(dtype),
          .shape = {static_cast<int64_t>(bits.size())},
          .bytes = absl::string_view(reinterpret_cast<const char*>(bits.data()),
                                     2 * bits.size())};
}

TEST(ReadValuesTest, ConvertsEveryFiniteHalf) {
  // IEEE 754-2008, section 3.4: value = (-1)^s 2^(e-15) (1 + m / 2^10), and
  // 2^-14 m / 2^10 where e is 0.
  std::vector<uint16_t> bits;
  std::vector<double> wanted;
  for (int sign = 0; sign < 2; ++sign) {
    for (int exponent = 0; exponent < 31; ++exponent) {
      for (int fraction = 0; fraction < 1024; ++fraction) {
        bits.push_back(
            static_cast<uint16_t>(sign << 15 | exponent << 10 | fraction));
        const double magnitude =
            exponent == 0 ? std::ldexp(fraction, -24)
                          : std::ldexp(1024 + fraction, exponent - 25);
        wanted.push_back(sign == 0 ? magnitude : -magnitude);
      }
    }
  }
  std::vector<float> values(bits.size());
  ASSERT_OK(ReadValues(Of("F16", bits), 0, absl::MakeSpan(values)));
  for (size_t i = 0; i < bits.size(); ++i) {
    ASSERT_EQ(values[i], wanted[i]) << bits[i];
    ASSERT_EQ(std::signbit(values[i]), std::signbit(wanted[i])) << bits[i];
  }
}

TEST(ReadValuesTest, ConvertsBf16AndFp32FromAnyIndex) {
  // bf16 is the upper half of fp32: 1, -2.5, 2^-126.
  std::vector<float> values(2);
  ASSERT_OK(ReadValues(Of("BF16", {0x3f80, 0xc020, 0x0080}), 1,
                       absl::MakeSpan(values)));
  EXPECT_THAT(values, ElementsAre(-2.5f, 0x1p-126f));
  const std::vector<float> from = {1, 2, 3, 4};
  const SafetensorsTensor tensor = FloatTensor("t", {2, 2}, from);
  ASSERT_OK(ReadValues(tensor, 2, absl::MakeSpan(values)));
  EXPECT_THAT(values, ElementsAre(3, 4));
  EXPECT_EQ(CountValues(tensor), 4);
  EXPECT_EQ(CountValues(Of("F16", {0, 0, 0})), 3);
}

TEST(ReadValuesTest, NamesTheFirstValueThatIsNotFinite) {
  std::vector<float> values(3);
  EXPECT_THAT(ReadValues(Of("F16", {0, 0, 0, 0x7c00, 0xfe00}), 2,
                         absl::MakeSpan(values)),
              IsInvalidArgument("\"t\" has a value that is not finite, at "
                                "index 3"));
  EXPECT_THAT(ReadValues(Of("BF16", {0xff80, 0, 0}), 0, absl::MakeSpan(values)),
              IsInvalidArgument("index 0"));
  const std::vector<float> from = {0, 1,
                                   std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(
      ReadValues(FloatTensor("t", {3}, from), 0, absl::MakeSpan(values)),
      IsInvalidArgument("index 2"));
}

TEST(ReadValuesTest, RefusesOtherTypes) {
  EXPECT_FALSE(IsReadable("F64"));
  EXPECT_TRUE(IsReadable("F16"));
  std::vector<float> values(1);
  EXPECT_THAT(ReadValues(Of("I16", {0}), 0, absl::MakeSpan(values)),
              IsInvalidArgument("\"t\" is I16"));
}

class TensorFilesTest : public testing::Test {
 protected:
  std::string PathOf(absl::string_view name) const {
    return absl::StrCat(directory_.path(), "/", name);
  }
  void Write(absl::string_view file, const std::vector<std::string>& tensors) {
    Safetensors contents;
    for (const std::string& name : tensors) {
      contents.tensors.push_back(FloatTensor(name, {2}, values_));
    }
    ASSERT_OK(WriteSafetensors(PathOf(file), std::move(contents)));
  }
  void WriteText(absl::string_view file, absl::string_view text) {
    ASSERT_OK(WriteFileAtomically(PathOf(file), {text}));
  }
  static std::vector<std::string> Names(const TensorFiles& files) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : files.tensors()) names.push_back(name);
    return names;
  }

  const std::vector<float> values_ = {3, 4};
  TemporaryDirectory directory_ = *TemporaryDirectory::Make("tensor_files");
};

TEST_F(TensorFilesTest, OpensAFileOrItsDirectory) {
  Write("model.safetensors", {"a", "b"});
  for (const std::string& path :
       {PathOf("model.safetensors"), directory_.path()}) {
    ASSERT_OK_AND_ASSIGN(TensorFiles opened, TensorFiles::Open(path));
    // The views outlive a move.
    const TensorFiles files = std::move(opened);
    EXPECT_THAT(Names(files), ElementsAre("a", "b"));
    std::vector<float> values(2);
    ASSERT_OK(ReadValues(files.tensors().at("b"), 0, absl::MakeSpan(values)));
    EXPECT_EQ(values, values_);
  }
}

TEST_F(TensorFilesTest, FollowsAnIndex) {
  Write("one.safetensors", {"a", "c"});
  Write("two.safetensors", {"b"});
  // If there are both an index and a single file, the index counts.
  Write("model.safetensors", {"old"});
  WriteText("model.safetensors.index.json",
            R"({"metadata": {"total_size": 24}, "weight_map":
                {"a": "one.safetensors", "b": "two.safetensors",
                 "c": "one.safetensors"}})");
  for (const std::string& path :
       {PathOf("model.safetensors.index.json"), directory_.path()}) {
    ASSERT_OK_AND_ASSIGN(const TensorFiles files, TensorFiles::Open(path));
    EXPECT_THAT(Names(files), ElementsAre("a", "b", "c"));
  }
}

TEST_F(TensorFilesTest, SaysWhatIsMissing) {
  EXPECT_THAT(TensorFiles::Open(PathOf("none")).status(), IsNotFound("none"));
  EXPECT_THAT(TensorFiles::Open(directory_.path()).status(),
              IsNotFound("has neither model.safetensors nor"));
}

TEST_F(TensorFilesTest, RefusesAnIndexThatLies) {
  Write("one.safetensors", {"a"});
  Write("two.safetensors", {"a", "b"});
  const struct {
    absl::string_view index;
    absl::StatusCode code;
    absl::string_view problem;
  } cases[] = {
      {"[1, 2", absl::StatusCode::kInvalidArgument, "not JSON"},
      {"[1, 2]", absl::StatusCode::kInvalidArgument, "not a JSON object"},
      {"{}", absl::StatusCode::kInvalidArgument, "\"weight_map\""},
      {R"({"weight_map": ["a"]})", absl::StatusCode::kInvalidArgument,
       "\"weight_map\""},
      {R"({"weight_map": {"a": 1}})", absl::StatusCode::kInvalidArgument,
       "\"a\" is not a string"},
      {R"({"weight_map": {"a": "../one.safetensors"}})",
       absl::StatusCode::kInvalidArgument, "not the name of a file beside it"},
      {R"({"weight_map": {"a": ".."}})", absl::StatusCode::kInvalidArgument,
       "not the name of a file beside it"},
      {R"({"weight_map": {"a": ""}})", absl::StatusCode::kInvalidArgument,
       "not the name of a file beside it"},
      {R"({"weight_map": {"z": "one.safetensors"}})",
       absl::StatusCode::kInvalidArgument, "has no tensor \"z\""},
      {R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})",
       absl::StatusCode::kInvalidArgument, "has tensor \"a\", as another"},
      {R"({"weight_map": {"a": "three.safetensors"}})",
       absl::StatusCode::kNotFound, "three.safetensors"},
  };
  for (const auto& [index, code, problem] : cases) {
    WriteText("x.safetensors.index.json", index);
    EXPECT_THAT(TensorFiles::Open(PathOf("x.safetensors.index.json")).status(),
                StatusIs(code, HasSubstr(problem)))
        << index;
  }
}

}  // namespace
}  // namespace causeway
