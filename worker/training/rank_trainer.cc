// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/rank_trainer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/training/ddp_trainer.h"
#include "worker/training/overlapped_trainer.h"

namespace causeway {

bool AccumulateWhileCommunicating(int64_t count, int64_t share,
                                  bool communicating) {
  return AccumulateShare(count, share, communicating) || communicating;
}

bool AccumulateShare(int64_t count, int64_t share, bool /*communicating*/) {
  return count < std::max<int64_t>(1, share);
}

int64_t RankTrainerBytes(const v1::TrainingConfig& training, int64_t values,
                         int ranks, bool bf16_gradients) {
  const bool is_ddp = training.inner_algorithm() == v1::TrainingConfig::DDP;
  const bool predicts = training.inner_algorithm() == v1::TrainingConfig::WP;
  // With DDP, fp32 gradients are communicated in place.
  const int64_t gradient_bytes = bf16_gradients ? 2 : sizeof(float);
  const bool exchanges = !is_ddp || bf16_gradients;
  // Parameters, the communicated vector, and WP's committed parameters.
  const int64_t whole = 1 + (exchanges ? 1 : 0) + (predicts ? 1 : 0);
  // Moments, and the master.
  const int64_t sharded = is_ddp ? 2 : 3;
  const int64_t shard = (values + ranks - 1) / ranks;
  return int64_t{sizeof(float)} * (whole * values + sharded * shard) +
         gradient_bytes * values;
}

absl::StatusOr<std::unique_ptr<RankTrainer>> MakeRankTrainer(
    const RankTrainerOptions& options) {
  const v1::TrainingConfig& training = options.training;
  const int64_t unit =
      int64_t{training.micro_batch_size()} * options.communicator->size();
  if (training.batch_size() % unit != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "training.batch_size is ", training.batch_size(), "; an island of ",
        options.communicator->size(),
        " ranks needs a multiple of ranks * micro_batch_size = ", unit));
  }
  if (training.inner_algorithm() == v1::TrainingConfig::DDP) {
    return MakeDdpTrainer(options);
  }
  return MakeOverlappedTrainer(options);
}

}  // namespace causeway
