// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/crew.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rank_stamps.h"
#include "worker/collective/time_limit.h"

namespace causeway {
namespace {

// A process that waits for a place asks again after this time.
constexpr absl::Duration kAsk = absl::Seconds(1);
// A process that has not asked for this time is gone.
constexpr absl::Duration kGone = absl::Seconds(3);
// The leader waits this much longer for the fewest processes than for all.
constexpr absl::Duration kLongestWait = absl::Minutes(5);
// QuietTime, as a multiple of shrink_after, and at least.
constexpr int kQuiet = 10;
constexpr absl::Duration kLeastQuiet = absl::Seconds(5);

constexpr char kPlaces[] = "place/";
// The key that says why the ranks have ended, and its value if they start
// again.
constexpr char kEnd[] = "end";
constexpr char kStartAgain[] = "";
// The values of this key and of places begin with this text if the island has
// ended for good; the reason follows.
constexpr char kForGood[] = "the island has ended for good: ";

// The key with which the process of a rank says that it no longer needs the
// server.
std::string DoneKey(int rank) { return absl::StrCat("done/", rank); }

std::string PlaceKey(int process, uint64_t life, int ranks) {
  return absl::StrCat(kPlaces, process, "/", life, "/", ranks);
}

// The value that tells a process its place, the leader's number and its ranks.
std::string PlaceText(int rank, int size, int leader, int ranks) {
  return absl::StrCat(rank, "/", size, "/", leader, "/", ranks);
}

// The key with a process's rank among the crew's processes and, behind a slash,
// the PlaceKey of the life that has it.
std::string RankKey(int process) { return absl::StrCat("rank of/", process); }

// Tells the ranks that still wait to connect to an earlier life of this process
// that it has ended. `key` is the PlaceKey of the present life, which may get
// its place meanwhile.
void ReportEarlierLife(int process, absl::string_view key, int ranks,
                       Rendezvous* table) {
  const absl::StatusOr<std::string> text =
      table->Get(RankKey(process), kRendezvousAnswer);
  if (!text.ok()) return;
  const std::pair<absl::string_view, absl::string_view> place =
      absl::StrSplit(*text, absl::MaxSplits('/', 1));
  int rank = 0;
  if (place.second == key || !absl::SimpleAtoi(place.first, &rank)) return;
  ReportDeadRank(rank * ranks, "its process was restarted", table);
}

// Returns the number at `position` in a PlaceKey, or -1.
int NumberIn(absl::string_view key, int position) {
  const std::vector<absl::string_view> words = absl::StrSplit(key, '/');
  int number = -1;
  return words.size() == 4 && absl::SimpleAtoi(words[position], &number)
             ? number
             : -1;
}
int ProcessOf(absl::string_view key) { return NumberIn(key, 1); }
int RanksOf(absl::string_view key) { return NumberIn(key, 3); }

absl::Status UnequalRanks(int process, int ranks, int leader,
                          int ranks_of_leader) {
  return absl::FailedPreconditionError(absl::StrCat(
      "process ", leader, " has ", ranks_of_leader, " ranks, and process ",
      process, " has ", ranks,
      ": give all processes of the island the same --ranks, or, without it, "
      "equally many devices (--device)"));
}

}  // namespace

absl::Duration QuietTime(const CrewRules& rules) {
  return std::max(kQuiet * rules.shrink_after, kLeastQuiet);
}

int LargestCrew(const CrewRules& rules, int most,
                const CrewSizeAllowed& allowed) {
  for (int size = std::min(most, rules.size); size >= rules.least; --size) {
    if (allowed(size)) return size;
  }
  return 0;
}

std::vector<int> ChooseCrew(const CrewRules& rules,
                            const std::set<int>& present,
                            const CrewSizeAllowed& allowed,
                            absl::Duration waited) {
  const int wanted = LargestCrew(rules, rules.awaited, allowed);
  int size = LargestCrew(rules, static_cast<int>(present.size()), allowed);
  if (size < wanted && waited < rules.shrink_after) size = 0;
  std::vector<int> crew = {rules.leader};
  for (const int process : present) {
    if (process != rules.leader) crew.push_back(process);
  }
  crew.resize(size);
  return crew;
}

std::vector<int> MissingFrom(const CrewRules& rules,
                             const std::set<int>& present) {
  std::vector<int> missing;
  if (rules.least >= rules.size ||
      static_cast<int>(present.size()) >= rules.size) {
    return missing;
  }
  for (int process = 0; process < rules.size; ++process) {
    if (present.count(process) == 0) missing.push_back(process);
  }
  return missing;
}

CrewLeader::CrewLeader(const CrewRules& rules, RendezvousServer* server,
                       Clock now)
    : rules_(rules),
      server_(server),
      now_(std::move(now)),
      started_at_(now_()) {}

bool CrewLeader::IsAvoided(int process) const {
  const auto avoided = rules_.avoided.find(process);
  // A join and a download between two waits do not use up the time.
  const absl::Time now = crew_.empty() ? started_at_ + waited_ : now_();
  return avoided != rules_.avoided.end() && now < avoided->second;
}

std::map<int, std::string> CrewLeader::AllKeys() {
  const absl::Time now = now_();
  std::map<int, std::string> keys;
  for (const auto& [key, questions] : server_->Asked(kPlaces)) {
    Asker& asker = askers_[key];
    if (std::exchange(asker.calls, questions.count) != questions.count) {
      asker.seen_at = questions.last;
    }
    const int process = ProcessOf(key);
    if (process < 0 || process == rules_.leader || asker.is_answered ||
        now - asker.seen_at > kGone) {
      continue;
    }
    std::string& newest = keys[process];
    // Its earlier lives have ended.
    if (newest.empty() || askers_[newest].seen_at <= asker.seen_at) {
      newest = key;
    }
  }
  return keys;
}

std::map<int, std::string> CrewLeader::Keys() {
  std::map<int, std::string> keys;
  for (const auto& [process, key] : AllKeys()) {
    if (IsAvoided(process)) continue;
    if (rules_.ranks == 0 || RanksOf(key) == rules_.ranks) {
      keys.emplace(process, key);
    } else {
      LOG(WARNING) << "refused a process: "
                   << Refuse(process, key, rules_.ranks).message();
    }
  }
  return keys;
}

std::set<int> CrewLeader::WithAskers(const std::vector<int>& processes) {
  std::set<int> all(processes.begin(), processes.end());
  for (const auto& [process, key] : Keys()) all.insert(process);
  return all;
}

std::set<int> CrewLeader::Present() { return WithAskers({rules_.leader}); }

std::set<int> CrewLeader::WithSpares() { return WithAskers(crew_); }

void CrewLeader::Skip(absl::Duration stopped) {
  if (stopped <= absl::ZeroDuration()) return;
  // The server has not heard yet who asks.
  AllKeys();
  const absl::Time now = now_();
  for (auto& [key, asker] : askers_) {
    asker.seen_at = std::min(asker.seen_at + stopped, now);
  }
}

absl::StatusOr<std::vector<int>> CrewLeader::Await(
    const CrewSizeAllowed& allowed, const Pause& pause) {
  absl::Time looked_at = now_();
  while (true) {
    const absl::Time now = now_();
    const absl::Duration passed = now - std::exchange(looked_at, now);
    Skip(passed - TimeLimit::kMostCounted);
    waited_ += std::min(passed, TimeLimit::kMostCounted);
    const std::set<int> present = Present();
    std::vector<int> crew = ChooseCrew(rules_, present, allowed, waited_);
    if (!crew.empty()) return crew;
    if (waited_ > rules_.shrink_after + kLongestWait) {
      StampOthersMissing();
      return absl::DeadlineExceededError(absl::StrCat(
          "too few of the island's processes have connected: ",
          absl::StrJoin(present, ", "), "; wanted: ", rules_.size,
          ", at least ", rules_.least, " (waited ",
          absl::FormatDuration(absl::Trunc(waited_, absl::Seconds(1))), ")"));
    }
    if (!pause()) {
      return absl::CancelledError("stopped before the island's start");
    }
  }
}

absl::Status CrewLeader::AwaitEnough(const Pause& pause) {
  return Await([](int) { return true; }, pause).status();
}

absl::Status CrewLeader::Refuse(int process, const std::string& key,
                                int ranks) {
  server_->table()
      ->Put(key, PlaceText(/*rank=*/0, /*size=*/0, rules_.leader, ranks))
      .IgnoreError();
  askers_[key].is_answered = true;
  return UnequalRanks(process, RanksOf(key), rules_.leader, ranks);
}

absl::Status CrewLeader::CheckRanks(int ranks, const std::vector<int>& crew,
                                    const std::map<int, std::string>& keys) {
  absl::Status status;
  for (const int process : crew) {
    if (process == rules_.leader || RanksOf(keys.at(process)) == ranks) {
      continue;
    }
    status = Refuse(process, keys.at(process), ranks);
  }
  if (!status.ok()) absl::SleepFor(kAsk);
  return status;
}

absl::StatusOr<int> CrewLeader::Choose(int ranks,
                                       const CrewSizeAllowed& allowed,
                                       const Pause& pause) {
  if (LargestCrew(rules_, rules_.size, allowed) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "training.batch_size cannot be shared evenly by the ranks of any ",
        rules_.least, " to ", rules_.size,
        " processes (--min_island_size, --island_size): it must be a multiple "
        "of ranks * training.micro_batch_size"));
  }
  std::vector<int> crew;
  std::map<int, std::string> keys;
  const auto is_there = [&](int process) {
    return process == rules_.leader || keys.count(process) > 0;
  };
  do {
    ASSIGN_OR_RETURN(crew, Await(allowed, pause));
    keys = Keys();
  } while (!std::all_of(crew.begin(), crew.end(), is_there));
  RETURN_IF_ERROR(CheckRanks(ranks, crew, keys));
  const auto size = static_cast<int>(crew.size());
  for (int rank = 1; rank < size; ++rank) {
    const std::string& key = keys[crew[rank]];
    RETURN_IF_ERROR(server_->table()->Put(RankKey(crew[rank]),
                                          absl::StrCat(rank, "/", key)));
    RETURN_IF_ERROR(server_->table()->Put(
        key, PlaceText(rank, size, rules_.leader, ranks)));
    askers_[key].is_answered = true;
    keys.erase(crew[rank]);
  }
  crew_ = crew;
  rules_.ranks = ranks;
  allowed_ = allowed;
  chosen_at_ = now_();
  LOG(INFO) << "the island trains on " << size << " of " << rules_.size
            << " processes: " << absl::StrJoin(crew, ", ");
  for (const auto& [process, key] : keys) {
    LOG(INFO) << "process " << process << " is a spare";
  }
  return size;
}

