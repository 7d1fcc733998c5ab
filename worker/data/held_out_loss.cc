// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/held_out_loss.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/algorithm/container.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"

namespace causeway {

absl::StatusOr<HeldOutLoss> SumHeldOutLoss(
    const ValidationSet& validation, const HeldOutShare& share,
    const LossFunction& loss, const std::function<void(int64_t)>& progress) {
  const int64_t length = validation.sequence_length();
  std::vector<int32_t> tokens(static_cast<size_t>(share.batch * length));
  std::vector<int32_t> targets(tokens.size());
  HeldOutLoss result;
  for (int64_t first = share.rank * share.batch; first < validation.size();
       first += share.ranks * share.batch) {
    const int64_t rows = std::min(share.batch, validation.size() - first);
    const auto values = static_cast<size_t>(rows * length);
    const auto batch_tokens = absl::MakeSpan(tokens).first(values);
    const auto batch_targets = absl::MakeSpan(targets).first(values);
    validation.Fill(first, batch_tokens, batch_targets);
    ASSIGN_OR_RETURN(const double mean, loss(batch_tokens, batch_targets));
    result.sum += mean * static_cast<double>(values);
    result.tokens +=
        static_cast<int64_t>(values) - absl::c_count(batch_targets, kNoTarget);
    result.sequences += rows;
    if (progress != nullptr) progress(rows);
  }
  return result;
}

}  // namespace causeway
