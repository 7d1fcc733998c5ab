// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/sharded_adamw.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/model_layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/model/ops_cpu.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ShardedAdamWTest : public testing::Test {
 protected:
  ShardedAdamWTest() {
    v1::ModelConfig config;
    config.set_layers(1);
    config.set_hidden_size(6);
    config.set_intermediate_size(5);
    config.set_heads(3);
    config.set_kv_heads(3);
    config.set_vocab_size(7);
    config.set_sequence_length(4);
    layout_ = MakeModelLayout(config);
  }

  // Runs `body` on `ranks` ranks, each on a thread of its own.
  void OnRanks(int ranks,
               const std::function<void(Communicator&, ShardedAdamW&)>& body) {
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
            ShardedAdamW::Create(config_, layout_, communicator.get(),
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

  v1::TrainingConfig config_;
  ModelLayout layout_;
};

TEST_F(ShardedAdamWTest, WeighsByTheNumberOfMicroBatches) {
  const std::vector<int64_t> counts = {1, 4, 0};
  std::vector<float> sum(layout_.size);
  double squares = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    for (int rank = 0; rank < 3; ++rank) {
      sum[i] += Gradients(rank, counts[rank])[i];
    }
    squares += double{sum[i]} * sum[i];
  }
  OnRanks(3, [&](Communicator& communicator, ShardedAdamW& optimizer) {
    const int rank = communicator.rank();
    std::vector<float> gradients = Gradients(rank, counts[rank]);
    ASSERT_OK_AND_ASSIGN(
        const ReducedGradient reduced,
        optimizer.Reduce({.count = counts[rank],
                          .loss = 2.0 * static_cast<double>(counts[rank])},
                         absl::MakeSpan(gradients)));
    EXPECT_THAT(reduced.rank_micro_batches, ElementsAre(1, 4, 0));
    EXPECT_EQ(reduced.micro_batches, 5);
    EXPECT_DOUBLE_EQ(reduced.loss, 2);
    EXPECT_NEAR(reduced.gradient_norm, std::sqrt(squares) / 5, 1e-9);
    for (int64_t i = optimizer.shard().begin; i < optimizer.shard().end; ++i) {
      EXPECT_EQ(gradients[i], sum[i]);
    }
  });
}

TEST_F(ShardedAdamWTest, ShardsMakeTheUpdateOfTheWholeClippedByTheWholeNorm) {
  config_.set_gradient_clip(0.25);
  constexpr double kRate = 0.01;
  const std::unique_ptr<Ops> ops = MakeCpuOps(1);
  ASSERT_OK_AND_ASSIGN(
      const auto whole,
      AdamW::Create(config_, layout_, 0, layout_.size, ops.get()));
  const std::vector<float> start = InitialParameters(layout_, 1);
  std::vector<float> want = start;
  for (int update = 0; update < 3; ++update) {
    std::vector<float> sum = Gradients(0, 1 + update);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += Gradients(1, 2)[i];
    const double count = 3 + update;
    const double norm = std::sqrt(whole->SquaredNorm(sum.data())) / count;
    ASSERT_OK(whole->Step({.learning_rate = kRate,
                           .gradient_scale = ClipScale(norm, 0.25) / count},
                          sum.data(), want.data()));
  }
  OnRanks(2, [&](Communicator& communicator, ShardedAdamW& optimizer) {
    std::vector<float> parameters = start;
    for (int update = 0; update < 3; ++update) {
      const int64_t count = communicator.rank() == 0 ? 1 + update : 2;
      std::vector<float> gradients = Gradients(communicator.rank(), count);
      ASSERT_OK_AND_ASSIGN(
          const ReducedGradient reduced,
          optimizer.Reduce({.count = count}, absl::MakeSpan(gradients)));
      ASSERT_OK(optimizer.Step(kRate, reduced, gradients,
                               parameters.data() + optimizer.shard().begin));
    }
    for (int64_t i = optimizer.shard().begin; i < optimizer.shard().end; ++i) {
      EXPECT_NEAR(parameters[i], want[i], 1e-6);
    }
  });
}

TEST_F(ShardedAdamWTest, AnEstimateLeavesEveryBitAndIsWhatTheStepMakes) {
  OnRanks(2, [&](Communicator& communicator, ShardedAdamW& optimizer) {
    const size_t size = optimizer.shard().size();
    std::vector<float> master = InitialParameters(layout_, 1);
    master = std::vector<float>(master.begin() + optimizer.shard().begin,
                                master.begin() + optimizer.shard().end);
    const auto copy = [size](const float* values) {
      return std::vector<float>(values, values + size);
    };
    for (int update = 0; update < 3; ++update) {
      std::vector<float> gradients = Gradients(communicator.rank(), 2);
      ASSERT_OK_AND_ASSIGN(
          const ReducedGradient reduced,
          optimizer.Reduce({.count = 2}, absl::MakeSpan(gradients)));
      const std::vector<float> old_master = master;
      const std::vector<float> old_first =
          copy(optimizer.adamw().first_moment());
      const std::vector<float> old_second =
          copy(optimizer.adamw().second_moment());
      // The estimate replaces the gradients, as in ACCO.
      std::vector<float> estimate = gradients;
      ASSERT_OK(optimizer.Estimate(0.1, reduced, estimate, master.data(),
                                   estimate.data() + optimizer.shard().begin));
      EXPECT_EQ(master, old_master);
      EXPECT_EQ(copy(optimizer.adamw().first_moment()), old_first);
      EXPECT_EQ(copy(optimizer.adamw().second_moment()), old_second);
      EXPECT_EQ(optimizer.adamw().updates(), update);
      ASSERT_OK(optimizer.Step(0.1, reduced, gradients, master.data()));
      EXPECT_NE(master, old_master);
      EXPECT_EQ(copy(estimate.data() + optimizer.shard().begin), master);
    }
    AdamWState state;
    ASSERT_OK(optimizer.Save(state));
    EXPECT_EQ(state.updates, 3);
  });
}

TEST_F(ShardedAdamWTest, WhatIsNotFiniteOnOneRankIsToldOnAll) {
  OnRanks(2, [&](Communicator& communicator, ShardedAdamW& optimizer) {
    std::vector<float> gradients = Gradients(0, 1);
    if (communicator.rank() == 1) {
      gradients[3] = std::numeric_limits<float>::quiet_NaN();
    }
    EXPECT_THAT(
        optimizer.Reduce({.count = 1}, absl::MakeSpan(gradients)),
        StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("gradient norm")));
  });
}

}  // namespace
}  // namespace causeway
