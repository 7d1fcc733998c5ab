// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Draws utilization against bandwidth: the worth of fragments, overlap and a
// smaller format. Pure.
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
  // Each island's link in bits per second and direction, rising, and the
  // utilization.
  std::vector<std::pair<double, double>> points;
};

// Returns the curves of the run as assumed, and then without its format, its
// overlap and its fragments, taken away one after the other; features that the
// run does not have are skipped. All curves cover the same whole decades of
// bandwidth, which replace the islands' links. Errors of PredictRun.
absl::StatusOr<std::vector<UtilizationCurve>> UtilizationCurves(
    const RunAssumptions& assumptions);

// Returns an SVG picture with a logarithmic axis of bandwidth. There must be at
// least one curve, and curves cover whole decades. `title` is not escaped.
std::string UtilizationSvg(absl::string_view title,
                           absl::Span<const UtilizationCurve> curves);

}  // namespace causeway

#endif  // CLI_PLAN_UTILIZATION_PLOT_H_
