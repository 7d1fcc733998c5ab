// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Repeats the recorded merges of a run on one thread, and compares every bit of
// the results with what the coordinator committed: parameters and update of
// every version, momentum, residual and gradient sum.
//
// A merge needs only the state before it, so the first version that differs
// shows which merge went wrong. server/storage/merge_store.h has the records.
#ifndef SERVER_REPLAY_H_
#define SERVER_REPLAY_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/storage/state_directory.h"

namespace causeway {

struct ReplayResult {
  uint32_t fragment = 0;
  // The version that the replay began with: 0 from the seed, or the oldest one
  // whose file is kept and after which every merge was recorded.
  uint64_t first_version = 0;
  // The newest version that is the same.
  uint64_t last_version = 0;
  uint64_t contributions = 0;
  // Says how the next version differs; empty if it does not.
  std::string difference;
};

// Called after each merge of a fragment with its number, from 1, and that of
// the last one. Begins again with 1 if the replay of the fragment does.
using ReplayProgress =
    absl::FunctionRef<void(uint32_t fragment, uint64_t merge, uint64_t merges)>;

// Calls `replayed` with the result of each fragment, in order, as soon as it is
// there. The replay of a fragment ends at its first difference; other fragments
// continue.
//
// The coordinator may be running. If it removes files of a fragment before they
// are opened, the replay of the fragment begins again with those that are there
// now.
//   FAILED_PRECONDITION  A fragment has no version to begin with, because its
//                        merges were not recorded; or each time its files were
//                        removed before they were opened.
//   DATA_LOSS            A file that is needed is damaged.
absl::Status ReplayRun(
    StateDirectory& state,
    absl::FunctionRef<void(const ReplayResult& replay)> replayed,
    ReplayProgress progress = [](uint32_t, uint64_t, uint64_t) {});

}  // namespace causeway

#endif  // SERVER_REPLAY_H_
