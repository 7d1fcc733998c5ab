// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The rules of a run return Effects, which their host carries out.
#ifndef SERVER_RULES_EFFECTS_H_
#define SERVER_RULES_EFFECTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/fragment.pb.h"
#include "proto/status.pb.h"
#include "server/rules/coordinator_history.h"
#include "server/rules/membership.h"
#include "server/rules/round.h"
#include "server/rules/token_ledger.h"

namespace causeway {

// An event for people; event_filter.cc lists the kinds.
struct CoordinatorEvent {
  std::string kind;
  std::string island_id;
  std::string text;
  // The journal sets it.
  absl::Time time;
};

// Returns the event of a run whose fragments all have their last version.
inline CoordinatorEvent RunFinished() {
  return {"run_finished", "", "every fragment has reached its last version"};
}

// A round whose contributions must be merged.
struct ClosedRound {
  uint32_t fragment = 0;
  uint64_t base_version = 0;
  // The contributions' headers, in the order of summation.
  std::vector<v1::ContributionHeader> contributions;
  // The contributions' Euclidean norms, in the same order.
  std::vector<double> norms;
  // The ids of the quarantine entries among them; the commit admits them.
  std::vector<uint64_t> admitted;
  v1::Participation participation;
};

struct Effects {
  // --- To be persisted. ---
  std::vector<Member> joined;
  std::vector<Member> ended;
  std::vector<Member> changed;
  std::vector<AccountRecord> accounts;
  // Contributions that came too late or were left out.
  std::vector<v1::ContributionHeader> late;
  // New entries, whose bytes must be kept, and changed entries.
  std::vector<QuarantineEntry> quarantine;
  std::optional<RunFlags> flags;
  // New points of the run's history.
  std::vector<v1::TrainingPoint> training;
  std::vector<v1::ValidationPoint> validations;
  std::vector<CoordinatorEvent> events;

  std::vector<ContributionKey> discarded;
  bool view_changed = false;
  std::vector<ClosedRound> outer_steps;

  // Returns whether there is anything to persist.
  bool IsDurable() const {
    return !joined.empty() || !ended.empty() || !changed.empty() ||
           !accounts.empty() || !late.empty() || !quarantine.empty() ||
           flags.has_value() || !training.empty() || !validations.empty() ||
           !events.empty();
  }
};

// The result of an outer step that was committed.
struct OuterStepOutcome {
  v1::FragmentHead head;
  double merged_norm = 0;
  // See FragmentStatus.
  std::optional<double> similarity;
  absl::Duration duration;
};

}  // namespace causeway

#endif  // SERVER_RULES_EFFECTS_H_
