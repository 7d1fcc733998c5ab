// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/training_history.h"

#include <utility>

#include "common/proto_time.h"

namespace causeway {
namespace {

// Bounds far above what models and links reach, and far below overflow.
constexpr double kMostLoss = 1000;
constexpr double kMostTokensPerSecond = 1e15;
constexpr uint64_t kMostBytes = uint64_t{1} << 50;
// The most islands that a run can have. Names that come and go could be more.
constexpr size_t kMostHeard = 4096;

// Returns the growth of a count that never falls within a process.
uint64_t Growth(uint64_t before, uint64_t now) {
  return now > before ? now - before : 0;
}

// Adds the bytes that an island has moved since its last report, if possible.
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
  if (islands_.size() >= kMostHeard && !islands_.contains(island)) return;
  Island& sums = islands_[island];
  sums.loss_sum += report.loss() * static_cast<double>(tokens);
  sums.tokens += static_cast<double>(tokens);
  sums.tokens_per_second = rate;
}

void TrainingHistory::Merged(const v1::FragmentHead& head, absl::Time sent,
                             absl::Time merged,
                             std::optional<double> similarity) {
  if (similarity.has_value()) {
    similarity_sum_ += *similarity;
    ++similarities_;
  }
  v1::RoundTimes& last = last_rounds_[head.fragment()];
  if (last.has_merged_at() && rounds_.size() < kMostRounds) {
    rounds_.push_back(last);
  }
  last.Clear();
  last.set_fragment(head.fragment());
  last.set_version(head.version());
  if (sent < absl::InfiniteFuture()) {
    *last.mutable_sent_at() = ToTimestamp(sent);
  }
  *last.mutable_merged_at() = ToTimestamp(merged);
}

void TrainingHistory::Delivered(const v1::FragmentHead& head, absl::Time now) {
  const auto last = last_rounds_.find(head.fragment());
  if (last == last_rounds_.end() || last->second.version() != head.version()) {
    return;
  }
  *last->second.mutable_delivered_at() = ToTimestamp(now);
}

const v1::RoundTimes* TrainingHistory::LastRound(uint32_t fragment) const {
  const auto last = last_rounds_.find(fragment);
  return last == last_rounds_.end() ? nullptr : &last->second;
}

v1::TrainingPoint TrainingHistory::Take(uint64_t version) {
  newest_.set_version(version);
  newest_.clear_islands();
  double loss_sum = 0;
  for (const auto& [name, sums] : islands_) {
    const double loss = sums.loss_sum / sums.tokens;
    loss_sum += loss;
    if (newest_.islands_size() >= kMostIslands) continue;
    v1::TrainingPoint::Island& island = *newest_.add_islands();
    island.set_island_id(name);
    island.set_loss(loss);
    island.set_tokens_per_second(sums.tokens_per_second);
  }
  newest_.set_loss(
      islands_.empty() ? 0 : loss_sum / static_cast<double>(islands_.size()));
  newest_.mutable_rounds()->Assign(rounds_.begin(), rounds_.end());
  newest_.clear_similarity();
  if (similarities_ > 0) {
    newest_.set_similarity(similarity_sum_ /
                           static_cast<double>(similarities_));
  }
  islands_.clear();
  rounds_.clear();
  similarity_sum_ = 0;
  similarities_ = 0;
  return newest_;
}

}  // namespace causeway
