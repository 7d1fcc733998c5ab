// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/sharded_optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/tensors/model_layout.h"
#include "common/tensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/reference/golden_values.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/model/ops_cpu.h"
#include "worker/model/testing/small_model.h"
#include "worker/model/transformer.h"

namespace causeway {
namespace {

using testing::ElementsAre;

class ShardedOptimizerTest
    : public testing::TestWithParam<v1::TrainingConfig::Optimizer> {
 protected:
  ShardedOptimizerTest() : layout_(MakeModelLayout(SmallModel())) {
    config_.set_optimizer(GetParam());
  }

  // The gradients of tests/reference/make_adamw_golden.py.
  std::vector<float> GoldenGradients(int update) const {
    std::vector<float> gradients =
        InitialParameters(layout_, static_cast<uint64_t>(100 + update));
    for (float& value : gradients) value *= update % 2 == 1 ? 4.0f : 1.0f;
    return gradients;
  }

  // Runs `body` on `ranks` ranks, each on a thread of its own.
  void OnRanks(
      int ranks,
      const std::function<void(Communicator&, ShardedOptimizer&)>& body) {
    LocalRendezvous rendezvous;
    std::vector<std::unique_ptr<Transport>> transports =
        MakeLocalTransports(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto communicator =
            MakeMessageCommunicator({.now = SteadyWallClock()},
                                    std::move(transports[rank]), &rendezvous);
        const std::unique_ptr<Ops> ops = MakeCpuOps(1);
        ASSERT_OK_AND_ASSIGN(
            const auto optimizer,
            ShardedOptimizer::Create(config_, layout_, communicator.get(),
                                     ops.get()));
        body(*communicator, *optimizer);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Returns the sum of `count` micro-batches of a rank.
  std::vector<float> Gradients(int rank, int64_t count) const {
    std::vector<float> gradients(layout_.size);
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>(count) *
                     static_cast<float>((i * 7 + rank * 3) % 13 + 1);
    }
    return gradients;
  }

  // Makes one update with `gradients`, the sum of this rank's `count`
  // micro-batches. `parameters` is the whole vector, whose shard changes.
  static void Update(ShardedOptimizer& optimizer, double rate, int64_t count,
                     std::vector<float> gradients,
                     std::vector<float>& parameters) {
    ASSERT_OK_AND_ASSIGN(
        const ReducedGradient reduced,
        optimizer.Reduce({.count = count}, absl::MakeSpan(gradients)));
    optimizer.Step(rate, reduced, gradients,
                   parameters.data() + optimizer.shard().begin);
  }

  v1::TrainingConfig config_;
  ModelLayout layout_;
};

INSTANTIATE_TEST_SUITE_P(Optimizers, ShardedOptimizerTest,
                         testing::Values(v1::TrainingConfig::ADAMW,
                                         v1::TrainingConfig::MUON),
                         [](const auto& test) {
                           return v1::TrainingConfig::Optimizer_Name(
                               test.param);
                         });

class AdamWTest : public ShardedOptimizerTest {};
INSTANTIATE_TEST_SUITE_P(, AdamWTest,
                         testing::Values(v1::TrainingConfig::ADAMW));
class MuonTest : public ShardedOptimizerTest {};
INSTANTIATE_TEST_SUITE_P(, MuonTest, testing::Values(v1::TrainingConfig::MUON));

// Expects the values of the `update`th row of `golden`.
void ExpectRow(const std::vector<float>& values, double tolerance, int update,
               const std::vector<double>& golden) {
  ASSERT_GE(golden.size(), values.size() * update);
  const double* row = golden.data() + values.size() * (update - 1);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], row[i], tolerance) << i << " after " << update;
  }
}

