// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Shows the progress of a long command:
//
//   1.25 GiB of 5.00 GiB (25 %), 320 MiB/s, 12 s left
#ifndef CLI_PROGRESS_H_
#define CLI_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace causeway {

struct ProgressEnvironment {
  std::function<absl::Time()> now;
  // If true, the output is a terminal, and one line is redrawn at most ten
  // times a second. Otherwise a line is written every ten seconds.
  bool terminal = false;
};

// Thread-safe.
class Progress {
 public:
  // Counts are shown with this unit, as "sequences"; "bytes" are shown as KiB,
  // MiB and so on.
  Progress(std::string unit, uint64_t total, ProgressEnvironment environment,
           std::ostream& out);

  // Erases the line on a terminal.
  ~Progress();

  void Add(uint64_t done);

 private:
  std::string Text(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string unit_;
  const uint64_t total_;
  const ProgressEnvironment environment_;
  std::ostream& out_;
  const absl::Time start_;
  absl::Mutex mu_;
  absl::Time shown_ ABSL_GUARDED_BY(mu_) = start_;
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // CLI_PROGRESS_H_
