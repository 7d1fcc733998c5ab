// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a coordinator must know of its run's past besides the heads and the
// members: the commit log keeps it, the rules start from it.
#ifndef SERVER_RULES_COORDINATOR_HISTORY_H_
#define SERVER_RULES_COORDINATOR_HISTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/status.pb.h"
#include "server/rules/norm_guard.h"
#include "server/rules/quarantine.h"
#include "server/rules/token_ledger.h"

namespace causeway {

// What holds for the run whoever is live.
struct RunFlags {
  // Once min_islands have joined, the run goes on with whoever is left.
  bool started = false;
  bool paused = false;
  std::string pause_reason;
};

struct CoordinatorHistory {
  // Tokens of an incarnation that have got a fate.
  struct Settled {
    IncarnationKey key;
    uint32_t fragment = 0;
    TokenLedger::Fate fate = TokenLedger::Fate::kMerged;
    uint64_t tokens = 0;
    // Of these, by an earlier process of the island.
    uint64_t restored = 0;
    // The newest version that one of the contributions builds on.
    uint64_t base_version = 0;
  };
  RunFlags flags;
  std::vector<AccountRecord> accounts;
  // Summed.
  std::vector<Settled> settled;
  // By id.
  std::vector<QuarantineEntry> quarantine;
  // The rounds merged last, by fragment, oldest first.
  std::vector<std::vector<NormGuard::MergedRound>> merged_norms;
  // Over all rounds, and of the last round of each fragment.
  v1::Participation participation;
  std::vector<v1::Participation> last_rounds;
};

inline void AddTo(const v1::Participation& from, v1::Participation& to) {
  to.set_live(to.live() + from.live());
  to.set_contributing(to.contributing() + from.contributing());
  to.set_merged(to.merged() + from.merged());
}

}  // namespace causeway

#endif  // SERVER_RULES_COORDINATOR_HISTORY_H_
