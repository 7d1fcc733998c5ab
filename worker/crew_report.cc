// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/crew_report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/transport/field_limits.h"
#include "worker/collective/rank_stamps.h"

namespace causeway {

std::string WithoutText(const CrewRules& rules, const std::set<int>& present) {
  const std::vector<int> missing = MissingFrom(rules, present);
  if (missing.empty()) return "";
  return absl::StrCat(present.size(), " of ", rules.size,
                      " processes, without ", absl::StrJoin(missing, ", "));
}

std::optional<v1::RankTrouble> WithoutTrouble(const CrewRules& rules,
                                              const std::set<int>& present,
                                              int ranks) {
  std::vector<int> missing = MissingFrom(rules, present);
  // A process left out for its link or its pace is alive.
  missing.erase(std::remove_if(missing.begin(), missing.end(),
                               [&](int process) {
                                 return rules.avoided.count(process) > 0;
                               }),
                missing.end());
  if (missing.empty()) return std::nullopt;
  v1::RankTrouble trouble;
  trouble.set_kind(v1::RankTrouble::DEAD_RANK);
  trouble.set_rank(static_cast<uint32_t>(missing[0] * ranks));
  trouble.set_text(
      absl::StrCat("the island trains with ", WithoutText(rules, present)));
  return trouble;
}

void StampOwnRanks(int first, int count) {
  RankStampPage* const stamps = OpenedRankStamps();
  if (stamps == nullptr) return;
  const auto self = static_cast<uint32_t>(getpid());
  uint64_t step = 0;
  for (int rank = 0; rank < kMostRanks; ++rank) {
    RankStamps& mine = stamps->rank(rank);
    if (mine.process != self) continue;
    step = std::max<uint64_t>(step, mine.step);
    mine.Clear();
  }
  for (int rank = first; rank < first + count; ++rank) {
    const RankSectionScope stamped(rank, RankLane::kTraining,
                                   RankSection::kState);
    // The process has made progress, whichever ranks it had.
    StampStep(rank, step);
  }
}

}  // namespace causeway