bool CrewLeader::CanGrow() {
  const auto size = static_cast<int>(crew_.size());
  if (size == 0 || size == rules_.size ||
      now_() - chosen_at_ < QuietTime(rules_)) {
    return false;
  }
  const auto all = static_cast<int>(WithSpares().size());
  return LargestCrew(rules_, all, allowed_) > size;
}

int CrewLeader::SizeWithoutOne() {
  const auto all = static_cast<int>(WithSpares().size());
  return LargestCrew(rules_, all - 1, allowed_);
}

absl::Status CrewLeader::SayStartAgain() {
  LOG(INFO) << "the island restarts with more processes";
  return server_->table()->Put(kEnd, kStartAgain);
}

absl::Status CrewLeader::SayStartAgain(int left_out, absl::Duration quiet) {
  left_out_ = left_out;
  quiet_ = quiet;
  LOG(INFO) << "the island restarts without process " << left_out;
  return server_->table()->Put(kEnd, kStartAgain);
}

CrewRules CrewLeader::NextRules() {
  if (left_out_ != kNoProcess) rules_.avoided[left_out_] = now_() + quiet_;
  CrewRules next = rules_;
  std::set<int> awaited = WithSpares();
  for (const auto& [process, until] : rules_.avoided) {
    if (IsAvoided(process)) {
      awaited.erase(process);
    } else {
      next.avoided.erase(process);
    }
  }
  next.awaited = static_cast<int>(awaited.size());
  return next;
}

