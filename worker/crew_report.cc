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

std::optional<v1::RankTrouble> WithoutTrouble(const CrewRules& rules,
                                              const std::set<int>& present,
                                              int ranks) {
  const std::vector<int> missing = MissingFrom(rules, present);
  // A process left out for its link or its pace is alive.
  const auto lost = std::find_if(missing.begin(), missing.end(), [&](int each) {
    return rules.avoided.count(each) == 0;
  });
  if (lost == missing.end()) return std::nullopt;
  v1::RankTrouble trouble;
  trouble.set_kind(v1::RankTrouble::DEAD_RANK);
  trouble.set_rank(static_cast<uint32_t>(*lost * ranks));
  trouble.set_text(absl::StrCat("the island has ", present.size(), " of ",
                                rules.size, " processes, without ",
                                absl::StrJoin(missing, ", ")));
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
