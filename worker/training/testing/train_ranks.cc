// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/testing/train_ranks.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/tensors/model_layout.h"
#include "gtest/gtest.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/testing/host_collectives.h"
#include "worker/model/ops_cpu.h"
#include "worker/training/rank_trainer.h"

namespace causeway {

v1::TrainingConfig Config(v1::TrainingConfig::InnerAlgorithm algorithm,
                          int ranks) {
  v1::TrainingConfig config;
  config.set_inner_algorithm(algorithm);
  config.set_total_steps(20);
  config.set_batch_size(kShare * ranks);
  config.set_micro_batch_size(1);
  config.set_learning_rate(0.05);
  config.set_warmup_steps(3);
  // Norms of shards are added in a different order than the norm of the whole,
  // so clipping would change bits.
  config.set_gradient_clip(0);
  return config;
}

Counts SharesOf(int ranks) {
  return {.first_half = std::vector<int64_t>(ranks, 2),
          .second_half = std::vector<int64_t>(ranks, 1)};
}

absl::StatusOr<Outcome> Train(const Scenario& scenario) {
  const ModelLayout layout = MakeModelLayout(scenario.model);
  LocalRendezvous rendezvous;
  std::vector<std::unique_ptr<Transport>> transports =
      MakeLocalTransports(scenario.ranks);
  std::vector<Outcome> outcomes(scenario.ranks);
  std::vector<absl::Status> statuses(scenario.ranks);
  const auto run_rank = [&](int rank) -> absl::Status {
    const auto communicator = MakeMessageCommunicator(
        {.timeout = absl::Minutes(5), .now = SteadyWallClock()},
        std::move(transports[rank]), &rendezvous,
        scenario.device ? std::make_unique<HostCollectives>(rank) : nullptr);
    Springs source(
        layout.size,
        [&](int64_t number) { return scenario.before(rank, number); },
        rank == scenario.corrupt_rank ? 1e-6f : 0);
    const std::unique_ptr<Ops> ops = MakeCpuOps(1);
    const std::unique_ptr<Ops> communication_ops = MakeCpuOps(1);
    RankTrainerOptions options = {.training = scenario.config,
                                  .layout = &layout,
                                  .communicator = communicator.get(),
                                  .gradients = &source,
                                  .ops = ops.get(),
                                  .communication_ops = communication_ops.get(),
                                  .now = SteadyWallClock()};
    const bool halves =
        scenario.config.inner_algorithm() == v1::TrainingConfig::ACCO;
    if (!scenario.counts.second_half.empty()) {
      options.accumulate = [&, halves](int64_t count, int64_t share, bool) {
        return count < (halves && share == 2
                            ? scenario.counts.first_half[rank]
                            : scenario.counts.second_half[rank]);
      };
    }
    std::unique_ptr<RankTrainer> trainer;
    const auto start_from =
        [&](const std::vector<float>& parameters) -> absl::Status {
      ASSIGN_OR_RETURN(trainer, MakeRankTrainer(options));
      std::copy(parameters.begin(), parameters.end(),
                trainer->parameters().begin());
      trainer->ParametersWritten();
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(start_from(InitialParameters(layout, 1)));
    for (int step = 1; step <= scenario.steps; ++step) {
      if (scenario.change) {
        std::vector<float> changed(trainer->parameters().begin(),
                                   trainer->parameters().end());
        // Each rank changes its own part.
        const Slice& shard = trainer->shard();
        if (scenario.change(step, absl::MakeSpan(changed))) {
          std::copy(changed.begin() + shard.begin, changed.begin() + shard.end,
                    trainer->master().begin());
          RETURN_IF_ERROR(trainer->MastersChanged());
        }
      }
      absl::StatusOr<InnerStepResult> result = trainer->Step(step);
      if (!result.ok()) communicator->Abort(result.status());
      RETURN_IF_ERROR(result.status());
      outcomes[rank].steps.push_back(*result);
      outcomes[rank].parameters.emplace_back(trainer->parameters().begin(),
                                             trainer->parameters().end());
      if (step != scenario.restart_after) continue;
      TrainerState state;
      RETURN_IF_ERROR(trainer->Save(state));
      RETURN_IF_ERROR(start_from(outcomes[rank].parameters.back()));
      RETURN_IF_ERROR(trainer->Restore(std::move(state)));
    }
    return absl::OkStatus();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = run_rank(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.parameters, outcomes[0].parameters);
  }
  return std::move(outcomes[0]);
}

}  // namespace causeway
