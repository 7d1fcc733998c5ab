// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "glog/logging.h"

namespace causeway {
namespace {

absl::string_view Variable(const char* name) {
  return absl::NullSafeStringView(std::getenv(name));
}

// Returns the watchdog's time from the environment, or infinity.
absl::Duration WatchdogTime() {
  uint64_t microseconds = 0;
  if (!absl::SimpleAtoi(Variable("WATCHDOG_USEC"), &microseconds) ||
      microseconds == 0) {
    return absl::InfiniteDuration();
  }
  // The variables may have been inherited from a service that started us.
  const absl::string_view pid = Variable("WATCHDOG_PID");
  if (!pid.empty() && pid != absl::StrCat(getpid())) {
    return absl::InfiniteDuration();
  }
  return absl::Microseconds(microseconds);
}

}  // namespace

ServiceManager::ServiceManager(Clock now) : now_(std::move(now)) {
  const absl::string_view address = Variable("NOTIFY_SOCKET");
  if (address.empty()) return;
  const absl::Status connected = Connect(address);
  LOG_IF(WARNING, !connected.ok()) << connected.message();
  watchdog_ = WatchdogTime();
}

ServiceManager::~ServiceManager() {
  {
    absl::MutexLock lock(&mu_);
    is_ending_ = true;
  }
  if (feeder_.joinable()) feeder_.join();
  if (socket_ >= 0) close(socket_);
}

absl::Status ServiceManager::Connect(absl::string_view address) {
  sockaddr_un name = {.sun_family = AF_UNIX};
  if ((address[0] != '/' && address[0] != '@') ||
      address.size() >= sizeof(name.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("NOTIFY_SOCKET is \"", address,
                     "\", neither a path nor a name that begins with @, or too "
                     "long: the service manager gets no messages"));
  }
  std::memcpy(name.sun_path, address.data(), address.size());
  if (address[0] == '@') name.sun_path[0] = '\0';
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0 ||
      connect(socket_, reinterpret_cast<const sockaddr*>(&name), size) != 0) {
    const absl::Status status = absl::ErrnoToStatus(
        errno, absl::StrCat("cannot reach the service manager at ", address));
    if (socket_ >= 0) close(std::exchange(socket_, -1));
    return status;
  }
  return absl::OkStatus();
}

void ServiceManager::Ready() {
  Send("READY=1");
  absl::MutexLock lock(&mu_);
  is_ready_ = true;
}

bool ServiceManager::SetBusy(bool is_busy) {
  if (is_busy && watchdog_ != absl::InfiniteDuration() && !feeder_.joinable()) {
    feeder_ = std::thread([this] { FeedLoop(); });
  }
  absl::MutexLock lock(&mu_);
  return std::exchange(is_busy_, is_busy);
}

void ServiceManager::FeedLoop() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      const auto is_due = [this] {
        mu_.AssertReaderHeld();
        return is_ending_ || (is_ready_ && is_busy_);
      };
      mu_.Await(absl::Condition(&is_due));
      if (is_ending_) return;
    }
    Alive();
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(&is_ending_), watchdog_ / 4);
  }
}

void ServiceManager::SetStatus(absl::string_view status) {
  const std::string line = absl::StrReplaceAll(status, {{"\n", " "}});
  {
    absl::MutexLock lock(&mu_);
    if (line == status_) return;
    status_ = line;
  }
  Send(absl::StrCat("STATUS=", line));
}

void ServiceManager::Alive() {
  if (watchdog_ == absl::InfiniteDuration()) return;
  {
    absl::MutexLock lock(&mu_);
    const absl::Time now = now_();
    if (now - fed_at_ < watchdog_ / 4) return;
    fed_at_ = now;
  }
  Send("WATCHDOG=1");
}

void ServiceManager::Send(absl::string_view message) {
  if (socket_ < 0) return;
  ssize_t sent;
  do {
    sent = send(socket_, message.data(), message.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) {
    LOG_FIRST_N(WARNING, 1) << "cannot tell the service manager " << message
                            << ": " << std::strerror(errno);
  }
}

}  // namespace causeway
