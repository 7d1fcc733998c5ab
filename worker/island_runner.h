// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island that starts again when its replica has diverged: gives up its
// parameters and its optimizer's state and joins as another process would, from
// the run's parameters. What it had handed in before stays with the
// coordinator.
#ifndef WORKER_ISLAND_RUNNER_H_
#define WORKER_ISLAND_RUNNER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "worker/island.h"
#include "worker/sync/coordinator_client.h"

namespace causeway {

class IslandRunner {
 public:
  struct Options {
    // A new client for each start.
    std::function<std::unique_ptr<CoordinatorClient>()> connect;
    // Options of an island that starts, with an instance_id of its own.
    std::function<Island::Options()> island;
    // Gives up what the island has kept of itself, before it starts again or
    // ends because it has diverged. May be null.
    std::function<absl::Status()> give_up = nullptr;
    // How often it may start again. One that always diverges has another
    // trouble: bad data, or a learning rate that is too high.
    int restarts = 3;
  };

  explicit IslandRunner(Options options) : options_(std::move(options)) {}

  // As Island::Run; OUT_OF_RANGE once it has diverged too often.
  absl::Status Run();

  // As Island's. Any thread.
  void RequestLeave(absl::string_view reason);
  void Stop();

 private:
  absl::Status RunOnce();

  const Options options_;
  absl::Mutex mu_;
  Island* island_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace causeway

#endif  // WORKER_ISLAND_RUNNER_H_
