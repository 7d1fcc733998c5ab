// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides which contributions are held back instead of merged (NormGuard, for
// each fragment), keeps them, and does with them what operators decide.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_QUARANTINE_H_
#define SERVER_RULES_QUARANTINE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/run_config.pb.h"
#include "server/rules/coordinator_history.h"
#include "server/rules/effects.h"
#include "server/rules/norm_guard.h"
#include "server/rules/rank_parts.h"
#include "server/rules/round.h"
#include "server/rules/token_ledger.h"

namespace causeway {

class Quarantine {
 public:
  // The most entries that are held, to bound disk and memory; one more drops
  // the oldest.
  static constexpr size_t kMostHeld = 64;

  // `first_usual` has, for each fragment, what its first contributions are
  // compared with (NormGuard). Books tokens in `ledger`, which must outlive
  // this object.
  Quarantine(const v1::MembershipConfig& membership,
             const std::vector<double>& first_usual,
             const CoordinatorHistory& history, TokenLedger* ledger);

  // Returns why the contribution must not be merged unseen; empty if it may be.
  // `first_version` is the first version that its island is expected to
  // contribute to.
  std::string Objection(const v1::ContributionHeader& header, double norm,
                        const RankParts& parts, uint64_t first_version) const;
  // Notes the parts of a contribution without objection.
  void Passed(uint32_t fragment, const RankParts& parts) {
    guards_[fragment].Passed(parts);
  }
  void Hold(const v1::ContributionHeader& header, double norm,
            absl::string_view reason, bool admissible, absl::Time now,
            Effects& effects);

  // --- What operators decide. ---

  // Returns whether the entry is in a round already, or merged.
  //   NOT_FOUND            There is no such entry.
  //   FAILED_PRECONDITION  It was dropped, or cannot be merged.
  absl::StatusOr<bool> IsAdmitted(uint64_t id) const;
  // Puts an entry that can be admitted into the open round of its fragment.
  void Admit(uint64_t id, Round& round, absl::Time now, Effects& effects);
  // Permanently refuses an entry that is not admitted. Errors of IsAdmitted.
  absl::Status Drop(uint64_t id, Effects& effects);

  // --- Results of outer steps. ---

  // Returns the entry that is in an open round under this key.
  std::optional<uint64_t> FindInRound(const ContributionKey& key) const;
  // Notes that the contribution was merged. Returns whether it came out of the
  // quarantine.
  bool Merged(const v1::ContributionHeader& header, Effects& effects);
  // Notes the norms of a round that was merged.
  void RoundMerged(const ClosedRound& closed);
  // If the contribution came out of the quarantine, puts it back, inadmissible,
  // because the outer step cannot be done with it. Returns whether it did.
  bool TakeBack(const ContributionKey& key, absl::string_view reason,
                Effects& effects);

  // --- Views. ---

  // Keyed by id.
  const std::map<uint64_t, QuarantineEntry>& entries() const {
    return entries_;
  }
  // The number of entries that wait for a decision.
  uint32_t held_count() const;
  // The time since which the oldest of them has waited, or the infinite future.
  absl::Time held_since() const;
  // Returns whether a merged contribution came out of the quarantine. If so,
  // its incarnation has diverged, and its training is not continued.
  bool WasAdmitted(const IncarnationKey& key, const std::string& digest) const;

 private:
  absl::StatusOr<const QuarantineEntry*> Find(uint64_t id) const;
  void DropEntry(QuarantineEntry& entry, Effects& effects);
  // Takes the entry's tokens out of the quarantine's account.
  void Unbook(const v1::ContributionHeader& header);

  TokenLedger* const ledger_;
  // One for each fragment.
  std::vector<NormGuard> guards_;
  // Maps island and fragment to the base version of the island's last merged
  // contribution, plus one.
  std::map<std::pair<std::string, uint32_t>, uint64_t> merged_until_;
  std::map<uint64_t, QuarantineEntry> entries_;
  // Ids of the entries that are in an open round, by their key there.
  std::map<ContributionKey, uint64_t> in_rounds_;
};

}  // namespace causeway

#endif  // SERVER_RULES_QUARANTINE_H_
