// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides which of a fragment's files a run still needs, and how to restore its
// newest version: from the newest readable snapshot, by repeating the recorded
// merges since then. Snapshots are given newest first.
//
// Pure rules: the files are the caller's.
#ifndef SERVER_RULES_FRAGMENT_FILES_H_
#define SERVER_RULES_FRAGMENT_FILES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/rules/log_batch.h"

namespace causeway {

// Returns the version up to which records of merges are no longer needed while
// the snapshots `kept` stay. 0 if there is none.
uint64_t LastUnneededRecord(absl::Span<const SnapshotRecord> kept);

// Brings a fragment to its newest committed version: opens snapshots until one
// can be read, then repeats the later merges.
//   NOT_FOUND  There is no snapshot.
//   DATA_LOSS  A snapshot is newer than the log.
// Also returns errors of `open` for the newest snapshot, and of `repeat`.
absl::Status RestoreVersion(
    absl::Span<const SnapshotRecord> snapshots, uint64_t newest,
    absl::FunctionRef<absl::Status(const SnapshotRecord& snapshot)> open,
    absl::FunctionRef<absl::Status(uint64_t version)> repeat);

}  // namespace causeway

#endif  // SERVER_RULES_FRAGMENT_FILES_H_
