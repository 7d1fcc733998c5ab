// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/terminator.h"

#include <unistd.h>

#include <atomic>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/os/daemon.h"
#include "glog/logging.h"
#include "worker/flags.h"

namespace causeway {
namespace {

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
  interrupted = AwaitTerminationSignal(pause) != 0;
  return !interrupted;
}

Terminator::Terminator(std::function<void(const std::string&)> leave,
                       std::function<void()> stop, std::function<void()> tend)
    : thread_([this, leave = std::move(leave), stop = std::move(stop),
               tend = std::move(tend)] {
        bool leaving = false;
        while (!done_.HasBeenNotified()) {
          tend();
          const int signal = AwaitTerminationSignal(absl::Milliseconds(100));
          if (signal != 0 && leaving) return stop();
          if (leaving) continue;
          const std::string reason = Reason(signal);
          if (reason.empty()) continue;
          LOG(INFO) << reason << ": leaving the run";
          leaving = true;
          interrupted = true;
          leave(reason);
        }
      }) {}

Terminator::~Terminator() {
  done_.Notify();
  thread_.join();
}

}  // namespace causeway
