// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/terminator.h"

#include <unistd.h>

#include <atomic>
#include <optional>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/os/daemon.h"
#include "glog/logging.h"
#include "worker/flags.h"

namespace causeway {
namespace {

// Signals that come within this time are one request: systemd and Slurm signal
// every process, and a supervisor passes its signal on besides.
constexpr absl::Duration kOneRequest = absl::Seconds(2);

std::atomic<bool> interrupted = false;

// Returns why the process must end, or "" if it need not.
std::string Reason(int signal) {
  if (signal != 0) return absl::StrCat("SIG", sigabbrev_np(signal));
  const std::string notice = absl::GetFlag(FLAGS_preemption_notice_file);
  if (notice.empty() || access(notice.c_str(), F_OK) != 0) return "";
  return absl::StrCat("pre-emption notice ", notice);
}

}  // namespace

bool IsInterrupted() { return interrupted; }

bool PauseUnlessInterrupted(absl::Duration pause) {
  if (AwaitTerminationSignal(pause) != 0) interrupted = true;
  return !interrupted;
}

Terminator::Terminator(std::function<void(const std::string&)> leave,
                       std::function<void()> stop, std::function<void()> tend,
                       Clock now)
    : thread_([this, leave = std::move(leave), stop = std::move(stop),
               tend = std::move(tend), now = std::move(now)] {
        std::optional<absl::Time> asked;
        while (!done_.HasBeenNotified()) {
          tend();
          const int signal = AwaitTerminationSignal(absl::Milliseconds(100));
          if (asked.has_value()) {
            if (signal != 0 && now() - *asked > kOneRequest) return stop();
            continue;
          }
          const std::string reason = Reason(signal);
          if (reason.empty()) continue;
          LOG(INFO) << reason << ": leaving the run";
          asked = now();
          interrupted = true;
          leave(reason);
        }
      }) {}

Terminator::~Terminator() {
  done_.Notify();
  thread_.join();
}

}  // namespace causeway
