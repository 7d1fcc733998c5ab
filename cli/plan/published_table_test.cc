// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/published_table.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(PublishedTableTest, IsReproduced) {
  const absl::StatusOr<std::vector<PublishedCell>> cells =
      SimulatePublishedTable();
  ASSERT_OK(cells);
  ASSERT_EQ(cells->size(), 75);
  const auto within = [&](int steps) {
    return std::count_if(cells->begin(), cells->end(),
                         [&](const PublishedCell& cell) {
                           return std::abs(cell.grid_steps) <= steps;
                         });
  };
  EXPECT_GE(within(0), 67);
  EXPECT_EQ(within(1), 75);
}

// The paper rounds to two decimals, and then to one.
TEST(PublishedTableTest, PublishedValuesAreOfTheGrid) {
  const absl::StatusOr<std::vector<PublishedCell>> cells =
      SimulatePublishedTable();
  ASSERT_OK(cells);
  for (const PublishedCell& cell : *cells) {
    const double of_grid =
        cell.simulated * std::pow(10, -4.0 * cell.grid_steps / 49);
    EXPECT_NEAR(of_grid, cell.published, 0.055)
        << cell.model->name << ", " << cell.method->name << " at "
        << cell.utilization;
  }
}

}  // namespace
}  // namespace causeway
