// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/utilization_plot.h"

#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

RunAssumptions Assumptions() {
  RunAssumptions assumptions{
      .layout = *MakeUniformLayout(1'000'000, 100'000, 6),
      .islands = {{.step_seconds = 0.1}, {.step_seconds = 0.1}}};
  v1::SynchronizationConfig& sync =
      *assumptions.config.mutable_synchronization();
  sync.set_inner_steps_per_round(100);
  sync.set_fragments(3);
  sync.set_overlap_steps(5);
  sync.set_uplink_format(v1::E3M0);
  sync.set_downlink_format(v1::E3M0);
  return assumptions;
}

std::vector<UtilizationCurve> Curves(const RunAssumptions& assumptions) {
  absl::StatusOr<std::vector<UtilizationCurve>> curves =
      UtilizationCurves(assumptions);
  EXPECT_OK(curves);
  return *std::move(curves);
}

TEST(UtilizationCurvesTest, EachFeatureIsWorthSomething) {
  const std::vector<UtilizationCurve> curves = Curves(Assumptions());
  ASSERT_EQ(curves.size(), 4);
  EXPECT_EQ(curves[0].name, "P 3, tau 5, E3M0");
  EXPECT_EQ(curves[1].name, "P 3, tau 5, FP32");
  EXPECT_EQ(curves[2].name, "P 3, tau 0, FP32");
  EXPECT_EQ(curves[3].name, "P 1, tau 0, FP32");
  for (size_t i = 0; i < curves[0].points.size(); ++i) {
    for (size_t c = 1; c < curves.size(); ++c) {
      EXPECT_EQ(curves[c].points[i].first, curves[0].points[i].first);
      EXPECT_GE(curves[c - 1].points[i].second + 1e-9,
                curves[c].points[i].second)
          << curves[c].name << " at " << curves[c].points[i].first;
    }
  }
}

TEST(UtilizationCurvesTest, RunFromLittleToAll) {
  for (const UtilizationCurve& curve : Curves(Assumptions())) {
    EXPECT_LT(curve.points.front().second, 0.2) << curve.name;
    EXPECT_GT(curve.points.back().second, 0.97) << curve.name;
  }
}

TEST(UtilizationCurvesTest, WhatARunHasNotIsLeftOut) {
  RunAssumptions assumptions = Assumptions();
  v1::SynchronizationConfig& sync =
      *assumptions.config.mutable_synchronization();
  sync.set_fragments(1);
  sync.set_overlap_steps(0);
  EXPECT_EQ(Curves(assumptions).size(), 2);
}

TEST(UtilizationSvgTest, IsAPictureWithLabels) {
  const std::string svg = UtilizationSvg("A title", Curves(Assumptions()));
  EXPECT_THAT(svg, HasSubstr("<svg "));
  EXPECT_THAT(svg, HasSubstr("A title"));
  EXPECT_THAT(svg, HasSubstr("10 Mbit/s"));
  EXPECT_THAT(svg, HasSubstr("P 3, tau 5, E3M0"));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
}

}  // namespace
}  // namespace causeway
