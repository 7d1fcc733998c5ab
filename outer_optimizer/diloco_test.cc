// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Puts the parts of this folder together as a run, without processes: islands
// that do SGD on quadratic losses, and a coordinator that merges. The
// degenerate cases of (Streaming) DiLoCo are known algorithms; each is written
// here a second time, plainly, and must give the same numbers.
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/checksum.h"
#include "common/tensors/model_layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "outer_optimizer/merge.h"
#include "outer_optimizer/mixing.h"
#include "outer_optimizer/outer_step.h"
#include "outer_optimizer/sync_schedule.h"
#include "outer_optimizer/testing/whole_step.h"
#include "quantization/codec.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

using Outer = v1::OuterOptimizerConfig;

constexpr float kInnerRate = 0.05f;

// An island's loss: the sum of curvature_i (x_i - target_i)^2 / 2.
struct Quadratic {
  std::vector<float> curvature;
  std::vector<float> target;

  float Gradient(size_t i, float x) const {
    return curvature[i] * (x - target[i]);
  }
};

v1::RunConfig Config() {
  v1::RunConfig config;
  v1::ModelConfig& model = *config.mutable_model();
  model.set_layers(3);
  model.set_hidden_size(4);
  model.set_intermediate_size(8);
  model.set_heads(1);
  model.set_kv_heads(1);
  model.set_vocab_size(5);
  config.mutable_training()->set_total_steps(40);
  v1::SynchronizationConfig& sync = *config.mutable_synchronization();
  sync.set_inner_steps_per_round(10);
  sync.set_uplink_format(v1::FP32);
  sync.set_downlink_format(v1::FP32);
  return config;
}

std::vector<Quadratic> Losses(size_t islands, size_t size) {
  std::vector<Quadratic> losses(islands);
  for (size_t island = 0; island < islands; ++island) {
    for (size_t i = 0; i < size; ++i) {
      const double phase = static_cast<double>(i + 100 * island);
      losses[island].curvature.push_back(
          static_cast<float>(1.5 + std::sin(phase)));
      losses[island].target.push_back(static_cast<float>(std::cos(phase)));
    }
  }
  return losses;
}

struct Island {
  Quadratic loss;
  uint64_t tokens_per_step = 0;
  std::vector<float> parameters;
  // One anchor per fragment.
  std::vector<std::vector<float>> anchors;
};

// A round that was sent and is not yet applied.
struct PendingUpdate {
  uint32_t fragment = 0;
  // The islands' parameters as they were sent.
  std::vector<std::vector<float>> snapshots;
  std::vector<float> decoded;
};

// Runs `config` with islands of these losses, which all take part in all
// rounds.
class ToyRun {
 public:
  ToyRun(const v1::RunConfig& config,
         const std::vector<uint64_t>& tokens_per_step)
      : config_(config) {
    const ModelLayout layout = MakeModelLayout(config.model());
    const v1::FragmentPlan plan = MakeFragmentPlan(layout, config).value();
    map_ = FragmentMap::Create(layout, plan).value();
    schedule_ = SyncSchedule::Create(config, plan).value();
    initial_ = InitialParameters(layout, 3);
    const std::vector<Quadratic> losses =
        Losses(tokens_per_step.size(), initial_.size());
    for (size_t i = 0; i < tokens_per_step.size(); ++i) {
      islands_.push_back({.loss = losses[i],
                          .tokens_per_step = tokens_per_step[i],
                          .parameters = initial_});
    }
    for (uint32_t p = 0; p < map_->fragments(); ++p) {
      std::vector<float> values(map_->size(p));
      map_->Gather(p, initial_, absl::MakeSpan(values));
      for (Island& island : islands_) island.anchors.push_back(values);
      options_.push_back(
          MakeOuterStepOptions(config, plan.fragments(static_cast<int>(p))));
      states_.push_back(InitialOuterState(options_.back(), std::move(values)));
    }
  }

  void Train() {
    std::map<uint64_t, std::vector<PendingUpdate>> pending;
    for (uint64_t step = 1; step <= schedule_->total_steps(); ++step) {
      for (Island& island : islands_) InnerStep(island);
      // Updates due at this step are applied before anything is sent at it.
      for (const PendingUpdate& update : pending[step]) Apply(update);
      for (const SyncSchedule::Send& send : schedule_->SendsAt(step)) {
        PendingUpdate update = Merge(send.fragment, step);
        const uint64_t apply_step = schedule_->ApplyStep(step);
        if (apply_step == step) {
          Apply(update);
        } else {
          pending[apply_step].push_back(std::move(update));
        }
      }
    }
  }

