// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Draws the losses of a run with characters. Pure functions.
#ifndef CLI_WATCH_LOSS_CURVE_H_
#define CLI_WATCH_LOSS_CURVE_H_

#include <cstdint>
#include <vector>

#include "cli/watch/screen.h"
#include "proto/status.pb.h"

namespace causeway {

struct LossPoint {
  uint64_t step = 0;
  double loss = 0;
};

struct LossCurves {
  std::vector<LossPoint> training;
  std::vector<LossPoint> validation;
};

// Returns the points that have a loss. A measurement is placed at the step at
// which the run had the measured version.
LossCurves MakeLossCurves(const v1::GetHistoryResponse& history);

// Returns `rows` lines (at least 3): a legend, the curves over the steps from 0
// to `total_steps`, and the axis of the steps. Values above nearly all others,
// such as those of the first steps, are drawn on the upper edge. Empty if there
// is no point.
std::vector<ScreenLine> DrawLossCurves(const LossCurves& curves,
                                       uint64_t total_steps, int rows,
                                       const ScreenFormat& format);

}  // namespace causeway

#endif  // CLI_WATCH_LOSS_CURVE_H_
