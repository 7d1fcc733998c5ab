// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/succession.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// A leader answers sooner, unless its host is lost or its process is stuck.
constexpr absl::Duration kAnswer = absl::Seconds(1);
// The time between two looks at all addresses.
constexpr absl::Duration kLook = absl::Milliseconds(200);

// The keys of a leader's table. The first has the number of its process.
constexpr char kLeads[] = "leads";
constexpr char kJoined[] = "joined";

// Returns what the leader at `address` has written under `key`.
absl::StatusOr<std::string> Ask(const Succession& succession,
                                const std::string& address,
                                absl::string_view key, absl::Duration timeout) {
  RendezvousOptions options = succession.rendezvous;
  options.address = address;
  return RendezvousAt(options)->Get(key, timeout);
}

std::string AddressOf(const Succession& succession) {
  const int place = PlaceInSuccession(succession.leaders, succession.process);
  return place < 0 ? "" : succession.leaders[place].address;
}

}  // namespace

absl::StatusOr<std::vector<LeaderAddress>> ParseLeaders(
    absl::string_view text) {
  std::vector<LeaderAddress> leaders;
  std::set<int> processes;
  std::set<std::string> addresses;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    LeaderAddress leader{.process = static_cast<int>(leaders.size())};
    const std::vector<absl::string_view> parts = absl::StrSplit(word, '=');
    leader.address = std::string(parts.back());
    const bool is_number =
        parts.size() == 1 ||
        (parts.size() == 2 && absl::SimpleAtoi(parts[0], &leader.process));
    if (!is_number || leader.process < 0 || leader.address.empty() ||
        (leaders.empty() && leader.process != 0) ||
        !processes.insert(leader.process).second ||
        !addresses.insert(leader.address).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", text,
          "\" is no list of addresses; allowed: host:port of process 0, then "
          "perhaps, after commas, those of its successors in their order: of "
          "processes 1, 2, ... or, as 4=host:port, of others"));
    }
    leaders.push_back(std::move(leader));
  }
  return leaders;
}

int PlaceInSuccession(absl::Span<const LeaderAddress> leaders, int process) {
  for (size_t i = 0; i < leaders.size(); ++i) {
    if (leaders[i].process == process) return static_cast<int>(i);
  }
  return -1;
}

std::optional<absl::Duration> SilenceBeforeLeading(const Succession& succession,
                                                   bool failed) {
  const int place = PlaceInSuccession(succession.leaders, succession.process);
  if (place < 0) return std::nullopt;
  return std::max(place, failed ? 1 : 0) * succession.patience;
}

absl::Status SayLeads(int process, Rendezvous* table) {
  return table->Put(kLeads, absl::StrCat(process));
}

absl::Status SayJoined(Rendezvous* table) { return table->Put(kJoined, ""); }

absl::StatusOr<std::optional<std::string>> FindLeader(
    const Succession& succession, const std::string& last, bool failed,
    absl::Duration timeout) {
  const Clock& now = succession.rendezvous.now;
  const std::string own = AddressOf(succession);
  const std::optional<absl::Duration> silence =
      SilenceBeforeLeading(succession, failed);
  std::vector<std::string> addresses;
  if (!last.empty() && last != own) addresses.push_back(last);
  for (const LeaderAddress& leader : succession.leaders) {
    if (leader.address != own && leader.address != last) {
      addresses.push_back(leader.address);
    }
  }
  const absl::Time begin = now();
  while (true) {
    absl::Status refused;
    for (const std::string& address : addresses) {
      const absl::StatusOr<std::string> process =
          Ask(succession, address, kLeads, kAnswer);
      if (process.ok()) {
        LOG(INFO) << "process " << *process << " leads the island, at "
                  << address;
        return address;
      }
      if (absl::IsPermissionDenied(process.status())) {
        refused = absl::PermissionDeniedError(
            absl::StrCat(address, ": ", process.status().message()));
      }
    }
    const absl::Duration waited = now() - begin;
    if (silence.has_value() && waited >= *silence) {
      LOG(INFO) << "process " << succession.process << " leads the island"
                << (silence > absl::ZeroDuration()
                        ? ", because no other process of --island_leader does"
                        : "");
      return std::nullopt;
    }
    if (!refused.ok()) return refused;
    if (!silence.has_value() && waited >= timeout) {
      return absl::DeadlineExceededError(
          absl::StrCat("no process leads the island at any address of "
                       "--island_leader (waited ",
                       absl::FormatDuration(timeout), ")"));
    }
    absl::SleepFor(kLook);
  }
}

RivalWatch::RivalWatch(Succession succession, bool keeps,
                       std::function<void(const std::string&)> found)
    : succession_(std::move(succession)),
      keeps_(keeps),
      found_(std::move(found)),
      thread_([this] { Run(); }) {}

RivalWatch::~RivalWatch() {
  Stop();
  thread_.join();
}

void RivalWatch::Stop() {
  if (!stop_.HasBeenNotified()) stop_.Notify();
}

std::string RivalWatch::Rival() const {
  const int own = PlaceInSuccession(succession_.leaders, succession_.process);
  for (int place = 0; place < static_cast<int>(succession_.leaders.size());
       ++place) {
    if (place == own) continue;
    const std::string& address = succession_.leaders[place].address;
    const absl::StatusOr<std::string> process =
        Ask(succession_, address, kLeads, kAnswer);
    if (!process.ok()) continue;
    if ((place < own && !keeps_) ||
        Ask(succession_, address, kJoined, kRendezvousAnswer).ok()) {
      return absl::StrCat("process ", *process, " leads the island, at ",
                          address);
    }
  }
  return "";
}

void RivalWatch::Run() {
  while (!stop_.WaitForNotificationWithTimeout(kLook)) {
    const std::string rival = Rival();
    if (rival.empty() || stop_.HasBeenNotified()) continue;
    return found_(rival);
  }
}

}  // namespace causeway
