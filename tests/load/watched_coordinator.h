// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A coordinator in a process of its own. Its memory and processor time are
// measured from outside, by the system.
#ifndef TESTS_LOAD_WATCHED_COORDINATOR_H_
#define TESTS_LOAD_WATCHED_COORDINATOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/run_config.pb.h"
#include "tests/end_to_end/process.h"

namespace causeway {

// Starts, watches and stops a coordinator. Thread-safe.
class WatchedCoordinator {
 public:
  // `programs` has server/causeway-coordinator; `directory` exists and takes
  // configuration, state and log. `arguments` follow the others; `launcher` is
  // a program, with its arguments, that starts the coordinator.
  static absl::StatusOr<std::unique_ptr<WatchedCoordinator>> Start(
      const std::string& programs, const std::string& directory,
      const v1::RunConfig& config,
      const std::vector<std::string>& arguments = {},
      const std::vector<std::string>& launcher = {});
  // Kills the process if it still runs.
  ~WatchedCoordinator();

  // Returns the coordinator's host:port.
  const std::string& address() const { return address_; }

  Process& process() { return *process_; }

  // Returns the processor time since the start in seconds, with a resolution of
  // a hundredth.
  double CpuSeconds() const;
  // AnonymousBytes returns the memory that is not mapped from files, which the
  // system cannot take back. TakePeak returns the most since its last call
  // (since the start at first), sampled every few milliseconds.
  uint64_t AnonymousBytes() const;
  uint64_t TakePeak() { return peak_.exchange(AnonymousBytes()); }

  // Ends the coordinator as an operator would. INTERNAL if it did not exit with
  // 0.
  absl::Status Stop();

 private:
  WatchedCoordinator(std::unique_ptr<Process> process, std::string address);

  const std::unique_ptr<Process> process_;
  const std::string address_;
  std::atomic<uint64_t> peak_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread watcher_;
};

}  // namespace causeway

#endif  // TESTS_LOAD_WATCHED_COORDINATOR_H_
