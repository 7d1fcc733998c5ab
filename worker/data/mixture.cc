// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/mixture.h"

#include <cmath>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

absl::Status CheckWeights(absl::Span<const double> weights) {
  if (weights.empty()) return absl::InvalidArgumentError("no weights");
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const double weight : weights) {
    if (!std::isfinite(sum) || weight <= 0 ||
        weight / sum * Mixture::kCycle < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("a weight of ", weight, " among weights that add up to ",
                       sum, "; each must be at least a thousandth of the sum"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Mixture> Mixture::Create(absl::Span<const double> weights) {
  RETURN_IF_ERROR(CheckWeights(weights));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  Mixture mixture;
  mixture.counts_.resize(weights.size());
  for (int64_t place = 1; place <= kCycle; ++place) {
    // Find the source that is farthest behind its share of the places so far.
    size_t source = 0;
    double behind = -1;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double share = weights[i] / sum * static_cast<double>(place) -
                           static_cast<double>(mixture.counts_[i]);
      if (share > behind) {
        behind = share;
        source = i;
      }
    }
    mixture.cycle_.push_back({source, mixture.counts_[source]++});
  }
  return mixture;
}

Mixture::Place Mixture::At(int64_t number) const {
  CHECK_GE(number, 0);
  Place place = cycle_[static_cast<size_t>(number % kCycle)];
  place.index += number / kCycle * counts_[place.source];
  return place;
}

}  // namespace causeway
