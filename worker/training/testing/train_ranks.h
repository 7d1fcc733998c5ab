// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// For tests of rank trainers: ranks on threads train a model with the loss of
// springs.
//
//   ASSERT_OK_AND_ASSIGN(
//       const Outcome outcome,
//       Train({.config = Config(v1::TrainingConfig::ACCO, 2),
//              .ranks = 2,
//              .counts = SharesOf(2)}));
#ifndef WORKER_TRAINING_TESTING_TRAIN_RANKS_H_
#define WORKER_TRAINING_TESTING_TRAIN_RANKS_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "proto/run_config.pb.h"
#include "worker/inner_trainer.h"
#include "worker/model/testing/small_model.h"
#include "worker/training/gradient_source.h"

namespace causeway {

// Each rank has three micro-batches of one sequence: with ACCO two in the first
// half and one in the second.
inline constexpr int kShare = 3;

v1::TrainingConfig Config(v1::TrainingConfig::InnerAlgorithm algorithm,
                          int ranks);

// Micro-batch k pulls each parameter to its own place:
//   loss = mean of (parameter - place)^2 / 2, times the number of values.
class Springs : public GradientSource {
 public:
  // `error` is added to the first value of a gradient.
  Springs(int64_t size, std::function<absl::Status(int64_t)> before,
          float error = 0)
      : size_(size), before_(std::move(before)), error_(error) {}

  static float Place(int64_t number, int64_t i) {
    return 0.01f * static_cast<float>((number * 37 + i * 11) % 101);
  }
  static double Add(int64_t number, const float* parameters, int64_t size,
                    float* gradients) {
    double loss = 0;
    for (int64_t i = 0; i < size; ++i) {
      const float gradient = parameters[i] - Place(number, i);
      gradients[i] += gradient;
      loss += 0.5 * gradient * gradient;
    }
    return loss;
  }

  absl::Status Accumulate(int64_t number, const float* parameters,
                          float* gradients) override {
    RETURN_IF_ERROR(before_(number));
    loss_.sum += Add(number, parameters, size_, gradients);
    gradients[0] += error_;
    ++loss_.targets;
    return absl::OkStatus();
  }
  absl::StatusOr<LossSum> TakeLoss() override {
    return std::exchange(loss_, {});
  }
  uint64_t tokens() const override { return 4; }

 private:
  const int64_t size_;
  const std::function<absl::Status(int64_t)> before_;
  const float error_;
  LossSum loss_;
};

// The number of micro-batches that each rank makes. If both are empty, ranks
// compute while communication lasts.
struct Counts {
  std::vector<int64_t> first_half;
  std::vector<int64_t> second_half;
};

Counts SharesOf(int ranks);

// The results, by step.
struct Outcome {
  std::vector<std::vector<float>> parameters;
  std::vector<InnerStepResult> steps;
};

struct Scenario {
  v1::TrainingConfig config;
  int ranks = 1;
  Counts counts;
  int steps = 6;
  // After this step all ranks save, and continue with new trainers; 0 for
  // never.
  int restart_after = 0;
  // Called before each micro-batch of a rank.
  std::function<absl::Status(int rank, int64_t number)> before =
      [](int, int64_t) { return absl::OkStatus(); };
  // Called before each step, as the outer loop does; may be null.
  std::function<bool(int step, absl::Span<float> parameters)> change;
  // The rank whose gradients have an error, or -1.
  int corrupt_rank = -1;
  v1::ModelConfig model = SmallModel();
  // Is true if vectors are on a device that all ranks share.
  bool device = false;
};

// Trains and returns the outcome, on which every rank must agree.
absl::StatusOr<Outcome> Train(const Scenario& scenario);

}  // namespace causeway

#endif  // WORKER_TRAINING_TESTING_TRAIN_RANKS_H_
