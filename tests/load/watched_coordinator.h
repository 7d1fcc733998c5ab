// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A coordinator in a process of its own, whose memory and processor time are
// watched from outside: what it costs is what the system says it costs.
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

// Thread-safe.
class WatchedCoordinator {
 public:
  // `programs` has server/causeway-coordinator; `directory` exists and takes
  // configuration, state and log. `arguments` are added to the others;
  // `launcher` is a program, with its arguments, that starts the coordinator.
  static absl::StatusOr<std::unique_ptr<WatchedCoordinator>> Start(
      const std::string& programs, const std::string& directory,
      const v1::RunConfig& config,
      const std::vector<std::string>& arguments = {},
      const std::vector<std::string>& launcher = {});
  // Kills it if it still runs.
  ~WatchedCoordinator();

  // host:port.
  const std::string& address() const { return address_; }

  Process& process() { return *process_; }

  // Processor time since its start, in seconds; counted in hundredths.
  double CpuSeconds() const;
  // Memory that is not mapped from files, which is what the system cannot take
  // back: now, and the most since the last call of TakePeak (the start at
  // first), looked at every few milliseconds.
  uint64_t AnonymousBytes() const;
  uint64_t TakePeak() { return peak_.exchange(AnonymousBytes()); }

  // Ends it as an operator would. INTERNAL: it did not end with 0.
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
