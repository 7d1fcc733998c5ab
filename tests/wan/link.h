// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A long link between two network devices, in user space: it takes every frame
// out of one TAP device and puts it into the other when the Shaper of that
// direction says so. TCP on both sides sees true packets with a true round
// trip, losses and a queue.
//
// Each link has one thread. It sleeps in epoll_wait until a frame comes or is
// due. A timer never ends sooner than kTimerGranularity, so a fast link is
// served in batches: a frame may come that much late, while rates stay exact
// (see Shaper). The thread has precedence over all threads of normal priority,
// so that islands that keep every processor busy do not slow their own link
// down; where that is not permitted, it logs so and runs like others.
#ifndef TESTS_WAN_LINK_H_
#define TESTS_WAN_LINK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/wan/descriptor.h"
#include "tests/wan/shaper.h"

namespace causeway {

// Up is from the island to the coordinator.
struct LinkSettings {
  ShaperSettings up;
  ShaperSettings down;

  bool operator==(const LinkSettings&) const = default;
};

struct LinkCounters {
  Shaper::Counters up;
  Shaper::Counters down;
};

class Link {
 public:
  static constexpr absl::Duration kTimerGranularity = absl::Microseconds(200);

  struct Options {
    // TAP devices that do not block; see OpenTap.
    Descriptor island;
    Descriptor coordinator;
    LinkSettings settings;
    uint64_t seed = 0;
    Clock now;
  };

  static absl::StatusOr<std::unique_ptr<Link>> Start(Options options);
  // Closes the devices.
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // These may be called from any thread.

  void Configure(const LinkSettings& settings);
  LinkCounters counters() const;
  void ResetCounters();
  // Returns the processor time that the link's thread has taken.
  absl::Duration processor_time();

 private:
  // A device and the frames on their way to the other one.
  struct Side {
    Descriptor tap;
    Shaper shaper;
  };

  Link(Options options, Descriptor poll, Descriptor timer, Descriptor wake);

  void Run();
  // Reads frames that have come at `from`, at most one batch.
  void TakeIn(Side& from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes to `to` the due frames that came from `from`.
  void PutOut(Side& from, const Side& to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Wake();

  const Clock now_;
  const Descriptor poll_;
  const Descriptor timer_;
  const Descriptor wake_;

  mutable absl::Mutex mu_;
  Side island_ ABSL_GUARDED_BY(mu_);
  Side coordinator_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::string buffer_ ABSL_GUARDED_BY(mu_);

  // The last member, so that all others exist when it starts.
  std::thread thread_;
};

}  // namespace causeway

#endif  // TESTS_WAN_LINK_H_
