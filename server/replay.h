// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes the recorded merges of a run again, on one thread, and compares every
// bit that they led to with what the coordinator committed: parameters and
// update of every version, and momentum, residual and gradient sum.
//
// A merge needs nothing but the state before it, so the first version that
// differs names the merge that went wrong. (server/storage/merge_store.h)
#ifndef SERVER_REPLAY_H_
#define SERVER_REPLAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/storage/state_directory.h"

namespace causeway {

// What became of one fragment.
struct FragmentReplay {
  uint32_t fragment = 0;
  // From where it was replayed: 0, or the oldest version whose file is kept and
  // since which everything was recorded.
  uint64_t first_version = 0;
  // The newest version that came out the same.
  uint64_t last_version = 0;
  uint64_t contributions = 0;
  // In what the next version differs, for people; empty if none does.
  std::string difference;
};

// By fragment. A fragment with a difference is not followed beyond it, the
// others are. The coordinator may be running.
//   FAILED_PRECONDITION  a fragment has no version to begin with: its merges
//                        were not recorded.
//   DATA_LOSS            a file that is needed is damaged.
absl::StatusOr<std::vector<FragmentReplay>> ReplayRun(StateDirectory& state);

}  // namespace causeway

#endif  // SERVER_REPLAY_H_
