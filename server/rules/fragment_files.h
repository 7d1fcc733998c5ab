// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Which of a fragment's files a run still needs, and how its newest version
// comes out of them: from the newest snapshot that can be read, by repeating
// the recorded merges since then. Snapshots are given newest first.
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

// Returns the version up to which nobody needs the records of merges any more,
// while the snapshots `kept` stay. 0 if there is none.
uint64_t LastUnneededRecord(absl::Span<const SnapshotRecord> kept);

// Brings a fragment to its newest committed version: opens snapshots until one
// can be read, and then repeats the merges that made the later versions.
//   NOT_FOUND  There is no snapshot.
//   DATA_LOSS  A snapshot is newer than the log.
// Otherwise errors of `open`, about the newest snapshot, and of `repeat`.
absl::Status RestoreVersion(
    absl::Span<const SnapshotRecord> snapshots, uint64_t newest,
    absl::FunctionRef<absl::Status(const SnapshotRecord& snapshot)> open,
    absl::FunctionRef<absl::Status(uint64_t version)> repeat);

}  // namespace causeway

#endif  // SERVER_RULES_FRAGMENT_FILES_H_
