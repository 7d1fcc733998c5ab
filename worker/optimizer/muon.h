// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Muon (Jordan et al. 2024), which updates whole matrices: the momentum of a
// matrix's gradients is orthogonalized (Ops::Orthogonalize), so that a step has
// the same length in all its directions.
//
//   ASSIGN_OR_RETURN(auto muon, Muon::Create(config, layout.tensors, ops));
//   muon->Update(learning_rate, gradient_scale,
//                {.rows = 2048, .columns = 512, .gradient = gradient,
//                 .momentum = momentum, .parameters = parameters});
//
// With s = gradient_scale, mu = training.muon.momentum, and NS the iterations
// of MuonIterations, which bring singular values to 0.7 to 1.2:
//   m <- mu m + s gradient;     d = s gradient + mu m
//   p <- p (1 - learning_rate weight_decay)
//        - learning_rate learning_rate_factor scale NS(d)
// where scale is 0.2 sqrt(max(rows, columns)), which gives a step the root mean
// square of AdamW's (Liu et al., arXiv 2502.16982).
#ifndef WORKER_OPTIMIZER_MUON_H_
#define WORKER_OPTIMIZER_MUON_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensors/model_layout.h"
#include "proto/run_config.pb.h"
#include "worker/model/device_array.h"
#include "worker/model/ops.h"

namespace causeway {

// Returns whether Muon updates `tensor`: training.optimizer is MUON, and the
// tensor is a matrix of a transformer block.
bool IsMuonMatrix(const v1::TrainingConfig& config, const TensorSpec& tensor);

// Returns the coefficients of the iterations. Before the first one, the matrix
// has a Frobenius norm of at most 1.
absl::Span<const Quintic> MuonIterations();

// Returns how many fp32 values Muon takes for its own use with these tensors.
int64_t MuonScratchSize(const v1::TrainingConfig& config,
                        absl::Span<const TensorSpec> tensors);

// Only the thread that uses `ops` may use it.
class Muon {
 public:
  // A matrix in device memory: all pointers are to rows * columns values.
  struct Matrix {
    int64_t rows = 0;
    int64_t columns = 0;
    const float* gradient = nullptr;
    float* momentum = nullptr;
    float* parameters = nullptr;
    // If not null, receives the updated parameters, and nothing else changes.
    // It may be `gradient`.
    float* estimate = nullptr;
  };

  // Allocates memory for matrices as large as those among `tensors`. `ops`
  // outlives the object.
  //   RESOURCE_EXHAUSTED  there is not enough.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Muon>> Create(
      const v1::TrainingConfig& config, absl::Span<const TensorSpec> tensors,
      Ops* ops);

  // Updates `matrix` at `learning_rate` by gradient_scale * its gradient.
  void Update(double learning_rate, float gradient_scale, const Matrix& matrix);

 private:
  Muon(const v1::TrainingConfig& config, int64_t largest, Ops* ops);

  const v1::TrainingConfig config_;
  // The values of the largest matrix.
  const int64_t largest_;
  Ops* const ops_;
  // Holds the direction of a step, and then what Orthogonalize needs.
  DeviceArray<float> scratch_;
};

}  // namespace causeway

#endif  // WORKER_OPTIMIZER_MUON_H_