  const std::vector<Island>& islands() const { return islands_; }
  const std::vector<float>& initial() const { return initial_; }
  const FragmentMap& map() const { return *map_; }

  // The coordinator's parameters as a flat vector.
  std::vector<float> GlobalParameters() const {
    std::vector<float> global(initial_.size());
    for (uint32_t p = 0; p < map_->fragments(); ++p) {
      map_->Scatter(p, states_[p].theta, absl::MakeSpan(global));
    }
    return global;
  }

  static void InnerStep(Island& island) {
    for (size_t i = 0; i < island.parameters.size(); ++i) {
      float& x = island.parameters[i];
      x -= kInnerRate * island.loss.Gradient(i, x);
    }
  }

 private:
  PendingUpdate Merge(uint32_t fragment, uint64_t step) {
    PendingUpdate update{.fragment = fragment};
    const CodecSpec spec{.format = config_.synchronization().uplink_format()};
    std::vector<Effort> efforts;
    std::vector<std::string> encoded;
    for (const Island& island : islands_) {
      std::vector<float> values(map_->size(fragment));
      map_->Gather(fragment, island.parameters, absl::MakeSpan(values));
      update.snapshots.push_back(values);
      PseudoGradient(island.anchors[fragment], values, absl::MakeSpan(values));
      encoded.push_back(Encode(spec, values).value());
      efforts.push_back(
          {.tokens = island.tokens_per_step * step, .inner_steps = step});
    }
    const std::vector<float> shares =
        MergeShares(config_.outer_optimizer().weighting(), efforts).value();
    std::vector<MergeInput> inputs;
    for (size_t i = 0; i < islands_.size(); ++i) {
      inputs.push_back({spec, encoded[i], shares[i]});
    }
    OuterStepResult result =
        RunOuterStep(options_[fragment], states_[fragment], inputs).value();
    states_[fragment] = std::move(result.state);
    update.decoded.resize(map_->size(fragment));
    EXPECT_OK(Decode(options_[fragment].downlink, result.update,
                     absl::MakeSpan(update.decoded)));
    return update;
  }

  void Apply(const PendingUpdate& update) {
    for (size_t i = 0; i < islands_.size(); ++i) {
      Island& island = islands_[i];
      std::vector<float>& anchor = island.anchors[update.fragment];
      std::vector<float> change = update.decoded;
      NextAnchor(std::vector<float>(anchor), absl::MakeSpan(change),
                 absl::MakeSpan(anchor));
      std::vector<float> values(anchor.size());
      map_->Gather(update.fragment, island.parameters, absl::MakeSpan(values));
      Mix(anchor, update.snapshots[i], absl::MakeSpan(values));
      map_->Scatter(update.fragment, values, absl::MakeSpan(island.parameters));
    }
  }

  const v1::RunConfig config_;
  std::optional<FragmentMap> map_;
  std::optional<SyncSchedule> schedule_;
  std::vector<float> initial_;
  std::vector<Island> islands_;
  std::vector<OuterStepOptions> options_;
  std::vector<OuterState> states_;
};

// DiLoCo, algorithm 1, for two islands of equal weight, flat and unencoded.
std::vector<float> PlainDiLoCo(const ToyRun& run, uint64_t rounds,
                               uint64_t steps, float rate, float momentum) {
  std::vector<float> theta = run.initial();
  std::vector<float> m(theta.size());
  std::vector<Island> islands = run.islands();
  for (uint64_t round = 0; round < rounds; ++round) {
    for (Island& island : islands) {
      island.parameters = theta;
      for (uint64_t step = 0; step < steps; ++step) ToyRun::InnerStep(island);
    }
    for (size_t i = 0; i < theta.size(); ++i) {
      const float g = 0.5f * (theta[i] - islands[0].parameters[i]) +
                      0.5f * (theta[i] - islands[1].parameters[i]);
      m[i] = momentum * m[i] + g;
      theta[i] += -rate * (g + momentum * m[i]);
    }
  }
  return theta;
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += std::pow(double{a[i]} - double{b[i]}, 2);
  }
  return std::sqrt(sum);
}

TEST(DiLoCoTest, OneFragmentWithoutOverlapIsDiLoCo) {
  v1::RunConfig config = Config();
  config.mutable_outer_optimizer()->set_learning_rate(0.7);
  config.mutable_outer_optimizer()->set_momentum(0.9);
  ToyRun run(config, {100, 100});
  run.Train();
  EXPECT_EQ(run.GlobalParameters(), PlainDiLoCo(run, 4, 10, 0.7f, 0.9f));
}

