// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/crew_watch.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/time_limit.h"

namespace causeway {
namespace {

constexpr absl::Duration kAsk = absl::Seconds(1);
constexpr absl::Duration kLook = absl::Milliseconds(200);

constexpr char kHeld[] = "held/";
// The key that a process asks for while it lives, and the key that it writes
// once it is connected.
std::string HeldKey(int process) { return absl::StrCat(kHeld, process); }
std::string ConnectedKey(int process) {
  return absl::StrCat("connected/", process);
}

}  // namespace

PlaceHolder::PlaceHolder(const CrewPlace& place) : place_(place) {
  thread_ = std::thread([this] { Run(); });
}

PlaceHolder::~PlaceHolder() {
  stop_.Notify();
  thread_.join();
}

void PlaceHolder::Run() {
  // An answer comes at once if the key is written.
  place_.table->Put(HeldKey(place_.rank), "").IgnoreError();
  do {
    if (connected_) {
      const absl::Status told =
          place_.table->Put(ConnectedKey(place_.rank), "");
      if (told.ok() || absl::IsAlreadyExists(told)) return;
    }
    place_.table->Get(HeldKey(place_.rank), kAsk).IgnoreError();
  } while (!stop_.WaitForNotificationWithTimeout(kLook));
}

CrewWatch::CrewWatch(int processes, int ranks, RendezvousServer* server,
                     Clock now)
    : processes_(processes),
      ranks_(ranks),
      server_(server),
      now_(std::move(now)) {
  thread_ = std::thread([this] { Run(); });
}

CrewWatch::~CrewWatch() {
  stop_.Notify();
  thread_.join();
}

void CrewWatch::Run() {
  struct Heard {
    uint64_t calls = 0;
    TimeLimit patience;
  };
  // A leader that was stopped has not heard the others meanwhile.
  std::vector<Heard> heard(processes_,
                           {.patience = TimeLimit(kLostAfter, &now_)});
  do {
    const std::map<std::string, Questions> asked = server_->Asked(kHeld);
    for (int process = 1; process < processes_; ++process) {
      Heard& last = heard[process];
      const auto held = asked.find(HeldKey(process));
      if (held != asked.end() && held->second.count != last.calls) {
        last = {.calls = held->second.count,
                .patience = TimeLimit(kLostAfter, &now_)};
      }
      if (!last.patience.IsOver() ||
          server_->table()
              ->Get(ConnectedKey(process), absl::ZeroDuration())
              .ok()) {
        continue;
      }
      ReportDeadRank(
          process * ranks_,
          absl::StrCat("its process was assigned a rank, but was silent for ",
                       absl::FormatDuration(kLostAfter),
                       " and did not connect"),
          server_->table());
      return;
    }
  } while (!stop_.WaitForNotificationWithTimeout(kLook));
}

}  // namespace causeway
