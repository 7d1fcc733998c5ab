// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The outer loop over real gRPC, against what the algorithms' equations give.
#include "tests/end_to_end/synthetic_run.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/model_layout.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "outer_optimizer/sync_schedule.h"

namespace causeway {
namespace {

using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

std::string NewStateDir() {
  static int count = 0;
  return absl::StrCat(testing::TempDir(), "/state-", ++count, "-",
                      absl::ToUnixMicros(absl::Now()));
}

std::vector<float> Descend(std::vector<float> values, float target,
                           uint64_t steps) {
  for (uint64_t step = 0; step < steps; ++step) {
    for (float& value : values) {
      value -= QuadraticTrainer::kRate * (value - target);
    }
  }
  return values;
}

// (Streaming) DiLoCo on the quadratics, one fragment at a time, written
// straight from the papers' equations, in double. Islands are alike in tokens.
std::vector<double> SimulateFragment(const v1::RunConfig& config,
                                     const SyncSchedule& schedule,
                                     uint32_t fragment,
                                     std::vector<double> theta,
                                     const std::vector<float>& targets) {
  const double lr = config.outer_optimizer().learning_rate();
  const double mu = config.outer_optimizer().momentum();
  const double alpha = config.synchronization().mixing();
  std::vector<std::vector<double>> local(targets.size(), theta);
  std::vector<double> momentum(theta.size(), 0);
  std::vector<double> next;
  uint64_t apply_at = 0;
  for (uint64_t step = 1; step <= schedule.total_steps(); ++step) {
    for (size_t i = 0; i < targets.size(); ++i) {
      for (double& value : local[i]) {
        value -= QuadraticTrainer::kRate * (value - targets[i]);
      }
    }
    const auto apply = [&] {
      theta = next;
      for (std::vector<double>& values : local) {
        for (size_t k = 0; k < values.size(); ++k) {
          values[k] = alpha * values[k] + (1 - alpha) * theta[k];
        }
      }
      apply_at = 0;
    };
    if (apply_at != 0 && (step == apply_at || step == schedule.total_steps())) {
      apply();
    }
    if (!schedule.IsSentAt(fragment, step)) continue;
    next = theta;
    for (size_t k = 0; k < theta.size(); ++k) {
      double gradient = 0;
      for (const std::vector<double>& values : local) {
        gradient += (theta[k] - values[k]) / static_cast<double>(local.size());
      }
      momentum[k] = mu * momentum[k] + gradient;
      next[k] = theta[k] - lr * (gradient + mu * momentum[k]);
    }
    apply_at = schedule.ApplyStep(step);
    if (apply_at == step) apply();
  }
  return theta;
}

std::vector<float> Simulate(const v1::RunConfig& config,
                            const std::vector<float>& targets) {
  const ModelLayout layout = MakeModelLayout(config.model());
  const v1::FragmentPlan plan = *MakeFragmentPlan(layout, config);
  const FragmentMap map = *FragmentMap::Create(layout, plan);
  const SyncSchedule schedule = *SyncSchedule::Create(config, plan);
  std::vector<float> parameters = InitialParameters(layout, config.seed());
  for (uint32_t fragment = 0; fragment < map.fragments(); ++fragment) {
    std::vector<float> values(map.size(fragment));
    map.Gather(fragment, parameters, absl::MakeSpan(values));
    const std::vector<double> result = SimulateFragment(
        config, schedule, fragment, {values.begin(), values.end()}, targets);
    values.assign(result.begin(), result.end());
    map.Scatter(fragment, values, absl::MakeSpan(parameters));
  }
  return parameters;
}

std::vector<float> RunTwoIslands(const v1::RunConfig& config,
                                 std::vector<std::vector<float>>* locals) {
  auto coordinator = CoordinatorUnderTest::Start(config, NewStateDir());
  EXPECT_OK(coordinator);
  IslandUnderTest east({.name = "east",
                        .address = (*coordinator)->address(),
                        .target = 1,
                        .instance_id = 1});
  IslandUnderTest west({.name = "west",
                        .address = (*coordinator)->address(),
                        .target = -3,
                        .instance_id = 2});
  EXPECT_OK(east.Join());
  EXPECT_OK(west.Join());
  EXPECT_EQ((*coordinator)->engine().run_state(), v1::FINISHED);
  if (locals != nullptr) *locals = {east.parameters(), west.parameters()};
  return *(*coordinator)->Parameters();
}

struct Setting {
  const char* name;
  uint32_t fragments;
  uint32_t overlap;
  double mixing;
  uint32_t total_steps;
};

class AlgorithmTest : public testing::TestWithParam<Setting> {};

TEST_P(AlgorithmTest, GivesWhatTheEquationsSay) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_synchronization()->set_fragments(GetParam().fragments);
  config.mutable_synchronization()->set_overlap_steps(GetParam().overlap);
  config.mutable_synchronization()->set_mixing(GetParam().mixing);
  config.mutable_training()->set_total_steps(GetParam().total_steps);
  EXPECT_THAT(RunTwoIslands(config, nullptr),
              Pointwise(FloatNear(2e-5f), Simulate(config, {1, -3})));
}

INSTANTIATE_TEST_SUITE_P(
    All, AlgorithmTest,
    testing::Values(Setting{"DiLoCo", 1, 0, 0, 30},
                    Setting{"PartialLastWindow", 1, 0, 0, 27},
                    Setting{"Streaming", 4, 0, 0, 30},
                    Setting{"StreamingOverlap", 4, 3, 0, 34},
                    Setting{"StreamingOverlapMixing", 3, 4, 0.5, 40},
                    Setting{"OverlapLongerThanSpacing", 4, 7, 0.25, 40}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(SyntheticRunTest, IslandsEndOnTheCoordinatorsBits) {
  std::vector<std::vector<float>> locals;
  const std::vector<float> merged = RunTwoIslands(SyntheticConfig(), &locals);
  for (const std::vector<float>& local : locals) {
    ASSERT_EQ(local.size(), merged.size());
    EXPECT_EQ(
        std::memcmp(local.data(), merged.data(), merged.size() * sizeof(float)),
        0);
  }
}

TEST(SyntheticRunTest, MixingOneIsTrainingAlone) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_synchronization()->set_mixing(1);
  std::vector<std::vector<float>> locals;
  RunTwoIslands(config, &locals);
  const std::vector<float> initial =
      InitialParameters(MakeModelLayout(config.model()), config.seed());
  EXPECT_EQ(locals[0], Descend(initial, 1, 30));
  EXPECT_EQ(locals[1], Descend(initial, -3, 30));
}

TEST(SyntheticRunTest, OneIslandWithPlainAveragingTrainsAsIfAlone) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_membership()->set_min_islands(1);
  config.mutable_outer_optimizer()->set_algorithm(
      v1::OuterOptimizerConfig::SGD);
  config.mutable_outer_optimizer()->set_learning_rate(1);
  ASSERT_OK_AND_ASSIGN(auto coordinator,
                       CoordinatorUnderTest::Start(config, NewStateDir()));
  IslandUnderTest island({.name = "only",
                          .address = coordinator->address(),
                          .target = 2,
                          .instance_id = 1});
  ASSERT_OK(island.Join());
  const std::vector<float> initial =
      InitialParameters(MakeModelLayout(config.model()), config.seed());
  EXPECT_THAT(*coordinator->Parameters(),
              Pointwise(FloatNear(1e-5f), Descend(initial, 2, 30)));
}

// A thread cannot be killed; an island that stops in the middle of a step and
// stops its heartbeats as well is the next best thing. (processes_test.cc has
// real SIGKILLs.)
TEST(SyntheticRunTest, AnIslandThatIsGoneDelaysTheOtherByItsLeaseAtMost) {
  const v1::RunConfig config = SyntheticConfig();
  ASSERT_OK_AND_ASSIGN(auto coordinator,
                       CoordinatorUnderTest::Start(config, NewStateDir()));
  IslandUnderTest east({.name = "east",
                        .address = coordinator->address(),
                        .target = 1,
                        .instance_id = 1});
  IslandUnderTest west({.name = "west",
                        .address = coordinator->address(),
                        .target = -3,
                        .instance_id = 2,
                        .before_step = [](uint64_t step) {
                          return step < 15 ? absl::OkStatus()
                                           : absl::AbortedError("dies here");
                        }});
  EXPECT_THAT(west.Join(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_OK(east.Join());
  EXPECT_EQ(coordinator->engine().run_state(), v1::FINISHED);
}

TEST(SyntheticRunTest, ARestartedCoordinatorContinuesTheRun) {
  const v1::RunConfig config = SyntheticConfig();
  const std::string state_dir = NewStateDir();
  ASSERT_OK_AND_ASSIGN(auto coordinator,
                       CoordinatorUnderTest::Start(config, state_dir));
  const std::string address = coordinator->address();
  absl::Notification reached;
  absl::Notification restarted;
  IslandUnderTest east(
      {.name = "east", .address = address, .target = 1, .instance_id = 1});
  IslandUnderTest west({.name = "west",
                        .address = address,
                        .target = -3,
                        .instance_id = 2,
                        .before_step = [&](uint64_t step) {
                          if (step == 15) {
                            reached.Notify();
                            restarted.WaitForNotification();
                          }
                          return absl::OkStatus();
                        }});
  reached.WaitForNotification();
  coordinator.reset();
  ASSERT_OK_AND_ASSIGN(coordinator,
                       CoordinatorUnderTest::Start(config, state_dir, address));
  restarted.Notify();
  EXPECT_OK(east.Join());
  EXPECT_OK(west.Join());
  EXPECT_THAT(*coordinator->Parameters(),
              Pointwise(FloatNear(2e-5f), Simulate(config, {1, -3})));
}

struct Wire {
  const char* name;
  // Fields of the configuration's `synchronization`.
  const char* fields;
  // How far rounding may lead: root mean square of the difference from exact
  // transport, relative to that of the distance to the start.
  double tolerance;
};

double Distance(const std::vector<float>& left,
                const std::vector<float>& right) {
  double sum = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    sum += std::pow(left[i] - right[i], 2);
  }
  return std::sqrt(sum / static_cast<double>(left.size()));
}

class WireTest : public testing::TestWithParam<Wire> {};

// Whatever is lost on the way is lost for all alike: islands and coordinator
// end with the same bits, near what exact transport gives.
TEST_P(WireTest, EverybodyHoldsTheSameBits) {
  const v1::RunConfig exact = SyntheticConfig();
  v1::RunConfig config = exact;
  ASSERT_TRUE(google::protobuf::TextFormat::MergeFromString(
      GetParam().fields, config.mutable_synchronization()));
  std::vector<std::vector<float>> locals;
  const std::vector<float> global = RunTwoIslands(config, &locals);
  EXPECT_EQ(locals[0], global);
  EXPECT_EQ(locals[1], global);
  const std::vector<float> expected = Simulate(exact, {1, -3});
  const std::vector<float> start =
      InitialParameters(MakeModelLayout(config.model()), config.seed());
  EXPECT_NE(global, expected);
  EXPECT_LT(Distance(global, expected),
            GetParam().tolerance * Distance(start, expected));
}

INSTANTIATE_TEST_SUITE_P(
    Formats, WireTest,
    testing::Values(
        Wire{"E3m0", "uplink_format: E3M0 downlink_format: E3M0", 0.3},
        Wire{"Int4EntropyCoded",
             "uplink_format: INT4 downlink_format: INT4 entropy_coding: true",
             0.1},
        Wire{"EcqWithErrorFeedback",
             "uplink_format: ECQ downlink_format: ECQ error_feedback: 1", 0.2},
        Wire{"Int2WithErrorFeedback",
             "uplink_format: INT2 downlink_format: INT8 error_feedback: 1",
             0.5},
        Wire{"StochasticInt8",
             "uplink_format: INT8 downlink_format: BF16 "
             "uplink_rounding: STOCHASTIC block_size: 64",
             0.05}),
    [](const auto& info) { return info.param.name; });

TEST(SyntheticRunTest, AJoinerTakesPartFromItsFirstFullWindow) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_membership()->set_min_islands(1);
  config.mutable_training()->set_total_steps(60);
  ASSERT_OK_AND_ASSIGN(auto coordinator,
                       CoordinatorUnderTest::Start(config, NewStateDir()));
  absl::Notification half_way;
  absl::Notification joined;
  IslandUnderTest east({.name = "east",
                        .address = coordinator->address(),
                        .target = 1,
                        .instance_id = 1,
                        .before_step = [&](uint64_t step) {
                          if (step == 25) {
                            half_way.Notify();
                            joined.WaitForNotification();
                          }
                          return absl::OkStatus();
                        }});
  half_way.WaitForNotification();
  IslandUnderTest west({.name = "west",
                        .address = coordinator->address(),
                        .target = -3,
                        .instance_id = 2,
                        .before_step = [&](uint64_t) {
                          if (!joined.HasBeenNotified()) joined.Notify();
                          return absl::OkStatus();
                        }});
  EXPECT_OK(east.Join());
  EXPECT_OK(west.Join());
  // Rounds 4, 5 and 6 have both; round 3 was under way when west came.
  const v1::ListIslandsResponse islands =
      coordinator->engine().ListIslands(true);
  EXPECT_EQ(islands.islands(0).contributions_merged(), 6);
  EXPECT_EQ(islands.islands(1).contributions_merged(), 3);
  EXPECT_GE(islands.islands(1).tokens_merged(),
            30 * QuadraticTrainer::kTokensPerStep);
}

TEST(SyntheticRunTest, ANameInUseIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto coordinator, CoordinatorUnderTest::Start(
                                             SyntheticConfig(), NewStateDir()));
  IslandUnderTest first(
      {.name = "east", .address = coordinator->address(), .instance_id = 1});
  while (coordinator->engine().ListIslands(false).islands_size() == 0) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  IslandUnderTest second(
      {.name = "east", .address = coordinator->address(), .instance_id = 2});
  EXPECT_THAT(second.Join(), StatusIs(absl::StatusCode::kAlreadyExists,
                                      HasSubstr("already joined")));
}

}  // namespace
}  // namespace causeway
