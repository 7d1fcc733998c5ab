// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The points of a run's training history, made from what islands report with
// their heartbeats. Reports are claims: an island can falsify what is recorded
// under its name, and no more than its share of a mean.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_TRAINING_HISTORY_H_
#define SERVER_RULES_TRAINING_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"

namespace causeway {

// Whether a loss, in nats per token, can be real. Guessing among the most ids
// that a vocabulary may have costs 14.
bool IsPossibleLoss(double loss);

// Returns whether a speed can be real; NaN cannot.
bool IsPossibleSpeed(double tokens_per_second);

class TrainingHistory {
 public:
  // The most islands that a point names.
  static constexpr size_t kMostIslands = 64;

  // Goes on from the newest point, if any.
  explicit TrainingHistory(std::optional<v1::TrainingPoint> newest);

  // Takes an island's report, which follows `before`.
  void Heard(const std::string& island, const v1::IslandProgress& before,
             const v1::IslandProgress& report);

  // The version of the newest point; 0 if there is none.
  uint64_t version() const { return newest_.version(); }

  // Returns the next point: the training reported since the last one. The
  // caller fills in run step, time and participation.
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
};

}  // namespace causeway

#endif  // SERVER_RULES_TRAINING_HISTORY_H_
