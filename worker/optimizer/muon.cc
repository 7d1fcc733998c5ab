// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/muon.h"

#include <algorithm>
#include <cmath>

#include "absl/memory/memory.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

double StepScale(int64_t rows, int64_t columns) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
}

// Returns the number of values of the largest matrix that Muon updates.
int64_t LargestMatrix(const v1::TrainingConfig& config,
                      absl::Span<const TensorSpec> tensors) {
  int64_t largest = 0;
  for (const TensorSpec& tensor : tensors) {
    if (IsMuonMatrix(config, tensor)) largest = std::max(largest, tensor.size);
  }
  return largest;
}

}  // namespace

bool IsMuonMatrix(const v1::TrainingConfig& config, const TensorSpec& tensor) {
  return config.optimizer() == v1::TrainingConfig::MUON && tensor.block >= 0 &&
         tensor.shape.size() == 2;
}

absl::Span<const Quintic> MuonIterations() {
  static const auto& iterations =
      *new std::vector<Quintic>(5, {3.4445f, -4.7750f, 2.0315f});
  return iterations;
}

int64_t MuonScratchSize(const v1::TrainingConfig& config,
                        absl::Span<const TensorSpec> tensors) {
  int64_t most = 0;
  for (const TensorSpec& tensor : tensors) {
    if (!IsMuonMatrix(config, tensor)) continue;
    most = std::max(most,
                    OrthogonalizeScratchSize(tensor.shape[0], tensor.shape[1]));
  }
  return LargestMatrix(config, tensors) + most;
}

absl::StatusOr<std::unique_ptr<Muon>> Muon::Create(
    const v1::TrainingConfig& config, absl::Span<const TensorSpec> tensors,
    Ops* ops) {
  auto muon =
      absl::WrapUnique(new Muon(config, LargestMatrix(config, tensors), ops));
  ASSIGN_OR_RETURN(muon->scratch_, DeviceArray<float>::Create(
                                       ops, MuonScratchSize(config, tensors)));
  return muon;
}

Muon::Muon(const v1::TrainingConfig& config, int64_t largest, Ops* ops)
    : config_(config), largest_(largest), ops_(ops) {}

void Muon::Update(double learning_rate, float gradient_scale,
                  const Matrix& matrix) {
  const v1::MuonConfig& muon = config_.muon();
  const auto momentum = static_cast<float>(muon.momentum());
  const int64_t size = matrix.rows * matrix.columns;
  const bool estimates = matrix.estimate != nullptr;
  float* const direction = scratch_.data();
  // An estimate's momentum is not kept.
  float* const new_momentum = estimates ? direction : matrix.momentum;
  ops_->LinearCombination(momentum, matrix.momentum, gradient_scale,
                          matrix.gradient, size, new_momentum);
  ops_->LinearCombination(momentum, new_momentum, gradient_scale,
                          matrix.gradient, size, direction);
  ops_->Orthogonalize(MuonIterations(), matrix.rows, matrix.columns, direction,
                      direction + largest_);
  const double step = learning_rate * muon.learning_rate_factor() *
                      StepScale(matrix.rows, matrix.columns);
  const double decay = learning_rate * config_.weight_decay();
  ops_->LinearCombination(static_cast<float>(1 - decay), matrix.parameters,
                          static_cast<float>(-step), direction, size,
                          estimates ? matrix.estimate : matrix.parameters);
}

}  // namespace causeway
