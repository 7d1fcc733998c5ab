// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tells the service manager that started this process what it is doing, by
// datagrams of sd_notify(3):
//
//   ServiceManager manager(now);      // in main
//   manager.Ready();                  // the service serves
//   manager.SetStatus("merging");     // a line for `systemctl status`
//   manager.Alive();                  // often, but only while work goes on
//   manager.Stopping();
//
// Work that shows no life itself, and may take longer than the watchdog's time,
// is a busy phase, in which a thread feeds the watchdog:
//
//   const ServiceManager::Phase start(&manager, /*is_busy=*/true);
//   ... read a large file ...
//   const ServiceManager::Phase serving(&manager, /*is_busy=*/false);
//   while (...) manager.Alive();
//
// systemd passes the address of its socket in NOTIFY_SOCKET, for units of
// Type=notify, and the time after which it kills a silent service in
// WATCHDOG_USEC and WATCHDOG_PID. Without them the calls do nothing.
#ifndef COMMON_OS_SERVICE_MANAGER_H_
#define COMMON_OS_SERVICE_MANAGER_H_

#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace causeway {

// Thread-safe. A message that cannot be sent is logged, once.
class ServiceManager {
 public:
  // A busy phase, or within it one that is not. Phases nest, in one thread.
  class Phase {
   public:
    Phase(ServiceManager* manager, bool is_busy)
        : manager_(manager), before_(manager->SetBusy(is_busy)) {}
    ~Phase() { manager_->SetBusy(before_); }
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    ServiceManager* const manager_;
    const bool before_;
  };

  // Reads the environment.
  explicit ServiceManager(Clock now);
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  // The watchdog's time begins with the first call.
  void Ready();
  void Stopping() { Send("STOPPING=1"); }
  // Sends `status` if it has changed.
  void SetStatus(absl::string_view status);
  // Feeds the watchdog, if there is one and a quarter of its time has passed
  // since the last time.
  void Alive();

 private:
  // Returns the previous value.
  bool SetBusy(bool is_busy) ABSL_LOCKS_EXCLUDED(mu_);
  // Feeds the watchdog in busy phases.
  void FeedLoop() ABSL_LOCKS_EXCLUDED(mu_);
  // Connects to the socket at `address`, which begins with @ if it is in the
  // abstract namespace.
  absl::Status Connect(absl::string_view address);
  void Send(absl::string_view message);

  const Clock now_;
  // -1 without a service manager.
  int socket_ = -1;
  // Infinite without a watchdog.
  absl::Duration watchdog_ = absl::InfiniteDuration();

  absl::Mutex mu_;
  std::string status_ ABSL_GUARDED_BY(mu_);
  absl::Time fed_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  bool is_ready_ ABSL_GUARDED_BY(mu_) = false;
  bool is_busy_ ABSL_GUARDED_BY(mu_) = false;
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;

  // Runs from the first busy phase on, if there is a watchdog.
  std::thread feeder_;
};

}  // namespace causeway

#endif  // COMMON_OS_SERVICE_MANAGER_H_
