// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island that starts again when its replica diverges, or has a version that
// was lost with a coordinator: it drops its parameters and its optimizer's
// state and joins, like a new process, from the run's parameters. The
// coordinator keeps the island's earlier contributions.
#ifndef WORKER_ISLAND_RUNNER_H_
#define WORKER_ISLAND_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "proto/coordinator.pb.h"
#include "worker/island.h"
#include "worker/sync/coordinator_client.h"

namespace causeway {

class IslandRunner {
 public:
  struct Options {
    // Makes a new client for each start.
    std::function<std::unique_ptr<CoordinatorClient>()> connect;
    // Makes the island's options, with a new instance_id for each start.
    std::function<Island::Options()> island;
    // Removes the island's own checkpoint after it diverged, before it starts
    // again or ends. May be null.
    std::function<absl::Status()> give_up = nullptr;
    // The most restarts in a row. An island that always diverges has another
    // problem: bad data, or too high a learning rate. The count begins anew if
    // the island has trained for kSoundRounds rounds, or if its version was
    // lost.
    int restarts = 3;
  };

  // The rounds of this island's own training after which all restarts are
  // available again.
  static constexpr uint64_t kSoundRounds = 100;

  explicit IslandRunner(Options options) : options_(std::move(options)) {}

  // Like Island::Run, but returns OUT_OF_RANGE only after `restarts` restarts
  // in a row.
  absl::Status Run();

  // Returns whether the island has left since the last start and handed in all
  // that it had trained. For Run's thread.
  bool HasHandedIn() const { return has_handed_in_; }

  // Like the functions of Island. Thread-safe.
  void RequestLeave(absl::string_view reason);
  void Stop();

  // Returns the island's progress as in its heartbeats; nothing between two
  // starts. Thread-safe.
  std::optional<v1::IslandProgress> Progress();

  // Returns whether the island has made a step since the last call, or is not
  // training: joining, waiting, validating or leaving. If it stays false for
  // long, training hangs. Thread-safe.
  bool GetsOn();

 private:
  absl::Status RunOnce();

  const Options options_;
  bool has_handed_in_ = false;
  // Says whether the last start trained for kSoundRounds rounds.
  bool was_sound_ = false;
  absl::Mutex mu_;
  Island* island_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  // The step at the last call of GetsOn.
  uint64_t seen_step_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // WORKER_ISLAND_RUNNER_H_
