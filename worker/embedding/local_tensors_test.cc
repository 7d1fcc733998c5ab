// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/local_tensors.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/tensors/half_precision.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;

// Three tensors of 6, 4 and 5 values.
ModelLayout Layout() {
  ModelLayout layout;
  for (const auto& [name, shape] :
       std::vector<std::pair<std::string, std::vector<int64_t>>>{
           {"a", {2, 3}}, {"b", {4}}, {"c", {5, 1}}}) {
    TensorSpec& tensor = layout.tensors.emplace_back();
    tensor.name = name;
    tensor.shape = shape;
    tensor.offset = layout.size;
    tensor.size = shape[0] * (shape.size() > 1 ? shape[1] : 1);
    layout.size += tensor.size;
  }
  return layout;
}

class LocalTensorsTest : public testing::Test {
 protected:
  // The tensors of the layout, in another order.
  std::vector<TensorBuffer> All() {
    return {{.name = "c", .data = c_.data()},
            {.name = "a", .shape = {{2, 3}}, .data = a_.data()},
            {.name = "b", .data = b_.data()}};
  }

  const ModelLayout layout_ = Layout();
  std::vector<float> a_ = {0, 1, 2, 3, 4, 5};
  std::vector<float> b_ = {6, 7, 8, 9};
  std::vector<float> c_ = {10, 11, 12, 13, 14};
};

TEST_F(LocalTensorsTest, ValuesHaveTheirPlacesInTheModel) {
  ASSERT_OK_AND_ASSIGN(LocalTensors tensors,
                       LocalTensors::Create(layout_, All(), /*whole=*/true));
  ASSERT_EQ(tensors.slices().size(), 1);
  EXPECT_EQ(tensors.slices()[0].end, 15);
  std::vector<float> values(9);
  ASSERT_OK(tensors.Read({3, 12}, absl::MakeSpan(values)));
  EXPECT_THAT(values, ElementsAre(3, 4, 5, 6, 7, 8, 9, 10, 11));
  ASSERT_OK(tensors.Write({5, 11}, {-5, -6, -7, -8, -9, -10}));
  EXPECT_THAT(a_, ElementsAre(0, 1, 2, 3, 4, -5));
  EXPECT_THAT(b_, ElementsAre(-6, -7, -8, -9));
  EXPECT_THAT(c_, ElementsAre(-10, 11, 12, 13, 14));
}

TEST_F(LocalTensorsTest, PartsOfTensorsAreSeparateSlices) {
  ASSERT_OK_AND_ASSIGN(
      const LocalTensors tensors,
      LocalTensors::Create(layout_,
                           {{.name = "c", .values = {{1, 3}}, .data = &c_[1]},
                            {.name = "b", .values = {{2, 2}}},
                            {.name = "a", .values = {{4, 6}}, .data = &a_[4]}},
                           /*whole=*/false));
  ASSERT_EQ(tensors.slices().size(), 2);
  EXPECT_EQ(tensors.slices()[0].begin, 4);
  EXPECT_EQ(tensors.slices()[0].end, 6);
  EXPECT_EQ(tensors.slices()[1].begin, 11);
  std::vector<float> values(2);
  ASSERT_OK(tensors.Read({11, 13}, absl::MakeSpan(values)));
  EXPECT_THAT(values, ElementsAre(11, 12));
}

TEST_F(LocalTensorsTest, NamesTensorsThatDoNotFitTheRun) {
  std::vector<TensorBuffer> buffers = All();
  // Also restores the buffers.
  const auto expect_refused = [&](const char* why) {
    EXPECT_THAT(LocalTensors::Create(layout_, buffers, /*whole=*/true),
                IsInvalidArgument(why));
    buffers = All();
  };
  buffers.pop_back();
  expect_refused("tensor \"b\" of the run, with the shape [4], is missing");
  buffers[0].name = "d";
  expect_refused("\"d\" is not one of the");
  buffers[1].shape = {{3, 2}};
  expect_refused("shape [3, 2] here, but [2, 3] in the run");
  buffers.push_back(buffers[0]);
  expect_refused("\"c\" are passed twice");
  buffers[2].values = {{1, 5}};
  expect_refused("1 to 5 of tensor \"b\"");
  buffers[2].data = nullptr;
  expect_refused("\"b\" has no memory");
}

