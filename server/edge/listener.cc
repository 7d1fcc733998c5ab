// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/os/machine.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// The time between looks at the process's memory. At 10 Gbit/s peers can send
// 25 MB meanwhile.
constexpr itimerspec kLookInterval = {.it_interval = {.tv_nsec = 20'000'000},
                                      .it_value = {.tv_nsec = 20'000'000}};

// An audit takes two system calls for each connection. It follows a look that
// finds memory grown by kGrowth bytes since the last audit, and every
// kLooksPerAudit looks.
constexpr uint64_t kGrowth = 1 << 20;
constexpr int kLooksPerAudit = 5;

// The most connections accepted from a socket before the others are polled.
constexpr int kAcceptedAtOnce = 64;

// Descriptors for everything except open connections: files of fragments, the
// database and updates being read, and connections about to be closed.
constexpr uint64_t kOtherDescriptors = 512;

int OpenReserve() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Listen(
    const std::string& address) {
  std::unique_ptr<Listener> listener(new Listener);
  ASSIGN_OR_RETURN(listener->sockets_, ListeningSockets::Open(address));
  listener->stop_ = eventfd(0, EFD_CLOEXEC);
  listener->timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  listener->reserve_ = OpenReserve();
  if (listener->stop_ < 0 || listener->timer_ < 0 || listener->reserve_ < 0) {
    return absl::ErrnoToStatus(errno, "cannot open files to listen with");
  }
  return listener;
}

Listener::~Listener() {
  Stop();
  for (const int file : {stop_, timer_, reserve_}) {
    if (file >= 0) close(file);
  }
}

void Listener::Start(Connections* connections, std::function<void(int)> take) {
  connections_ = connections;
  take_ = std::move(take);
  timerfd_settime(timer_, 0, &kLookInterval, nullptr);
  thread_ = std::thread([this] { Run(); });
  hander_ = std::thread([this] { HandOver(); });
}

void Listener::Stop() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mu_);
    is_stopping_ = true;
  }
  // Keep auditing meanwhile, so that a peer that sends too much cannot block
  // this thread.
  hander_.join();
  eventfd_write(stop_, 1);
  thread_.join();
  absl::MutexLock lock(&mu_);
  for (const int file : admitted_) close(file);
  admitted_.clear();
}

void Listener::HandOver() {
  const auto has_work = [this] {
    mu_.AssertHeld();
    return is_stopping_ || !admitted_.empty();
  };
  while (true) {
    int file = -1;
    {
      absl::MutexLock lock(&mu_, absl::Condition(&has_work));
      if (is_stopping_) return;
      file = admitted_.front();
      admitted_.pop_front();
    }
    take_(file);
  }
}

void Listener::Run() {
  std::vector<pollfd> polled = {{.fd = stop_, .events = POLLIN},
                                {.fd = timer_, .events = POLLIN}};
  for (const int socket : sockets_.files()) {
    polled.push_back({.fd = socket, .events = POLLIN});
  }
  while (true) {
    poll(polled.data(), polled.size(), -1);
    if (polled[0].revents != 0) return;
    const bool is_look = polled[1].revents != 0;
    if (is_look) {
      // A timer is read like an event.
      eventfd_t ticks;
      eventfd_read(timer_, &ticks);
      if (IsAuditDue()) connections_->Audit();
    }
    for (size_t i = 2; i < polled.size(); ++i) {
      // If descriptors run out, try the socket again after the next look.
      if (polled[i].revents != 0 && !Accept(polled[i].fd)) {
        polled[i].events = 0;
      } else if (is_look) {
        polled[i].events = POLLIN;
      }
    }
  }
}

bool Listener::IsAuditDue() {
  const uint64_t memory = ResidentBytes();
  least_memory_ = std::min(least_memory_, memory);
  // Unknown memory may have grown.
  if (++looks_ < kLooksPerAudit && memory > 0 &&
      memory < least_memory_ + kGrowth) {
    return false;
  }
  looks_ = 0;
  least_memory_ = memory;
  return true;
}

bool Listener::Accept(int socket) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    const int file =
        accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (file >= 0) {
      if (connections_->Admit(file)) {
        absl::MutexLock lock(&mu_);
        admitted_.push_back(file);
      } else {
        close(file);
      }
    } else if (errno == EAGAIN) {
      return true;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
               errno == ENOMEM) {
      LOG_EVERY_T(ERROR, 10)
          << "cannot accept a connection: " << std::strerror(errno);
      return RefuseOne(socket);
    }
    // Any other error concerns one connection only.
  }
  return true;
}

bool Listener::RefuseOne(int socket) {
  close(reserve_);
  const int file = accept4(socket, nullptr, nullptr, SOCK_CLOEXEC);
  if (file >= 0) close(file);
  reserve_ = OpenReserve();
  return file >= 0;
}

void ReserveDescriptors(ConnectionLimits& limits) {
  const uint64_t wanted = limits.connections + kOtherDescriptors;
  const uint64_t files = AllowOpenFiles(wanted);
  if (files >= wanted) return;
  const uint64_t others = std::min(kOtherDescriptors, files / 2);
  limits.connections = static_cast<int>(files - others);
  LOG(WARNING) << "accepting at most " << limits.connections
               << " connections: the system lets this process open " << files
               << " files (ulimit -n); " << wanted << " are needed";
}

}  // namespace causeway
