// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of a run's past that a coordinator must know besides heads and
// members. The commit log keeps it, and the rules start from it.
#ifndef SERVER_RULES_COORDINATOR_HISTORY_H_
#define SERVER_RULES_COORDINATOR_HISTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/control.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"
#include "server/rules/norm_guard.h"
#include "server/rules/token_ledger.h"

namespace causeway {

// A contribution that is merged only on an operator's order.
//
//   HELD --DropContribution, or too many are held--> DROPPED
//     |  ^
//     |  +-- the outer step cannot be done with it
//     +--AdmitContribution--> in the open round --outer step--> ADMITTED
//
// Being in a round is not stored: after a restart the entry is HELD again.
// See proto/control.proto.
struct QuarantineEntry {
  uint64_t id = 0;
  v1::QuarantinedContribution::State state = v1::QuarantinedContribution::HELD;
  v1::ContributionHeader header;
  double norm = 0;
  std::string reason;
  absl::Time quarantined_at;
  // False if a value is not finite, or an outer step failed after admission.
  bool admissible = false;
  // True if it is in the open round of its fragment.
  bool in_round = false;
};

// Facts about the run that do not depend on who is live.
struct RunFlags {
  // Says whether min_islands were ready once. From then on the run continues
  // with the remaining islands.
  bool started = false;
  bool paused = false;
  std::string pause_reason;
  // The digest of the run's data (IslandProgress.data_digest), which an
  // operator has accepted or most islands read. Empty until an island has
  // reported its data.
  std::string data_digest;
  // True if an operator has accepted the data, so that islands no longer
  // decide.
  bool data_accepted = false;
};

struct CoordinatorHistory {
  // The tokens of an incarnation's contributions to one fragment with one fate.
  struct Settled {
    IncarnationKey key;
    uint32_t fragment = 0;
    TokenLedger::Fate fate = TokenLedger::Fate::kMerged;
    uint64_t tokens = 0;
    // The part of `tokens` that an earlier process of the island trained.
    uint64_t restored = 0;
    // The newest base version of the contributions.
    uint64_t base_version = 0;
  };
  RunFlags flags;
  std::vector<AccountRecord> accounts;
  // One entry for each incarnation, fragment and fate.
  std::vector<Settled> settled;
  // Ordered by id.
  std::vector<QuarantineEntry> quarantine;
  // For each fragment, the rounds merged last, oldest first.
  std::vector<std::vector<NormGuard::MergedRound>> merged_norms;
  // The sum over all rounds, and each fragment's last round.
  v1::Participation participation;
  std::vector<v1::Participation> last_rounds;
  // The newest points of the run's history.
  std::optional<v1::TrainingPoint> training;
  std::optional<v1::ValidationPoint> validation;
};

inline void AddTo(const v1::Participation& from, v1::Participation& to) {
  to.set_live(to.live() + from.live());
  to.set_contributing(to.contributing() + from.contributing());
  to.set_merged(to.merged() + from.merged());
}

}  // namespace causeway

#endif  // SERVER_RULES_COORDINATOR_HISTORY_H_
