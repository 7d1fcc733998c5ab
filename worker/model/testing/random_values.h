// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Inputs for tests of operations, and the comparison with a reference in
// double.
#ifndef WORKER_MODEL_TESTING_RANDOM_VALUES_H_
#define WORKER_MODEL_TESTING_RANDOM_VALUES_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "worker/model/ops.h"

namespace causeway {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

// Returns normally distributed values.
inline Floats Random(int64_t size, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(static_cast<size_t>(size));
  for (float& value : values) value = normal(generator);
  return values;
}

// Returns tokens from 0 to `end` - 1.
inline std::vector<int32_t> RandomTokens(int64_t size, int32_t end,
                                         uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_int_distribution<int32_t> uniform(0, end - 1);
  std::vector<int32_t> tokens(static_cast<size_t>(size));
  for (int32_t& token : tokens) token = uniform(generator);
  return tokens;
}

// A shape of attention, and the memory of its document_begin.
struct ShapeWithDocuments {
  AttentionShape shape;
  std::vector<int32_t> documents;
};

// Returns each shape with sequences of one document, of several, and of
// documents that are one row each.
inline std::vector<ShapeWithDocuments> WithDocuments(
    absl::Span<const AttentionShape> shapes) {
  std::vector<ShapeWithDocuments> all;
  for (const AttentionShape& shape : shapes) {
    all.push_back({shape, {}});
    for (const int32_t length : {70, 20, 1}) {
      const std::vector<int32_t> ends =
          RandomTokens(shape.rows(), length, static_cast<uint64_t>(length));
      std::vector<int32_t> begins;
      for (int64_t row = 0; row < shape.rows(); ++row) {
        const auto position = static_cast<int32_t>(row % shape.length);
        const bool begins_here =
            position == 0 || ends[static_cast<size_t>(row)] == 0;
        begins.push_back(begins_here ? position : begins.back());
      }
      // Moving a vector keeps its memory.
      all.push_back({shape, std::move(begins)});
      all.back().shape.document_begin = all.back().documents.data();
    }
  }
  return all;
}

inline Doubles Widen(const Floats& values) {
  return {values.begin(), values.end()};
}

// Expects the error of each value to be at most `tolerance` times the largest
// wanted value. The default is as close as sums in fp32 come.
inline void ExpectNear(const Floats& got, const Doubles& want,
                       double tolerance = 3e-6) {
  ASSERT_EQ(got.size(), want.size());
  double scale = 1e-30;
  for (const double value : want) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * scale) << "at " << i;
  }
}

}  // namespace causeway

#endif  // WORKER_MODEL_TESTING_RANDOM_VALUES_H_
