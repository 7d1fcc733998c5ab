// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replay.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/substitute.h"
#include "common/checkpoint/initial_values.h"
#include "common/checksum.h"
#include "common/os/thread_pool.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "outer_optimizer/outer_step.h"
#include "server/buffer_pool.h"
#include "server/fragment_merge.h"
#include "server/storage/merge_store.h"

namespace causeway {
namespace {

class Replayer {
 public:
  Replayer(StateDirectory& state, RunRecord run)
      : state_(state), run_(std::move(run)) {}

  absl::StatusOr<ReplayResult> Replay(uint32_t fragment,
                                      ReplayProgress progress) {
    // A new snapshot may remove files between reading the log and opening them,
    // but not this many times in a row.
    constexpr int kAttempts = 5;
    absl::Status status;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      absl::StatusOr<ReplayResult> replay = TryReplay(fragment, progress);
      if (!absl::IsNotFound(replay.status())) return replay;
      status = replay.status();
    }
    return absl::FailedPreconditionError(status.message());
  }

 private:
  // NOT_FOUND if there is no version to begin with, or a file is no longer
  // there.
  absl::StatusOr<ReplayResult> TryReplay(uint32_t fragment,
                                         ReplayProgress progress) {
    ASSIGN_OR_RETURN(const std::vector<CommitRecord> newest,
                     state_.log().History(fragment, 1));
    const uint64_t last = newest.empty() ? 0 : newest[0].head.version();
    ASSIGN_OR_RETURN(StoredFragment current, OpenStart(fragment, last));
    const uint64_t first = current.contents().head.version();
    ReplayResult replay{
        .fragment = fragment, .first_version = first, .last_version = first};
    while (replay.last_version < last) {
      const uint64_t version = replay.last_version + 1;
      ASSIGN_OR_RETURN(const StoredMerge stored,
                       state_.merges().Open(fragment, version));
      ASSIGN_OR_RETURN(replay.difference,
                       DifferenceFromLog(state_.log(), stored.merge()));
      if (!replay.difference.empty()) break;
      ASSIGN_OR_RETURN(
          const MergedFragment merged_again,
          RepeatMerge(run_.plan, stored, current.contents(), memory_, pool_));
      replay.difference = Difference(stored.merge(), merged_again);
      if (!replay.difference.empty()) break;
      current = merged_again.after;
      replay.last_version = version;
      replay.contributions += stored.merge().contributions().size();
      progress(fragment, version - first, last - first);
    }
    return replay;
  }

  // Returns the oldest kept version after which every merge up to `head` is
  // recorded. NOT_FOUND if there is none.
  absl::StatusOr<StoredFragment> OpenStart(uint32_t fragment, uint64_t head) {
    uint64_t first = head;
    while (first > 0) {
      const absl::Status recorded =
          state_.merges().Open(fragment, first).status();
      if (absl::IsNotFound(recorded)) break;
      RETURN_IF_ERROR(recorded);
      --first;
    }
    for (uint64_t version = first; version < head || version == 0; ++version) {
      absl::StatusOr<StoredFragment> kept = StateAt(fragment, version);
      if (!absl::IsNotFound(kept.status())) return kept;
    }
    return absl::NotFoundError(absl::Substitute(
        "$0 keeps no version of fragment $1 since which all merges are "
        "recorded; set storage.record_contributions, and replay once a round "
        "is merged",
        state_.path(), fragment));
  }

  absl::StatusOr<StoredFragment> OpenKept(uint32_t fragment, uint64_t version) {
    ASSIGN_OR_RETURN(const std::vector<SnapshotRecord> snapshots,
                     state_.log().Snapshots(fragment, UINT32_MAX));
    for (const SnapshotRecord& snapshot : snapshots) {
      if (snapshot.head.version() != version) continue;
      return state_.fragments().OpenFragment(snapshot.file, run_.run_id,
                                             snapshot.head);
    }
    return absl::NotFoundError(
        absl::Substitute("$0 has no snapshot of version $1 of fragment $2",
                         state_.path(), version, fragment));
  }

  // Version 0 can be made from the seed; other versions need their file.
  absl::StatusOr<StoredFragment> StateAt(uint32_t fragment, uint64_t version) {
    if (version > 0 || run_.plan.from_checkpoint()) {
      return OpenKept(fragment, version);
    }
    const v1::Fragment& placed =
        run_.plan.fragments(static_cast<int>(fragment));
    std::vector<float> theta(placed.size());
    RETURN_IF_ERROR(
        InitialValues::FromSeed(MakeModelLayout(run_.config.model()),
                                run_.config.seed())
            .Read(placed, 0, absl::MakeSpan(theta)));
    ASSIGN_OR_RETURN(const CommitRecord commit,
                     state_.log().FindCommit(fragment, 0));
    if (Digest128(absl::MakeConstSpan(theta)) != commit.head.digest()) {
      return absl::FailedPreconditionError(absl::Substitute(
          "the initial parameters of fragment $0 are not those of the run: it "
          "was begun by another version of Causeway",
          fragment));
    }
    const auto initial = std::make_shared<const OuterState>(InitialOuterState(
        MakeOuterStepOptions(run_.config, placed), std::move(theta)));
    return StoredFragment(initial, {.run_id = run_.run_id,
                                    .head = commit.head,
                                    .theta = initial->theta,
                                    .momentum = initial->momentum,
                                    .residual = initial->residual,
                                    .gradient_sum = initial->gradient_sum});
  }

  StateDirectory& state_;
  const RunRecord run_;
  ThreadPool pool_{1};
  BufferPool memory_{UINT64_MAX};
};

}  // namespace

absl::Status ReplayRun(
    StateDirectory& state,
    absl::FunctionRef<void(const ReplayResult& replay)> replayed,
    ReplayProgress progress) {
  ASSIGN_OR_RETURN(RunRecord run, state.log().LoadRun());
  const auto fragments = static_cast<uint32_t>(run.plan.fragments_size());
  Replayer replayer(state, std::move(run));
  for (uint32_t fragment = 0; fragment < fragments; ++fragment) {
    ASSIGN_OR_RETURN(const ReplayResult replay,
                     replayer.Replay(fragment, progress));
    replayed(replay);
  }
  return absl::OkStatus();
}

}  // namespace causeway
