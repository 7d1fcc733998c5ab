// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Writes all effects of an event as lines, so that a test compares every one.
#ifndef SERVER_RULES_TESTING_EFFECTS_LINES_H_
#define SERVER_RULES_TESTING_EFFECTS_LINES_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "server/rules/coordinator.h"
#include "server/rules/testing/coordinator_driver.h"

namespace causeway {

inline std::string At(absl::Time time) {
  return absl::StrCat(absl::ToDoubleSeconds(time - absl::UnixEpoch()), "s");
}
inline std::string NameOf(const v1::IslandIdentity& identity) {
  return absl::StrCat(identity.island_id(), "/", identity.incarnation());
}
inline std::string NameOf(const Member& member) {
  return absl::StrCat(member.island_id, "/", member.incarnation);
}

inline std::string FirstOf(const Member& member) {
  return member.IsReady()
             ? absl::StrCat(
                   " first ",
                   absl::StrJoin(member.first_contribution_version, ","))
             : " not ready";
}

// Returns one line for each effect.
inline std::vector<std::string> LinesOf(const Effects& effects) {
  std::vector<std::string> lines;
  const auto add = [&](const auto&... parts) {
    lines.push_back(absl::StrCat(parts...));
  };
  for (const Member& member : effects.joined) {
    add("joined ", NameOf(member), " place ", member.place, FirstOf(member));
  }
  for (const Member& member : effects.ended) {
    add("ended ", NameOf(member), " ",
        v1::IslandStatus::State_Name(member.state), " at ", At(member.ended_at),
        ": ", member.reason);
  }
  for (const Member& member : effects.changed) {
    add("changed ", NameOf(member), member.draining ? " draining" : "",
        FirstOf(member));
  }
  for (const AccountRecord& account : effects.accounts) {
    add("account ", account.key.island_id, "/", account.key.incarnation,
        " process ", account.process, " has ", account.process_tokens,
        " reported ", absl::StrJoin(account.reported, ","));
  }
  for (const v1::ContributionHeader& header : effects.late) {
    add("late ", NameOf(header.identity()), " f", header.fragment(), " v",
        header.base_version());
  }
  for (const QuarantineEntry& entry : effects.quarantine) {
    add("quarantine ", entry.id, " ", NameOf(entry.header.identity()), " ",
        v1::QuarantinedContribution::State_Name(entry.state),
        entry.admissible ? "" : " inadmissible",
        entry.in_round ? " in a round" : "", " norm ", entry.norm, " at ",
        At(entry.quarantined_at), ": ", entry.reason);
  }
  if (effects.flags.has_value()) {
    add("flags", effects.flags->started ? " started" : "",
        effects.flags->paused ? " paused" : "", ": ",
        effects.flags->pause_reason);
  }
  for (const CoordinatorEvent& event : effects.events) {
    add(event.kind, " [", event.island_id, "] ", event.text);
  }
  for (const ContributionKey& key : effects.discarded) {
    add("discard ", key.island_id, "/", key.incarnation, " f", key.fragment,
        " v", key.base_version);
  }
  if (effects.view_changed) add("view");
  return lines;
}

// Returns the effects since the last call.
inline std::vector<std::string> TakeLines(CoordinatorDriver& run) {
  std::vector<std::string> lines = LinesOf(run.effects());
  run.effects() = {};
  return lines;
}

}  // namespace causeway

#endif  // SERVER_RULES_TESTING_EFFECTS_LINES_H_
