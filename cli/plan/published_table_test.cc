// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The published bandwidths that Streaming DiLoCo needs, and the simulation that
// reproduces them: Douillard et al., arXiv 2501.18512, table 4. H is 100.
//
// The paper gives no code. The simulation takes what the paper states: a node
// for the forward pass, the backward pass with respect to activations (not of
// layer 1) and the one with respect to parameters of every layer; a reduction
// per layer that starts as soon as the layer's backward pass is over and that
// the layer's forward pass waits for; three layers to a fragment, strided; one
// link and no latency; bandwidths from a grid of 50 values, 0.1 to 1000 Gbit/s
// in equal ratios. The rest was found by trying: all nodes of a step take the
// same time; a parameter travels once, in 16 bits (4 with FP4); a fragment
// starts every floor(H / (layers / 3 + 1)) steps, as if the embedding were one
// more, whose transfer costs nothing; and a model has kSizeFactor times the
// parameters in its name. That factor is the only fitted number.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/plan/exchange_simulator.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

constexpr double kSizeFactor = 0.84;

struct PublishedModel {
  absl::string_view name;
  double parameters = 0;
  int layers = 0;
  double step_seconds = 0;
};

struct PublishedMethod {
  absl::string_view name;
  // The paper's H; 1 for data parallel.
  int round_steps = 100;
  bool streaming = false;
  // The paper's tau.
  int overlap_steps = 0;
  double bits_per_parameter = 16;
};

struct PublishedCell {
  const PublishedModel* model = nullptr;
  const PublishedMethod* method = nullptr;
  // The compute utilization to reach.
  double utilization = 0;
  // The bandwidths in Gbit/s that reach it.
  double published = 0;
  double simulated = 0;
  // The number of grid steps by which `simulated` is above `published`.
  int grid_steps = 0;
};

constexpr int kGridSize = 50;
constexpr int kLayersPerFragment = 3;

constexpr std::array<double, 5> kUtilizations = {0.50, 0.80, 0.90, 0.95, 0.99};

constexpr PublishedModel kModels[] = {
    {"1B", 1e9, 24, 0.1}, {"10B", 1e10, 48, 0.8}, {"100B", 1e11, 108, 4.9}};

constexpr PublishedMethod kMethods[] = {
    {.name = "data parallel", .round_steps = 1},
    {.name = "DiLoCo"},
    {.name = "Streaming", .streaming = true},
    {.name = "Streaming, tau 1", .streaming = true, .overlap_steps = 1},
    {.name = "Streaming, tau 1, FP4",
     .streaming = true,
     .overlap_steps = 1,
     .bits_per_parameter = 4},
};

// Bandwidths in Gbit/s, by model, method and utilization.
constexpr double kPublished[3][5][5] = {
    {{86.8, 152.6, 184.2, 222.3, 569.0},
     {1.4, 6.2, 13.3, 23.3, 86.8},
     {1.4, 5.2, 9.1, 16.0, 28.1},
     {1.4, 4.3, 6.2, 9.1, 11.0},
     {0.4, 0.9, 1.7, 2.0, 3.0}},
    {{104.8, 222.3, 222.3, 268.3, 471.5},
     {1.7, 7.5, 16.0, 33.9, 104.8},
     {1.7, 5.2, 9.1, 13.3, 19.3},
     {1.7, 3.6, 5.2, 6.2, 7.5},
     {0.4, 0.9, 1.4, 1.4, 1.7}},
    {{184.2, 323.8, 390.7, 390.7, 471.5},
     {3.0, 11.0, 23.3, 49.4, 184.2},
     {2.4, 6.2, 9.1, 11.0, 19.3},
     {1.7, 3.6, 4.3, 5.2, 5.2},
     {0.5, 0.9, 1.1, 1.1, 1.4}},
};

double GridGbit(int index) {
  return std::pow(10.0, -1 + 4.0 * index / (kGridSize - 1));
}

// Returns the index of the grid value that is printed as `gbit`.
int GridIndex(double gbit) {
  return static_cast<int>(
      std::lround((std::log10(gbit) + 1) * (kGridSize - 1) / 4));
}

// Returns the exchanges that a step of `model` has with `method`.
Simulation PublishedSimulation(const PublishedModel& model,
                               const PublishedMethod& method,
                               double bits_per_second) {
  const int layers = model.layers;
  const int nodes = 3 * layers - 1;
  const int fragments = layers / kLayersPerFragment;
  const int slot_steps = method.round_steps / (fragments + 1);
  Simulation simulation{.period_steps = static_cast<double>(method.round_steps),
                        .islands = {{.step_seconds = model.step_seconds,
                                     .link = {.up = bits_per_second}}}};
  for (int layer = 0; layer < layers; ++layer) {
    const int step = method.streaming ? layer % fragments * slot_steps : 0;
    // The order is: forward passes of all layers, then two backward nodes for
    // each layer from the last down to this one; layer 0 has only one.
    const int nodes_before = std::min(layers + 2 * (layers - layer), nodes);
    simulation.exchanges.push_back(
        {.ready_at = step + static_cast<double>(nodes_before) / nodes,
         .needed_at = step + 1 + method.overlap_steps +
                      static_cast<double>(layer) / nodes,
         .up_bits = kSizeFactor * model.parameters / layers *
                    method.bits_per_parameter});
  }
  return simulation;
}

// Returns the index of the first grid value that reaches the utilization;
// kGridSize if none does. Utilization does not fall with bandwidth.
absl::StatusOr<int> FirstThatReaches(const PublishedModel& model,
                                     const PublishedMethod& method,
                                     double utilization) {
  int low = 0;
  int high = kGridSize;
  while (low < high) {
    const int middle = (low + high) / 2;
    ASSIGN_OR_RETURN(
        const SimulatedRun run,
        Simulate(PublishedSimulation(model, method, 1e9 * GridGbit(middle))));
    if (run.utilization >= utilization) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Simulates all 75 cells: by model, then method, then utilization.
absl::StatusOr<std::vector<PublishedCell>> SimulatePublishedTable() {
  std::vector<PublishedCell> cells;
  for (size_t m = 0; m < std::size(kModels); ++m) {
    for (size_t k = 0; k < std::size(kMethods); ++k) {
      for (size_t u = 0; u < kUtilizations.size(); ++u) {
        PublishedCell& cell = cells.emplace_back();
        cell.model = &kModels[m];
        cell.method = &kMethods[k];
        cell.utilization = kUtilizations[u];
        cell.published = kPublished[m][k][u];
        ASSIGN_OR_RETURN(
            const int index,
            FirstThatReaches(*cell.model, *cell.method, cell.utilization));
        cell.simulated = GridGbit(index);
        cell.grid_steps = index - GridIndex(cell.published);
      }
    }
  }
  return cells;
}

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