TEST_P(AdamWTest, UpdatesAreThoseOfPyTorch) {
  config_.set_gradient_clip(20);
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsFile file,
      SafetensorsFile::Open("tests/reference/adamw_golden.safetensors"));
  ASSERT_OK_AND_ASSIGN(const std::vector<double> norms,
                       GoldenValues(file.contents(), "norms"));
  ASSERT_OK_AND_ASSIGN(const std::vector<double> golden,
                       GoldenValues(file.contents(), "parameters"));
  ASSERT_EQ(norms.size(), 5u);
  OnRanks(1, [&](Communicator&, ShardedOptimizer& optimizer) {
    std::vector<float> parameters = InitialParameters(layout_, 1);
    for (int update = 1; update <= 5; ++update) {
      std::vector<float> gradients = GoldenGradients(update);
      ASSERT_OK_AND_ASSIGN(
          const ReducedGradient reduced,
          optimizer.Reduce({.count = 1}, absl::MakeSpan(gradients)));
      const double norm = norms[update - 1];
      EXPECT_NEAR(reduced.gradient_norm, norm, 1e-6 * norm);
      optimizer.Step(0.01 * update, reduced, gradients, parameters.data());
      ExpectRow(parameters, 1e-6, update, golden);
    }
  });
}

TEST_P(MuonTest, UpdatesAreThoseOfSingularValues) {
  config_.set_gradient_clip(20);
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsFile file,
      SafetensorsFile::Open("tests/reference/muon_golden.safetensors"));
  EXPECT_EQ(file.contents().metadata.size(), 3u);
  for (const auto& [name, config] : file.contents().metadata) {
    SCOPED_TRACE(config);
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        config, config_.mutable_muon()));
    ASSERT_OK_AND_ASSIGN(const std::vector<double> golden,
                         GoldenValues(file.contents(), name));
    OnRanks(1, [&](Communicator&, ShardedOptimizer& optimizer) {
      std::vector<float> parameters = InitialParameters(layout_, 1);
      for (int update = 1; update <= 3; ++update) {
        Update(optimizer, 0.01 * update, 1, GoldenGradients(update),
               parameters);
        ExpectRow(parameters, 1e-5, update, golden);
      }
    });
  }
}

TEST_P(ShardedOptimizerTest, AClipOfZeroIsNone) {
  const auto updated = [&](double clip) {
    config_.set_gradient_clip(clip);
    std::vector<float> parameters = InitialParameters(layout_, 1);
    OnRanks(1, [&](Communicator&, ShardedOptimizer& optimizer) {
      Update(optimizer, 0.1, 1, GoldenGradients(1), parameters);
    });
    return parameters;
  };
  EXPECT_EQ(updated(0), updated(1e9));
}

TEST_P(ShardedOptimizerTest, ZeroGradientsOnlyDecayMatrices) {
  const std::vector<float> before = InitialParameters(layout_, 1);
  std::vector<float> parameters = before;
  OnRanks(1, [&](Communicator&, ShardedOptimizer& optimizer) {
    Update(optimizer, 0.5, 1, std::vector<float>(before.size()), parameters);
  });
  for (const TensorSpec& tensor : layout_.tensors) {
    // The default weight decay is 0.1.
    const float decay = tensor.shape.size() > 1 ? 0.95f : 1.0f;
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      EXPECT_FLOAT_EQ(parameters[i], decay * before[i]) << tensor.name;
    }
  }
}

TEST_P(ShardedOptimizerTest, OneBatchIsLearntByHeart) {
  v1::ModelConfig config = SmallModel();
  config.set_hidden_size(24);
  config.set_intermediate_size(48);
  config.set_vocab_size(32);
  config.set_sequence_length(16);
  config.set_init_stddev(0.1);
  layout_ = MakeModelLayout(config);
  const std::unique_ptr<Ops> ops = MakeCpuOps(2);
  ASSERT_OK_AND_ASSIGN(
      const auto model,
      Transformer::Create(config, {.micro_batch = 2}, ops.get()));
  std::vector<float> parameters = InitialParameters(layout_, 1);
  // Each token occurs once, so the model can learn exactly what follows it.
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  for (int i = 0; i < 32; ++i) {
    tokens.push_back(i);
    targets.push_back(i * 11 % 32);
  }
  double loss = 0;
  OnRanks(1, [&](Communicator&, ShardedOptimizer& optimizer) {
    for (int step = 0; step < 100; ++step) {
      std::vector<float> gradients(parameters.size());
      ASSERT_OK_AND_ASSIGN(
          loss, model->ForwardBackward(parameters.data(), tokens, targets, 1,
                                       gradients.data()));
      if (step == 0) {
        EXPECT_NEAR(loss, std::log(32.0), 0.5);
      }
      Update(optimizer, 0.02, 1, std::move(gradients), parameters);
    }
  });
  EXPECT_LT(loss, 0.01);
}