// Without overlap, fragments contain the same inner steps.
TEST(DiLoCoTest, TheCutDoesNotMatterWithoutOverlap) {
  v1::RunConfig config = Config();
  ToyRun whole(config, {100, 100});
  whole.Train();
  config.mutable_synchronization()->set_fragments(4);
  ToyRun cut(config, {100, 100});
  cut.Train();
  EXPECT_EQ(cut.GlobalParameters(), whole.GlobalParameters());
}

TEST(DiLoCoTest, H1WithPlainSgdIsDataParallel) {
  v1::RunConfig config = Config();
  config.mutable_synchronization()->set_inner_steps_per_round(1);
  config.mutable_outer_optimizer()->set_algorithm(Outer::SGD);
  config.mutable_outer_optimizer()->set_learning_rate(1);
  ToyRun run(config, {100, 300});
  run.Train();
  // This is one optimizer on the token-weighted mean gradient.
  std::vector<float> theta = run.initial();
  const Quadratic& a = run.islands()[0].loss;
  const Quadratic& b = run.islands()[1].loss;
  for (int step = 0; step < 40; ++step) {
    for (size_t i = 0; i < theta.size(); ++i) {
      const float mean =
          0.25f * a.Gradient(i, theta[i]) + 0.75f * b.Gradient(i, theta[i]);
      theta[i] -= kInnerRate * mean;
    }
  }
  EXPECT_THAT(run.GlobalParameters(),
              testing::Pointwise(testing::FloatNear(2e-6f), theta));
}

// Nothing that an island trains is lost while an update is under way.
TEST(DiLoCoTest, OneIslandWithRate1IsTrainingAlone) {
  v1::RunConfig config = Config();
  config.mutable_synchronization()->set_fragments(3);
  config.mutable_synchronization()->set_overlap_steps(8);
  config.mutable_outer_optimizer()->set_algorithm(Outer::SGD);
  config.mutable_outer_optimizer()->set_learning_rate(1);
  ToyRun run(config, {100});
  Island alone = run.islands()[0];
  run.Train();
  for (int step = 0; step < 40; ++step) ToyRun::InnerStep(alone);
  EXPECT_THAT(run.GlobalParameters(),
              testing::Pointwise(testing::FloatNear(2e-6f), alone.parameters));
}

class StreamingTest : public testing::TestWithParam<v1::Format> {};

INSTANTIATE_TEST_SUITE_P(Formats, StreamingTest,
                         testing::Values(v1::FP32, v1::BF16, v1::INT8,
                                         v1::E3M0),
                         [](const testing::TestParamInfo<v1::Format>& info) {
                           return v1::Format_Name(info.param);
                         });

// Fragments take turns, with overlap, and a last window shorter than H.
TEST_P(StreamingTest, IslandsHoldTheCoordinatorsBitsAndMergeWhatTheyLearn) {
  v1::RunConfig config = Config();
  config.mutable_training()->set_total_steps(403);
  config.mutable_synchronization()->set_fragments(4);
  config.mutable_synchronization()->set_overlap_steps(3);
  config.mutable_synchronization()->set_uplink_format(GetParam());
  config.mutable_synchronization()->set_downlink_format(GetParam());
  config.mutable_outer_optimizer()->set_learning_rate(0.4);
  config.mutable_outer_optimizer()->set_momentum(0.5);
  ToyRun run(config, {100, 100});
  run.Train();

  const std::vector<float> global = run.GlobalParameters();
  for (const Island& island : run.islands()) {
    std::vector<float> anchors(global.size());
    for (uint32_t p = 0; p < run.map().fragments(); ++p) {
      run.map().Scatter(p, island.anchors[p], absl::MakeSpan(anchors));
    }
    EXPECT_EQ(Digest128(anchors), Digest128(global));
  }

  // The merged model is much nearer to the optimum of the summed loss than an
  // island alone would get, which is its own optimum. (It is not at the
  // optimum: islands that take several steps by themselves weigh curvatures
  // differently.)
  std::vector<float> optimum(global.size());
  const Quadratic& a = run.islands()[0].loss;
  const Quadratic& b = run.islands()[1].loss;
  for (size_t i = 0; i < optimum.size(); ++i) {
    optimum[i] = (a.curvature[i] * a.target[i] + b.curvature[i] * b.target[i]) /
                 (a.curvature[i] + b.curvature[i]);
  }
  EXPECT_LT(Distance(global, optimum), 0.2 * Distance(a.target, optimum));
}

}  // namespace
}  // namespace causeway
