// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/link.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/os/file.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// The largest Ethernet frame that a TAP device gives.
constexpr size_t kMaxFrameBytes = 65'536 + 32;
// The most frames read in a row from one side, so that the other has its turn.
constexpr int kBatch = 256;

void TakePrecedence() {
  const sched_param parameters = {.sched_priority = 1};
  const int error =
      pthread_setschedparam(pthread_self(), SCHED_RR, &parameters);
  LOG_IF(WARNING, error != 0)
      << ErrnoStatus(error, "give precedence to", "a link").message();
}

absl::Status Watch(const Descriptor& poll, const Descriptor& watched) {
  epoll_event event = {.events = EPOLLIN, .data = {.fd = watched.get()}};
  if (epoll_ctl(poll.get(), EPOLL_CTL_ADD, watched.get(), &event) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, "watch", "a descriptor");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Link>> Link::Start(Options options) {
  Descriptor poll(epoll_create1(EPOLL_CLOEXEC));
  Descriptor timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!poll.ok() || !timer.ok() || !wake.ok()) {
    return ErrnoStatus(errno, "make", "the descriptors of a link");
  }
  for (const Descriptor* watched :
       {&options.island, &options.coordinator, &timer, &wake}) {
    RETURN_IF_ERROR(Watch(poll, *watched));
  }
  return std::unique_ptr<Link>(new Link(std::move(options), std::move(poll),
                                        std::move(timer), std::move(wake)));
}

Link::Link(Options options, Descriptor poll, Descriptor timer, Descriptor wake)
    : now_(std::move(options.now)),
      poll_(std::move(poll)),
      timer_(std::move(timer)),
      wake_(std::move(wake)),
      island_{std::move(options.island),
              Shaper(now_(), options.settings.up, options.seed)},
      coordinator_{std::move(options.coordinator),
                   Shaper(now_(), options.settings.down, options.seed + 1)},
      buffer_(kMaxFrameBytes, '\0'),
      thread_([this] { Run(); }) {}

Link::~Link() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
}

void Link::Configure(const LinkSettings& settings) {
  {
    absl::MutexLock lock(&mu_);
    const absl::Time now = now_();
    island_.shaper.Configure(now, settings.up);
    coordinator_.shaper.Configure(now, settings.down);
  }
  Wake();
}

LinkCounters Link::counters() const {
  absl::MutexLock lock(&mu_);
  return {island_.shaper.counters(), coordinator_.shaper.counters()};
}

void Link::ResetCounters() {
  absl::MutexLock lock(&mu_);
  const absl::Time now = now_();
  island_.shaper.ResetCounters(now);
  coordinator_.shaper.ResetCounters(now);
}

absl::Duration Link::processor_time() {
  clockid_t clock;
  timespec time;
  // The thread lives as long as this object, so neither call can fail.
  CHECK_EQ(pthread_getcpuclockid(thread_.native_handle(), &clock), 0);
  PCHECK(clock_gettime(clock, &time) == 0);
  return absl::DurationFromTimespec(time);
}

void Link::Run() {
  TakePrecedence();
  while (true) {
    epoll_event events[4];
    PCHECK(epoll_wait(poll_.get(), events, 4, -1) >= 0 || errno == EINTR);
    absl::MutexLock lock(&mu_);
    if (stopping_) return;
    for (const Descriptor* counter : {&timer_, &wake_}) {
      uint64_t expirations;
      PCHECK(read(counter->get(), &expirations, sizeof(expirations)) >= 0 ||
             errno == EAGAIN);
    }
    TakeIn(island_);
    TakeIn(coordinator_);
    PutOut(island_, coordinator_);
    PutOut(coordinator_, island_);
    SetTimer();
  }
}

void Link::TakeIn(Side& from) {
  const absl::Time now = now_();
  for (int i = 0; i < kBatch; ++i) {
    const ssize_t bytes = read(from.tap.get(), buffer_.data(), buffer_.size());
    if (bytes <= 0) {
      LOG_IF(ERROR, bytes < 0 && errno != EAGAIN)
          << ErrnoStatus(errno, "read from", "a TAP device");
      return;
    }
    from.shaper.Send(now, buffer_.substr(0, static_cast<size_t>(bytes)));
  }
}

void Link::PutOut(Side& from, const Side& to) {
  const absl::Time now = now_();
  while (const std::optional<std::string> frame = from.shaper.Receive(now)) {
    const ssize_t written = write(to.tap.get(), frame->data(), frame->size());
    LOG_IF(ERROR, written < 0 && errno != EAGAIN)
        << ErrnoStatus(errno, "write to", "a TAP device");
  }
}

void Link::SetTimer() {
  const absl::Time due =
      std::min(island_.shaper.NextDue(), coordinator_.shaper.NextDue());
  itimerspec timer = {};  // Off.
  if (due != absl::InfiniteFuture()) {
    timer.it_value =
        absl::ToTimespec(std::max(due - now_(), kTimerGranularity));
  }
  PCHECK(timerfd_settime(timer_.get(), 0, &timer, nullptr) == 0);
}

void Link::Wake() {
  const uint64_t one = 1;
  PCHECK(write(wake_.get(), &one, sizeof(one)) == sizeof(one));
}

}  // namespace causeway
