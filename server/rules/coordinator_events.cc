// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/coordinator_events.h"

#include "absl/strings/str_cat.h"

namespace causeway {
namespace {

absl::string_view KindOf(const v1::RankTrouble& trouble) {
  switch (trouble.kind()) {
    case v1::RankTrouble::SLOW_RANK:
      return "rank_slow";
    case v1::RankTrouble::SLOW_LINK:
      return "link_slow";
    case v1::RankTrouble::STUCK_RANK:
      return "rank_stuck";
    case v1::RankTrouble::DEAD_RANK:
      return "rank_dead";
    default:
      // No trouble, or a kind that only newer islands know.
      return "ranks_even";
  }
}

}  // namespace

std::optional<CoordinatorEvent> RankEvent(absl::string_view island_id,
                                          const v1::RankTrouble& before,
                                          const v1::RankTrouble& now) {
  if (now.kind() == before.kind() && now.rank() == before.rank() &&
      now.to_rank() == before.to_rank()) {
    return std::nullopt;
  }
  return CoordinatorEvent{
      std::string(KindOf(now)), std::string(island_id),
      absl::StrCat("island ", island_id, ": ",
                   now.text().empty() ? "no rank and no link is slow any more"
                                      : now.text())};
}

}  // namespace causeway