class HalfTensorsTest : public testing::TestWithParam<ElementType> {
 protected:
  uint16_t ToBits(float value) const {
    return GetParam() == ElementType::kBfloat16 ? ToBf16(value) : ToF16(value);
  }
  float FromBits(uint16_t bits) const {
    return GetParam() == ElementType::kBfloat16 ? FromBf16(bits)
                                                : FromF16(bits);
  }
};

INSTANTIATE_TEST_SUITE_P(Types, HalfTensorsTest,
                         testing::Values(ElementType::kBfloat16,
                                         ElementType::kFloat16));

// A thousand changes of at most a tenth of the type's own step add up.
TEST_P(HalfTensorsTest, SmallStepsAddUp) {
  std::vector<uint16_t> bits(4);
  ASSERT_OK_AND_ASSIGN(
      LocalTensors tensors,
      LocalTensors::Create(
          Layout(), {{.name = "b", .type = GetParam(), .data = bits.data()}},
          /*whole=*/false));
  const Slice all = {6, 10};
  ASSERT_OK(tensors.Write(all, {1, -1, 0, 3}));
  EXPECT_EQ(bits[0], ToBits(1));
  std::vector<float> values(4);
  const float step = 1.0f / 10240;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_OK(tensors.Read(all, absl::MakeSpan(values)));
    for (float& value : values) value += step;
    ASSERT_OK(tensors.Write(all, values));
  }
  ASSERT_OK(tensors.Read(all, absl::MakeSpan(values)));
  EXPECT_NEAR(values[0], 1 + 1000 * step, 1e-4);
  EXPECT_NEAR(values[1], -1 + 1000 * step, 1e-4);
  EXPECT_EQ(bits[0], ToBits(values[0]));

  // If training moves a value by a step of its type, the read value moves by
  // the same.
  const float before = values[3];
  const float moved = FromBits(++bits[3]) - FromBits(bits[3] - 1);
  ASSERT_OK(tensors.Read(all, absl::MakeSpan(values)));
  EXPECT_EQ(values[3], before + moved);
}

TEST_P(HalfTensorsTest, NonFiniteValuesStayNonFinite) {
  std::vector<uint16_t> bits(4);
  ASSERT_OK_AND_ASSIGN(
      LocalTensors tensors,
      LocalTensors::Create(
          Layout(), {{.name = "b", .type = GetParam(), .data = bits.data()}},
          /*whole=*/false));
  ASSERT_OK(tensors.Write({6, 10}, {1, 2, 3, 4}));
  // The exponents are all ones: an infinity and a NaN.
  bits[0] = GetParam() == ElementType::kBfloat16 ? 0x7f80 : 0x7c00;
  bits[1] = 0x7fff;
  std::vector<float> values(4);
  ASSERT_OK(tensors.Read({6, 10}, absl::MakeSpan(values)));
  EXPECT_FALSE(std::isfinite(values[0]));
  EXPECT_FALSE(std::isfinite(values[1]));
  EXPECT_EQ(values[2], 3);
}

TEST(Float16TensorsTest, ValuesBeyondTheTypeAreInfinite) {
  std::vector<uint16_t> bits(4);
  ASSERT_OK_AND_ASSIGN(
      LocalTensors tensors,
      LocalTensors::Create(
          Layout(),
          {{.name = "b", .type = ElementType::kFloat16, .data = bits.data()}},
          /*whole=*/false));
  ASSERT_OK(tensors.Write({6, 10}, {65519, 65520, -1e6f, 1}));
  EXPECT_THAT(bits, ElementsAre(0x7bff, 0x7c00, 0xfc00, 0x3c00));
}

}  // namespace
}  // namespace causeway