TEST_P(ShardedOptimizerTest, WeighsByTheNumberOfMicroBatches) {
  const std::vector<int64_t> counts = {1, 4, 0};
  std::vector<float> sum(layout_.size);
  double squares = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    for (int rank = 0; rank < 3; ++rank) {
      sum[i] += Gradients(rank, counts[rank])[i];
    }
    squares += double{sum[i]} * sum[i];
  }
  OnRanks(3, [&](Communicator& communicator, ShardedOptimizer& optimizer) {
    const int rank = communicator.rank();
    std::vector<float> gradients = Gradients(rank, counts[rank]);
    ASSERT_OK_AND_ASSIGN(
        const ReducedGradient reduced,
        optimizer.Reduce({.count = counts[rank]}, absl::MakeSpan(gradients)));
    EXPECT_THAT(reduced.rank_micro_batches, ElementsAre(1, 4, 0));
    EXPECT_EQ(reduced.micro_batches, 5);
    EXPECT_NEAR(reduced.gradient_norm, std::sqrt(squares) / 5, 1e-9);
    for (int64_t i = optimizer.shard().begin; i < optimizer.shard().end; ++i) {
      EXPECT_EQ(gradients[i], sum[i]);
    }
  });
}

TEST_P(ShardedOptimizerTest, TheLossIsTheMeanOverTheTargetsOfAllRanks) {
  OnRanks(3, [&](Communicator& communicator, ShardedOptimizer& optimizer) {
    const int rank = communicator.rank();
    const auto reduce = [&](const MicroBatches& own) {
      std::vector<float> gradients = Gradients(rank, own.count);
      return optimizer.Reduce(own, absl::MakeSpan(gradients));
    };
    ASSERT_OK_AND_ASSIGN(
        const ReducedGradient some,
        reduce({.count = 1, .loss = 6.0 * rank * rank, .targets = 4 * rank}));
    EXPECT_DOUBLE_EQ(some.loss, 2.5);
    // A mask may hide all tokens of a step, which has not diverged then.
    ASSERT_OK_AND_ASSIGN(const ReducedGradient none, reduce({.count = 1}));
    EXPECT_TRUE(std::isnan(none.loss));
  });
}

TEST_P(ShardedOptimizerTest,
       ShardsMakeTheUpdateOfTheWholeClippedByTheWholeNorm) {
  config_.set_gradient_clip(0.25);
  constexpr double kRate = 0.01;
  const std::vector<float> start = InitialParameters(layout_, 1);
  std::vector<float> want = start;
  OnRanks(1, [&](Communicator&, ShardedOptimizer& whole) {
    for (int update = 0; update < 3; ++update) {
      std::vector<float> sum = Gradients(0, 1 + update);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += Gradients(1, 2)[i];
      Update(whole, kRate, 3 + update, std::move(sum), want);
    }
  });
  OnRanks(2, [&](Communicator& communicator, ShardedOptimizer& optimizer) {
    std::vector<float> parameters = start;
    for (int update = 0; update < 3; ++update) {
      const int64_t count = communicator.rank() == 0 ? 1 + update : 2;
      Update(optimizer, kRate, count, Gradients(communicator.rank(), count),
             parameters);
    }
    for (int64_t i = optimizer.shard().begin; i < optimizer.shard().end; ++i) {
      EXPECT_NEAR(parameters[i], want[i], 1e-6);
    }
  });
}

