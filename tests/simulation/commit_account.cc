// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/commit_account.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "server/rules/round.h"

namespace causeway::simulation {

std::string NameOf(const v1::FragmentHead& head) {
  return absl::StrCat("version ", head.version(), " of fragment ",
                      head.fragment());
}

double LossOf(const std::vector<v1::FragmentHead>& heads) {
  std::string digests;
  for (const v1::FragmentHead& head : heads) digests += head.digest();
  uint32_t bits = 0;
  std::memcpy(&bits, Digest128(digests).data(), sizeof(bits));
  return 1 + std::ldexp(bits, -30);
}

CommitAccount::CommitAccount(const Scenario* scenario, Violations* violations)
    : scenario_(scenario),
      violations_(violations),
      commits_(static_cast<size_t>(scenario->plan.fragments_size())),
      merged_tokens_(commits_.size(), {0}) {
  for (uint32_t fragment = 0; fragment < commits_.size(); ++fragment) {
    commits_[fragment].push_back(InitialVersion(fragment));
  }
}

const Version* CommitAccount::Find(const v1::FragmentHead& head) {
  if (head.fragment() >= commits_.size() ||
      head.version() >= commits_[head.fragment()].size()) {
    violations_->Note(NameOf(head), " was seen, but was never committed");
    return nullptr;
  }
  const Version& commit = commits_[head.fragment()][head.version()];
  if (commit.head.digest() != head.digest()) {
    violations_->Note(NameOf(head), " has two digests");
    return nullptr;
  }
  return &commit;
}

void CommitAccount::CheckValidation(const v1::Validation& validation,
                                    const SyncSchedule& schedule) {
  std::vector<v1::FragmentHead> heads;
  for (uint32_t fragment = 0; fragment < commits_.size(); ++fragment) {
    const uint64_t version =
        std::min(validation.version(), schedule.FinalVersion(fragment));
    if (version > newest_version(fragment)) {
      violations_->Note("version ", validation.version(),
                        " of the model was measured before it was committed");
      return;
    }
    heads.push_back(commits_[fragment][version].head);
  }
  if (validation.loss() != LossOf(heads)) {
    violations_->Note("what was measured as version ", validation.version(),
                      " of the model is not what was committed");
  }
}

void CommitAccount::Add(const v1::FragmentHead& head,
                        const MergeRecord* record) {
  if (record == nullptr || record->version.head.digest() != head.digest()) {
    violations_->Note(NameOf(head),
                      " is committed, but not the record of its merge");
    return;
  }
  std::vector<Version>& versions = commits_[head.fragment()];
  if (head.version() != versions.size()) {
    violations_->Note(NameOf(head), " was committed after version ",
                      versions.size() - 1);
    return;
  }
  Contents contents = versions.back().contents;
  uint64_t merged_tokens = merged_tokens_[head.fragment()].back();
  // The recorded contributions in the order in which a replay merges them.
  std::map<ContributionKey, std::vector<Interval>> recorded;
  for (size_t i = 0; i < record->contributions.size(); ++i) {
    const v1::ContributionHeader& header = record->contributions[i];
    const std::vector<Interval>& intervals = record->intervals[i];
    recorded[KeyOf(header)] = intervals;
    for (const Interval& interval : intervals) {
      uint64_t& steps = contents[interval.process];
      if (interval.begin != steps) {
        violations_->Note(NameOf(head), ": steps ", interval.begin, " to ",
                          interval.end, " of process ", interval.process,
                          ", island ", header.identity().island_id(),
                          ", were merged on top of ", steps,
                          interval.begin < steps ? ": some of them twice"
                                                 : ": those between are lost");
      }
      steps = interval.end;
    }
    const uint64_t tokens =
        StepsIn(intervals) *
        scenario_->tokens_per_step[island_of_[intervals.front().process]];
    if (header.tokens() != tokens) {
      violations_->Note(NameOf(head), " counts ", header.tokens(),
                        " tokens for ", tokens);
    }
    merged_tokens += tokens;
  }
  merged_tokens_[head.fragment()].push_back(merged_tokens);
  std::vector<std::vector<Interval>> in_order;
  for (const auto& [key, intervals] : recorded) in_order.push_back(intervals);
  const Version replayed = NextVersion(versions.back(), in_order);
  if (replayed.head.digest() != head.digest()) {
    violations_->Note(
        NameOf(head),
        " does not come out when its recorded contributions are replayed");
  }
  if (contents != record->version.contents) {
    violations_->Note(NameOf(head), " contains other steps than were merged");
  }
  versions.push_back(record->version);
}

bool CommitAccount::Complete(const SyncSchedule& schedule) const {
  for (uint32_t fragment = 0; fragment < commits_.size(); ++fragment) {
    if (commits_[fragment].back().head.version() <
        schedule.FinalVersion(fragment)) {
      return false;
    }
  }
  return true;
}

uint32_t CommitAccount::NewProcess(uint32_t island) {
  island_of_.push_back(island);
  return static_cast<uint32_t>(island_of_.size() - 1);
}

std::vector<uint32_t> CommitAccount::ProcessesOf(uint32_t island) const {
  std::vector<uint32_t> processes;
  for (uint32_t process = 0; process < island_of_.size(); ++process) {
    if (island_of_[process] == island) processes.push_back(process);
  }
  return processes;
}

void CommitAccount::Holds(uint32_t process, const Replica& replica) {
  const v1::FragmentHead& head = replica.head();
  const Version* const commit = Find(head);
  if (commit == nullptr) return;
  if (replica.anchor() != commit->contents) {
    violations_->Note("process ", process, " holds another ", NameOf(head),
                      " than was committed");
  }
  // The steps of each process that were merged, or follow in the parameters.
  Contents reached = replica.anchor();
  for (const Interval& interval : replica.beyond()) {
    uint64_t& steps = reached[interval.process];
    if (steps != interval.begin) {
      violations_->Note("process ", process, " is to send steps ",
                        interval.begin, " to ", interval.end, " of process ",
                        interval.process, ", but fragment ", head.fragment(),
                        " contains ", steps, " of them");
    }
    steps = interval.end;
  }
  if (StepsOf(reached, process) != replica.trained()) {
    violations_->Note("process ", process, " has trained ", replica.trained(),
                      " steps, but fragment ", head.fragment(),
                      " and what is yet to be sent contain ",
                      StepsOf(reached, process), " of them");
  }
  // The steps of the island's other processes that were merged without this
  // one's knowledge. It may give up the same training for them.
  uint64_t again = 0;
  for (const auto& [earlier, steps] : reached) {
    const uint64_t known = StepsOf(replica.at_start(), earlier);
    if (steps < known) {
      violations_->Note("process ", process, " has lost steps ", steps, " to ",
                        known, " of process ", earlier, " of fragment ",
                        head.fragment());
    }
    if (earlier < process && island_of_[earlier] == island_of_[process]) {
      again += steps - known;
    }
  }
  if (replica.given_up() > again) {
    violations_->Note("process ", process, " has given up ", replica.given_up(),
                      " steps of fragment ", head.fragment(), ", but only ",
                      again, " were merged in their place");
  }
}

void CommitAccount::CheckLedger(const v1::TokenLedger& ledger,
                                const v1::FragmentHead& head) {
  const uint64_t sum = ledger.merged() + ledger.partial_merged() +
                       ledger.expired() + ledger.refused() +
                       ledger.quarantined() + ledger.pending();
  if (sum != ledger.reported()) {
    violations_->Note("the ledger of fragment ", head.fragment(), " has ",
                      ledger.reported(), " tokens reported, but ", sum,
                      " accounted for");
  }
  if (ledger.reported() > trained_tokens_) {
    violations_->Note("the ledger of fragment ", head.fragment(), " has ",
                      ledger.reported(), " tokens reported, but ",
                      trained_tokens_, " were trained");
  }
  const uint64_t merged = ledger.merged() + ledger.partial_merged();
  if (head.version() < merged_tokens_[head.fragment()].size() &&
      merged != merged_tokens_[head.fragment()][head.version()]) {
    violations_->Note("the ledger of fragment ", head.fragment(), " has ",
                      merged, " tokens merged, but version ", head.version(),
                      " contains ",
                      merged_tokens_[head.fragment()][head.version()]);
  }
}

}  // namespace causeway::simulation