int CrewLeader::ProcessWithRank(int rank) { return crew_[rank / rules_.ranks]; }

void CrewLeader::SayFailed(const absl::Status& status, bool for_good) {
  const std::string why =
      status.ToString(absl::StatusToStringMode::kWithNoExtraData);
  server_->table()
      ->Put(kEnd, absl::StrCat(for_good ? kForGood : "", why))
      .IgnoreError();
  if (for_good) Dismiss(why);
}

void CrewLeader::AwaitDone(absl::Duration timeout, int lost) {
  const absl::Time deadline = now_() + timeout;
  for (int rank = 1; rank < static_cast<int>(crew_.size()); ++rank) {
    if (rank == lost ||
        !Reaches(0, rank * rules_.ranks, absl::ZeroDuration(), server_->table())
             .value_or(true)) {
      continue;
    }
    const absl::Status done =
        server_->table()->Get(DoneKey(rank), deadline - now_()).status();
    LOG_IF(WARNING, !done.ok())
        << "process " << crew_[rank] << " did not end its ranks properly";
  }
}

std::map<int, std::string> CrewLeader::DismissAskers(absl::string_view why) {
  std::map<int, std::string> keys = AllKeys();
  for (const auto& [process, key] : keys) {
    server_->table()
        ->Put(key, why.empty() ? "" : absl::StrCat(kForGood, why))
        .IgnoreError();
  }
  return keys;
}