TEST_P(ShardedOptimizerTest, UnclippedShardsMakeTheSameBitsAsTheWhole) {
  config_.set_gradient_clip(0);
  const auto updated = [&](int ranks) {
    std::vector<float> all(layout_.size);
    OnRanks(
        ranks, [&](Communicator& communicator, ShardedOptimizer& optimizer) {
          std::vector<float> parameters = InitialParameters(layout_, 1);
          for (int update = 1; update <= 3; ++update) {
            // A sum to which only one rank has added is exact.
            const int64_t count = communicator.rank() == 0 ? 2 : 0;
            Update(optimizer, 0.1, count,
                   count == 0 ? std::vector<float>(layout_.size)
                              : GoldenGradients(update),
                   parameters);
          }
          const Slice& shard = optimizer.shard();
          std::copy(parameters.begin() + shard.begin,
                    parameters.begin() + shard.end, all.begin() + shard.begin);
        });
    return all;
  };
  const std::vector<float> whole = updated(1);
  for (const int ranks : {2, 3, 4, 7}) EXPECT_EQ(updated(ranks), whole);
}

TEST_P(ShardedOptimizerTest, AnEstimateLeavesEveryBitAndIsWhatTheStepMakes) {
  OnRanks(2, [&](Communicator& communicator, ShardedOptimizer& optimizer) {
    const Slice& shard = optimizer.shard();
    std::vector<float> master = InitialParameters(layout_, 1);
    master = std::vector<float>(master.begin() + shard.begin,
                                master.begin() + shard.end);
    for (int update = 0; update < 3; ++update) {
      std::vector<float> gradients = Gradients(communicator.rank(), 2);
      ASSERT_OK_AND_ASSIGN(
          const ReducedGradient reduced,
          optimizer.Reduce({.count = 2}, absl::MakeSpan(gradients)));
      const std::vector<float> old_master = master;
      OptimizerState before;
      ASSERT_OK(optimizer.Save(before));
      // The estimate replaces the gradients, as in ACCO.
      std::vector<float> estimate = gradients;
      optimizer.Estimate(0.1, reduced, estimate, master.data(),
                         estimate.data() + shard.begin);
      EXPECT_EQ(master, old_master);
      OptimizerState after;
      ASSERT_OK(optimizer.Save(after));
      EXPECT_EQ(after.first_moment, before.first_moment);
      EXPECT_EQ(after.second_moment, before.second_moment);
      EXPECT_EQ(after.updates, update);
      optimizer.Step(0.1, reduced, gradients, master.data());
      EXPECT_NE(master, old_master);
      EXPECT_TRUE(std::equal(master.begin(), master.end(),
                             estimate.begin() + shard.begin));
    }
    OptimizerState state;
    ASSERT_OK(optimizer.Save(state));
    EXPECT_EQ(state.updates, 3);
  });
}

TEST_P(ShardedOptimizerTest, ARestoredStateContinuesBitForBit) {
  OnRanks(3, [&](Communicator& communicator, ShardedOptimizer& optimizer) {
    std::vector<float> parameters = InitialParameters(layout_, 1);
    for (int update = 1; update <= 2; ++update) {
      Update(optimizer, 0.1, 1, GoldenGradients(update), parameters);
    }
    OptimizerState state;
    ASSERT_OK(optimizer.Save(state));
    const std::unique_ptr<Ops> ops = MakeCpuOps(1);
    ASSERT_OK_AND_ASSIGN(
        const auto restored,
        ShardedOptimizer::Create(config_, layout_, &communicator, ops.get()));
    ASSERT_OK(restored->Restore(std::move(state)));
    std::vector<float> copy = parameters;
    Update(optimizer, 0.1, 1, GoldenGradients(3), parameters);
    Update(*restored, 0.1, 1, GoldenGradients(3), copy);
    EXPECT_EQ(copy, parameters);
  });
}

TEST_P(ShardedOptimizerTest, WhatIsNotFiniteOnOneRankIsToldOnAll) {
  OnRanks(2, [&](Communicator& communicator, ShardedOptimizer& optimizer) {
    std::vector<float> gradients = Gradients(0, 1);
    if (communicator.rank() == 1) {
      gradients[3] = std::numeric_limits<float>::quiet_NaN();
    }
    EXPECT_THAT(optimizer.Reduce({.count = 1}, absl::MakeSpan(gradients)),
                IsOutOfRange("gradient norm"));
  });
}

}  // namespace
}  // namespace causeway
