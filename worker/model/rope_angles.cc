// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/rope_angles.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "common/model_layout.h"

namespace causeway {
namespace {

// Returns the angle per token, in radians, of pair `pair` of `pairs`.
double RopeFrequency(const v1::ModelConfig& config, int64_t pair,
                     int64_t pairs) {
  const double frequency =
      std::pow(config.rope_theta(),
               -static_cast<double>(pair) / static_cast<double>(pairs));
  if (!config.has_rope_scaling()) return frequency;
  const v1::RopeScaling& scaling = config.rope_scaling();
  const double waves =
      scaling.original_length() * frequency / (2 * std::numbers::pi);
  const double kept = std::clamp(
      (waves - scaling.low_frequency_factor()) /
          (scaling.high_frequency_factor() - scaling.low_frequency_factor()),
      0.0, 1.0);
  return kept * frequency + (1 - kept) * frequency / scaling.factor();
}

}  // namespace

RopeAngles MakeRopeAngles(const v1::ModelConfig& config) {
  const int64_t half = HeadDim(config) / 2;
  RopeAngles angles;
  for (int64_t position = 0; position < config.sequence_length(); ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) * RopeFrequency(config, i, half);
      angles.cosine.push_back(static_cast<float>(std::cos(angle)));
      angles.sine.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return angles;
}

}  // namespace causeway
