// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Utilization against bandwidth as a picture: what fragments, overlap and a
// smaller format are each worth. Pure.
#ifndef CLI_PLAN_UTILIZATION_PLOT_H_
#define CLI_PLAN_UTILIZATION_PLOT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cli/plan/run_plan.h"

namespace causeway {

struct UtilizationCurve {
  std::string name;
  // Bits a second of each island's link in each direction, rising, and the
  // utilization.
  std::vector<std::pair<double, double>> points;
};

// Of the run as assumed, and of the run without, one after the other, its
// format, its overlap and its fragments; what it has not anyway is left out.
// All over the same whole decades of bandwidth, which replaces that of the
// islands' links.
//   as PredictRun
absl::StatusOr<std::vector<UtilizationCurve>> UtilizationCurves(
    const RunAssumptions& assumptions);

// An SVG picture with a logarithmic axis of bandwidth. There is at least one
// curve, over whole decades. `title` is not escaped.
std::string UtilizationSvg(absl::string_view title,
                           absl::Span<const UtilizationCurve> curves);

}  // namespace causeway

#endif  // CLI_PLAN_UTILIZATION_PLOT_H_
