// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/fragment_files.h"

#include "absl/strings/substitute.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

// Opens the newest snapshot that can be read, and returns its version.
absl::StatusOr<uint64_t> OpenNewest(
    absl::Span<const SnapshotRecord> snapshots,
    absl::FunctionRef<absl::Status(const SnapshotRecord& snapshot)> open) {
  absl::Status first = absl::NotFoundError("there is no snapshot");
  for (const SnapshotRecord& snapshot : snapshots) {
    const absl::Status opened = open(snapshot);
    if (opened.ok()) return snapshot.head.version();
    // The error of the newest snapshot is the most useful.
    if (&snapshot == &snapshots.front()) first = opened;
  }
  return first;
}

}  // namespace

uint64_t LastUnneededRecord(absl::Span<const SnapshotRecord> kept) {
  // If a snapshot is damaged, a start goes back to an older one.
  return kept.empty() ? 0 : kept.back().head.version();
}

absl::Status RestoreVersion(
    absl::Span<const SnapshotRecord> snapshots, uint64_t newest,
    absl::FunctionRef<absl::Status(const SnapshotRecord& snapshot)> open,
    absl::FunctionRef<absl::Status(uint64_t version)> repeat) {
  ASSIGN_OR_RETURN(uint64_t version, OpenNewest(snapshots, open));
  if (version > newest) {
    return absl::DataLossError(absl::Substitute(
        "there is a snapshot of version $0 of fragment $1, but the log has "
        "versions up to $2 only",
        version, snapshots.front().head.fragment(), newest));
  }
  while (version < newest) RETURN_IF_ERROR(repeat(++version));
  return absl::OkStatus();
}

}  // namespace causeway
