// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/evaluation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "outer_optimizer/sync_schedule.h"
#include "server/storage/commit_log.h"
#include "server/storage/state_directory.h"
#include "tests/wan/progress_log.h"

namespace causeway {
namespace {

// Returns the time of a log line, which is in the local zone.
absl::Time InLocalZone(absl::Time logged) {
  const absl::CivilSecond civil =
      absl::ToCivilSecond(logged, absl::UTCTimeZone());
  return logged + (absl::FromCivil(civil, absl::LocalTimeZone()) -
                   absl::FromCivil(civil, absl::UTCTimeZone()));
}

absl::StatusOr<std::vector<MergedRound>> ReadRounds(StateDirectory& state,
                                                    const RunRecord& run) {
  std::vector<MergedRound> rounds;
  for (int fragment = 0; fragment < run.plan.fragments_size(); ++fragment) {
    const auto id = static_cast<uint32_t>(fragment);
    ASSIGN_OR_RETURN(const std::vector<CommitRecord> newest,
                     state.log().History(id, 1));
    for (uint64_t version = 1; version <= newest.at(0).head.version();
         ++version) {
      ASSIGN_OR_RETURN(const CommitRecord commit,
                       state.log().FindCommit(id, version));
      ASSIGN_OR_RETURN(std::vector<ContributionRecord> contributions,
                       state.log().MergedContributions(id, version - 1));
      rounds.push_back({.fragment = id,
                        .version = version,
                        .at = commit.committed_at,
                        .contributions = std::move(contributions)});
    }
  }
  return rounds;
}

std::vector<IslandLife> LivesOf(const ChaosRecord& record) {
  std::vector<IslandLife> lives;
  for (const auto& [island, texts] : record.islands) {
    for (size_t i = 0; i < texts.size(); ++i) {
      const bool survived = i + 1 == texts.size() && island != record.guest;
      lives.push_back(ReadLife(island, texts[i], survived));
    }
  }
  return lives;
}

bool IsMeasured(const MergedRound& round, const ChaosRecord& record) {
  return round.at >= record.begin && round.at < record.end;
}

double MergedTokens(const RunRecord& run,
                    const std::vector<MergedRound>& rounds,
                    const ChaosRecord& record) {
  double size = 0;
  for (const v1::Fragment& fragment : run.plan.fragments()) {
    size += static_cast<double>(fragment.size());
  }
  double tokens = 0;
  for (const MergedRound& round : rounds) {
    if (!IsMeasured(round, record)) continue;
    const auto& fragment = run.plan.fragments(static_cast<int>(round.fragment));
    const double share = static_cast<double>(fragment.size()) / size;
    for (const ContributionRecord& contribution : round.contributions) {
      if (contribution.island_id == record.guest) continue;
      tokens += static_cast<double>(contribution.tokens) * share;
    }
  }
  return tokens;
}

// Each island but the guest counts as live in all rounds, even while it is
// dead.
double Participation(const std::vector<MergedRound>& rounds,
                     const ChaosRecord& record) {
  double contributions = 0;
  double live = 0;
  for (const MergedRound& round : rounds) {
    if (!IsMeasured(round, record)) continue;
    for (const auto& island : record.islands) {
      if (island.island != record.guest) ++live;
    }
    for (const ContributionRecord& contribution : round.contributions) {
      if (contribution.island_id != record.guest) ++contributions;
    }
  }
  return live > 0 ? contributions / live : 0;
}

// Adds the time from `since` to the first later commit that names `island`.
bool AddDelay(const ChaosRecord& record, absl::Time since,
              absl::string_view island, std::vector<absl::Duration>& delays) {
  for (const ChaosRecord::Commit& commit : record.commits) {
    if (commit.seen <= since || !absl::StrContains(commit.line, island)) {
      continue;
    }
    delays.push_back(commit.seen - since);
    return true;
  }
  return false;
}

// Returns the seconds that an island stood still between two times.
double Waited(const std::vector<LoggedStep>& steps, absl::Time from,
              absl::Time to) {
  absl::Duration waited;
  for (size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].time < from || steps[i].time >= to) continue;
    // The counter of a new life begins at zero.
    waited +=
        std::max(absl::ZeroDuration(), steps[i].waited - steps[i - 1].waited);
  }
  return absl::ToDoubleSeconds(waited);
}

// Returns how many steps longer an island stood still in `length` after `since`
// than in `length` before it; the most of any island.
double GuestPause(const ChaosRecord& record, absl::Time since,
                  absl::Duration length) {
  double most = 0;
  for (const auto& [island, texts] : record.islands) {
    if (island == record.guest) continue;
    std::vector<LoggedStep> steps;
    for (const std::string& text : texts) {
      for (LoggedStep step : ParseProgressLog(text)) {
        step.time = InLocalZone(step.time);
        steps.push_back(step);
      }
    }
    const double pause = Waited(steps, since, since + length) -
                         Waited(steps, since - length, since);
    most = std::max(most, pause / absl::ToDoubleSeconds(record.step_time));
  }
  return most;
}

}  // namespace

absl::StatusOr<ChaosResult> Evaluate(const ChaosRecord& record) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StateDirectory> state,
                   StateDirectory::OpenReadOnly(record.state_directory));
  ASSIGN_OR_RETURN(const RunRecord run, state->log().LoadRun());
  ASSIGN_OR_RETURN(const std::vector<MergedRound> rounds,
                   ReadRounds(*state, run));
  ASSIGN_OR_RETURN(const SyncSchedule schedule,
                   SyncSchedule::Create(run.config, run.plan));
  ChaosResult result;
  result.accounts =
      CheckAccounts(schedule, rounds, LivesOf(record), record.coordinator_log);
  result.rounds = rounds.size();
  result.merged_tokens_per_second =
      MergedTokens(run, rounds, record) /
      absl::ToDoubleSeconds(record.end - record.begin);
  result.participation = Participation(rounds, record);
  for (const absl::Time kill : record.coordinator_kills) {
    AddDelay(record, kill, "", result.restarts);
  }
  for (const absl::Time kill : record.island_kills) {
    AddDelay(record, kill, "", result.commits_after_kill);
  }
  for (const absl::Time start : record.guest_starts) {
    if (AddDelay(record, start, record.guest, result.guests_merged)) {
      result.guest_pauses.push_back(
          GuestPause(record, start, result.guests_merged.back()));
    }
  }
  return result;
}

}  // namespace causeway
