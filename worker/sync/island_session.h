// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island's membership in a run, kept alive: joins (retrying for as long as
// it takes), sends heartbeats, holds the newest state the coordinator
// published, reconnects when the stream breaks and joins again, as a new
// incarnation, when it was fenced off.
//
// Readers wait for news:
//
//   IslandView view = session.view();
//   while (!Enough(view)) view = session.AwaitChange(view.generation, timeout);
#ifndef WORKER_SYNC_ISLAND_SESSION_H_
#define WORKER_SYNC_ISLAND_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "worker/sync/coordinator_client.h"

namespace causeway {

struct IslandView {
  // Rises with every change below.
  uint64_t generation = 0;
  v1::IslandIdentity identity;
  v1::SessionResponse state;
  // Rises with each new stream: what was said on an older one may be lost.
  uint64_t connection = 0;
  // Whether the stream is up.
  bool connected = false;
  // Why the island cannot be part of the run any more; OK while it can.
  absl::Status failure;
  bool stopping = false;
  // The island is to hand in what it has and to leave, and why.
  bool leaving = false;
  std::string leave_reason;

  bool must_leave() const { return leaving || state.drain(); }
};

// Thread-safe.
class IslandSession {
 public:
  struct Options {
    v1::JoinRequest join;
    // Seeds the jitter of the back-off.
    uint64_t seed = 0;
  };

  // `client` outlives the session. `progress` is called from the session's
  // thread before each heartbeat.
  IslandSession(Options options, CoordinatorClient* client,
                std::function<v1::IslandProgress()> progress);
  ~IslandSession();

  // Joins, retrying while the coordinator is away or Stop is not called.
  //   CANCELLED  stopped.
  //   else       as Coordinator.Join, if retrying is no use.
  absl::StatusOr<v1::JoinResponse> Join();

  // Starts heartbeats; after Join.
  void Start();

  IslandView view() const;
  // Returns once the generation differs from `seen` or after `timeout`.
  IslandView AwaitChange(uint64_t seen, absl::Duration timeout) const;

  // Makes AwaitChange return everywhere: for news that are not the
  // coordinator's.
  void Wake();

  // Asks the island to leave in good order: see IslandView::must_leave().
  void RequestLeave(absl::string_view reason);

  // Ends the waiting and makes the thread end. Any thread, at any time.
  void RequestStop();
  // RequestStop, and waits for the thread. Does not leave the run.
  void Stop();

 private:
  void Run();
  // One stream, until it breaks.
  absl::Status RunStream();
  // False if stopped meanwhile.
  bool Sleep(absl::Duration duration);
  void Publish(const std::function<void(IslandView&)>& change);

  const Options options_;
  CoordinatorClient* const client_;
  const std::function<v1::IslandProgress()> progress_;
  absl::Duration heartbeat_ = absl::Seconds(1);

  mutable absl::Mutex mu_;
  IslandView view_ ABSL_GUARDED_BY(mu_);
  ControlStream* stream_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::thread thread_;
};

// Whether a later try of the same call may succeed.
bool IsRetryable(const absl::Status& status);

}  // namespace causeway

#endif  // WORKER_SYNC_ISLAND_SESSION_H_
