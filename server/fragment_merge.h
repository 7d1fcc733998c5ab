// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Merges in memory, from one version of a fragment to the next. The result
// depends, bit for bit, only on the version before, the contributions and the
// configuration. So the record of a merge (server/storage/merge_store.h) is as
// good as its result, and the newest version of a fragment follows from its
// newest snapshot and the merges recorded since.
//
// Thread-safe, except that two calls must not use a ThreadPool at the same
// time.
#ifndef SERVER_FRAGMENT_MERGE_H_
#define SERVER_FRAGMENT_MERGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "outer_optimizer/outer_step.h"
#include "proto/coordinator.pb.h"
#include "proto/record.pb.h"
#include "proto/run_config.pb.h"
#include "server/buffer_pool.h"
#include "server/storage/commit_log.h"
#include "server/storage/fragment_store.h"
#include "server/storage/merge_store.h"
#include "server/storage/state_directory.h"

namespace causeway {

struct MergedFragment {
  // The new version, with its digest.
  StoredFragment after;
  // The update that led to it.
  StoredUpdate update;
  // The merged pseudo-gradient in fp32, or empty, and the memory that holds it.
  absl::string_view gradient;
  PooledBuffer gradient_memory;
  OuterStepSummary summary;
  // Digests of the new version's other parts, of the update and the gradient.
  v1::RecordedMerge digests;
  absl::Duration duration;
};

// Returns contents of a fragment of `size` values; only the sizes of its
// vectors matter (FragmentStore::BeginFragment).
FragmentContents ContentsOfSize(const OuterStepOptions& options,
                                const std::string& run_id, uint64_t size);

// Makes one outer step on `before`, in memory from `memory`. The result has the
// gradient if `with_gradient`. Errors of RunOuterStep.
absl::StatusOr<MergedFragment> MergeFragment(
    const OuterStepOptions& options, const FragmentContents& before,
    absl::Span<const MergeInput> inputs, bool with_gradient, BufferPool& memory,
    ThreadPool& pool);

// Returns the record of a merge of `contributions`, in the order in which they
// were merged.
v1::RecordedMerge MakeMergeRecord(
    const MergedFragment& merged,
    absl::Span<const v1::ContributionHeader> contributions);

// Makes a recorded merge again. Errors of CheckCodecSpec and RunOuterStep.
absl::StatusOr<MergedFragment> RepeatMerge(const v1::FragmentPlan& plan,
                                           const StoredMerge& stored,
                                           const FragmentContents& before,
                                           BufferPool& memory,
                                           ThreadPool& pool);

// Returns how the result differs from the recorded one, for people; empty if
// all bits are the same.
std::string Difference(const v1::RecordedMerge& recorded,
                       const MergedFragment& repeated);

// Returns how the record differs from the log's entry of its version, for
// people; empty if both describe the same merge.
absl::StatusOr<std::string> DifferenceFromLog(CommitLog& log,
                                              const v1::RecordedMerge& merge);

// Merges that a start repeats: the bytes of their records, and the time that
// they took.
struct RecordedMerges {
  uint64_t bytes = 0;
  absl::Duration duration;

  void Add(const RecordedMerges& more) {
    bytes += more.bytes;
    duration += more.duration;
  }
};

struct RestoredFragment {
  // The newest committed version.
  StoredFragment head;
  // The merges that were repeated.
  RecordedMerges repeated;
};

// Called for each merge that is made again.
using MergeRepeated = absl::FunctionRef<absl::Status(
    const CommitRecord& commit, const MergedFragment& merged)>;

// Returns the newest committed version of a fragment: its newest readable
// snapshot, and the merges recorded since, all verified. DATA_LOSS if the
// snapshots, or the records after them, are damaged or missing; the message
// names a file.
absl::StatusOr<RestoredFragment> RestoreHead(
    StateDirectory& state, const RunRecord& run, uint32_t fragment,
    BufferPool& memory, ThreadPool& pool,
    MergeRepeated repeated = [](const CommitRecord&, const MergedFragment&) {
      return absl::OkStatus();
    });

}  // namespace causeway

#endif  // SERVER_FRAGMENT_MERGE_H_