void CrewLeader::DismissAll(int others, absl::string_view why,
                            const Pause& pause) {
  std::set<int> told;
  while (static_cast<int>(told.size()) < others && pause()) {
    for (const auto& [process, key] : DismissAskers(why)) told.insert(process);
  }
  Dismiss(why);
}

void CrewLeader::Dismiss(absl::string_view why) {
  const std::map<int, std::string> keys = DismissAskers(why);
  // They ask once more, at most.
  if (!keys.empty()) absl::SleepFor(kAsk);
}

absl::StatusOr<std::optional<CrewPlace>> AwaitPlace(
    const RendezvousOptions& options, int process, int ranks, uint64_t life,
    absl::Duration timeout) {
  const std::string key = PlaceKey(process, life, ranks);
  LOG(INFO) << "process " << process << " waits for a place among the ranks";
  while (true) {
    // A leader that does not answer may be about to start again.
    ASSIGN_OR_RETURN(std::unique_ptr<Rendezvous> table,
                     ConnectRendezvous(options, timeout));
    const absl::StatusOr<std::string> place = table->Get(key, kAsk);
    if (absl::IsUnavailable(place.status())) continue;
    if (absl::IsDeadlineExceeded(place.status())) {
      ReportEarlierLife(process, key, ranks, table.get());
      continue;
    }
    RETURN_IF_ERROR(place.status());
    if (place->empty()) return std::nullopt;
    if (absl::StartsWith(*place, kForGood)) return absl::AbortedError(*place);
    const std::vector<absl::string_view> words = absl::StrSplit(*place, '/');
    CrewPlace mine{.table = std::move(table)};
    int leader = 0;
    int ranks_of_leader = 0;
    if (words.size() != 4 || !absl::SimpleAtoi(words[0], &mine.rank) ||
        !absl::SimpleAtoi(words[1], &mine.size) ||
        !absl::SimpleAtoi(words[2], &leader) ||
        !absl::SimpleAtoi(words[3], &ranks_of_leader)) {
      return absl::DataLossError(
          "the rank that the leader assigned is damaged");
    }
    if (ranks_of_leader != ranks) {
      return UnequalRanks(process, ranks, leader, ranks_of_leader);
    }
    return mine;
  }
}

absl::StatusOr<std::optional<std::string>> WhyEnded(const CrewPlace& place,
                                                    absl::Duration timeout) {
  ASSIGN_OR_RETURN(const std::string why, place.table->Get(kEnd, timeout));
  SayDone(place);
  if (absl::StartsWith(why, kForGood)) return absl::AbortedError(why);
  if (why != kStartAgain) return why;
  return std::nullopt;
}

void SayDone(const CrewPlace& place) {
  // The leader continues at once, perhaps before it answers.
  place.table->Put(DoneKey(place.rank), "").IgnoreError();
}

}  // namespace causeway
