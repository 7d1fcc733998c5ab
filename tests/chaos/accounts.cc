// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/accounts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include "tests/wan/progress_log.h"

namespace causeway {
namespace {

// Returns the number after the first `marker` in `text`, or 0.
uint64_t NumberAfter(absl::string_view text, absl::string_view marker) {
  const size_t begin = text.find(marker);
  if (begin == absl::string_view::npos) return 0;
  text.remove_prefix(begin + marker.size());
  uint64_t number = 0;
  const size_t size = text.find_first_not_of("0123456789");
  return absl::SimpleAtoi(text.substr(0, size), &number) ? number : 0;
}

class Checker {
 public:
  Checker(const SyncSchedule& schedule, const std::vector<MergedRound>& rounds,
          const std::vector<IslandLife>& lives)
      : schedule_(schedule), rounds_(rounds), lives_(lives) {}

  Accounts Check(absl::string_view coordinator_log) {
    for (size_t i = 0; i < lives_.size(); ++i) {
      if (lives_[i].incarnation == 0) continue;
      for (uint32_t fragment = 0; fragment < schedule_.fragments();
           ++fragment) {
        CheckLife(i, fragment);
      }
    }
    CheckCommits(coordinator_log);
    return std::move(accounts_);
  }

 private:
  // Returns the first incarnation that belongs to a later life of the same
  // island.
  uint64_t NextIncarnation(size_t life) const {
    for (size_t i = life + 1; i < lives_.size(); ++i) {
      if (lives_[i].island == lives_[life].island &&
          lives_[i].incarnation != 0) {
        return lives_[i].incarnation;
      }
    }
    return UINT64_MAX;
  }

  void CheckLife(size_t index, uint32_t fragment) {
    const IslandLife& life = lives_[index];
    const uint64_t next = NextIncarnation(index);
    uint64_t merged = 0;
    for (const MergedRound& round : rounds_) {
      if (round.fragment != fragment) continue;
      for (const ContributionRecord& record : round.contributions) {
        if (record.island_id == life.island &&
            record.incarnation >= life.incarnation &&
            record.incarnation < next) {
          merged += record.inner_steps;
        }
      }
    }
    const uint64_t trained = life.steps.size();
    const uint64_t sent = StepsBeforeLastButOneSend(life, fragment);
    if (merged > trained) {
      accounts_.double_counted_steps += merged - trained;
      Find(life, fragment, merged, "more than the trained ", trained);
    } else if (!life.survived) {
      accounts_.died_steps += trained - merged;
    } else if (merged < sent) {
      accounts_.lost_steps += sent - merged;
      Find(life, fragment, merged, "less than the sent ", sent);
    }
  }

  // Returns the steps that the contribution before the last must have brought
  // in; the last one may have been under way at the end.
  uint64_t StepsBeforeLastButOneSend(const IslandLife& life,
                                     uint32_t fragment) const {
    std::vector<uint64_t> sends;
    for (size_t i = 0; i < life.steps.size(); ++i) {
      if (schedule_.IsSentAt(fragment, life.steps[i])) sends.push_back(i + 1);
    }
    return sends.size() < 2 ? 0 : sends[sends.size() - 2];
  }

  void Find(const IslandLife& life, uint32_t fragment, uint64_t merged,
            absl::string_view what, uint64_t steps) {
    accounts_.findings.push_back(absl::Substitute(
        "island $0 from incarnation $1, fragment $2: $3 steps merged, $4$5",
        life.island, life.incarnation, fragment, merged, what, steps));
  }

  void CheckCommits(absl::string_view log) {
    std::map<uint32_t, uint64_t> heads;
    for (const MergedRound& round : rounds_) {
      uint64_t& head = heads[round.fragment];
      head = std::max(head, round.version);
    }
    for (const absl::string_view line : absl::StrSplit(log, '\n')) {
      const uint64_t version = NumberAfter(line, " is at version ");
      if (version == 0) continue;
      const auto fragment =
          static_cast<uint32_t>(NumberAfter(line, "] fragment "));
      if (version <= heads[fragment]) continue;
      ++accounts_.lost_commits;
      accounts_.findings.push_back(
          absl::Substitute("version $0 of fragment $1 was announced, but the "
                           "newest is $2",
                           version, fragment, heads[fragment]));
    }
  }

  const SyncSchedule& schedule_;
  const std::vector<MergedRound>& rounds_;
  const std::vector<IslandLife>& lives_;
  Accounts accounts_;
};

}  // namespace

IslandLife ReadLife(absl::string_view island, absl::string_view log,
                    bool survived) {
  IslandLife life{.island = std::string(island), .survived = survived};
  const size_t joined = log.find("joined run ");
  if (joined != absl::string_view::npos) {
    life.incarnation = NumberAfter(log.substr(joined), "(incarnation ");
  }
  for (const LoggedStep& step : ParseProgressLog(log)) {
    life.steps.push_back(step.step);
  }
  return life;
}

Accounts CheckAccounts(const SyncSchedule& schedule,
                       const std::vector<MergedRound>& rounds,
                       const std::vector<IslandLife>& lives,
                       absl::string_view coordinator_log) {
  return Checker(schedule, rounds, lives).Check(coordinator_log);
}

}  // namespace causeway
