// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/training_history.h"

#include <utility>

namespace causeway {
namespace {

// Far above what a model and a link can do, and far below what overflows.
constexpr double kMostLoss = 1000;
constexpr double kMostTokensPerSecond = 1e15;
constexpr uint64_t kMostBytes = uint64_t{1} << 50;

// Returns the growth of a count that never falls within a process.
uint64_t Growth(uint64_t before, uint64_t now) {
  return now > before ? now - before : 0;
}

// Adds what an island has moved since its last report, as far as it is
// possible.
uint64_t AddBytes(uint64_t sum, uint64_t before, uint64_t now) {
  const uint64_t bytes = Growth(before, now);
  return bytes < kMostBytes && sum < kMostBytes * 1024 ? sum + bytes : sum;
}

}  // namespace

bool IsPossibleLoss(double loss) { return loss > 0 && loss <= kMostLoss; }

bool IsPossibleSpeed(double tokens_per_second) {
  return tokens_per_second >= 0 && tokens_per_second <= kMostTokensPerSecond;
}

TrainingHistory::TrainingHistory(std::optional<v1::TrainingPoint> newest)
    : newest_(newest.has_value() ? *std::move(newest) : v1::TrainingPoint()) {}

void TrainingHistory::Heard(const std::string& island,
                            const v1::IslandProgress& before,
                            const v1::IslandProgress& report) {
  newest_.set_bytes_up(
      AddBytes(newest_.bytes_up(), before.bytes_up(), report.bytes_up()));
  newest_.set_bytes_down(
      AddBytes(newest_.bytes_down(), before.bytes_down(), report.bytes_down()));
  const uint64_t tokens = Growth(before.tokens(), report.tokens());
  const double rate = report.tokens_per_second();
  if (tokens == 0 || !IsPossibleLoss(report.loss()) || !IsPossibleSpeed(rate)) {
    return;
  }
  if (islands_.size() >= kMostIslands && !islands_.contains(island)) return;
  Island& sums = islands_[island];
  sums.loss_sum += report.loss() * static_cast<double>(tokens);
  sums.tokens += static_cast<double>(tokens);
  sums.tokens_per_second = rate;
}

v1::TrainingPoint TrainingHistory::Take(uint64_t version) {
  newest_.set_version(version);
  newest_.clear_islands();
  double loss = 0;
  double rate = 0;
  for (const auto& [name, sums] : islands_) {
    v1::TrainingPoint::Island& island = *newest_.add_islands();
    island.set_island_id(name);
    island.set_loss(sums.loss_sum / sums.tokens);
    island.set_tokens_per_second(sums.tokens_per_second);
    loss += island.loss();
    rate += sums.tokens_per_second;
  }
  if (!islands_.empty()) loss /= static_cast<double>(islands_.size());
  newest_.set_loss(loss);
  newest_.set_tokens_per_second(rate);
  islands_.clear();
  return newest_;
}

}  // namespace causeway
