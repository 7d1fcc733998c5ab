// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes the points of a run's training history from the islands' heartbeats.
// Reports are claims: an island can falsify what is recorded under its name,
// and its share of a mean, but nothing else.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_TRAINING_HISTORY_H_
#define SERVER_RULES_TRAINING_HISTORY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/fragment.pb.h"
#include "proto/status.pb.h"

namespace causeway {

// Returns whether a loss, in nats per token, can be real. Guessing in the
// largest possible vocabulary costs 14.
bool IsPossibleLoss(double loss);

// Returns whether a speed can be real; NaN cannot.
bool IsPossibleSpeed(double tokens_per_second);

class TrainingHistory {
 public:
  // The most islands and rounds that a point names.
  static constexpr int kMostIslands = 64;
  static constexpr int kMostRounds = 24;

  // Continues from the newest point, if any.
  explicit TrainingHistory(std::optional<v1::TrainingPoint> newest);

  // Takes an island's report, which follows `before`.
  void Heard(const std::string& island, const v1::IslandProgress& before,
             const v1::IslandProgress& report);

  // Notes that a round has made `head`. `sent` is the time of the round's first
  // offer; infinite if unknown. `similarity` is that of the round's
  // contributions, if there are several.
  void Merged(const v1::FragmentHead& head, absl::Time sent, absl::Time merged,
              std::optional<double> similarity);

  // Notes that an island has received the update that led to `head`.
  void Delivered(const v1::FragmentHead& head, absl::Time now);

  // Returns the fragment's newest round; null if none was merged.
  const v1::RoundTimes* LastRound(uint32_t fragment) const;

  // The version of the newest point; 0 if there is none.
  uint64_t version() const { return newest_.version(); }

  // Returns the next point: the training reported since the last one. The
  // caller fills in run step, time, participation, and the speed of all
  // islands, some of which may not have reported since.
  v1::TrainingPoint Take(uint64_t version);

 private:
  struct Island {
    // The sum over reports of loss times tokens, and the sum of tokens.
    double loss_sum = 0;
    double tokens = 0;
    double tokens_per_second = 0;
  };

  v1::TrainingPoint newest_;
  // The islands that have trained since then.
  std::map<std::string, Island> islands_;
  // The newest round of each fragment, which is being delivered.
  std::map<uint32_t, v1::RoundTimes> last_rounds_;
  // The rounds for the next point.
  std::vector<v1::RoundTimes> rounds_;
  // The sum of similarities over the rounds merged since the newest point, and
  // the number of rounds that have one.
  double similarity_sum_ = 0;
  uint64_t similarities_ = 0;
};

}  // namespace causeway

#endif  // SERVER_RULES_TRAINING_HISTORY_H_
