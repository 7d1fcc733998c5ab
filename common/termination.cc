// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/termination.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>

namespace causeway {
namespace {

sigset_t TerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);
  return signals;
}

}  // namespace

void BlockTerminationSignals() {
  const sigset_t signals = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int AwaitTerminationSignal(absl::Duration timeout) {
  const sigset_t signals = TerminationSignals();
  const timespec wait = absl::ToTimespec(timeout);
  return std::max(0, sigtimedwait(&signals, nullptr, &wait));
}

}  // namespace causeway
