// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replay.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
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

struct Recorded {
  uint64_t first = 0;
  uint64_t last = 0;
};

class Replayer {
 public:
  Replayer(StateDirectory& state, RunRecord run)
      : state_(state), run_(std::move(run)) {}

  // Returns the versions between which all merges are recorded.
  absl::StatusOr<Recorded> FindRecorded(uint32_t fragment) {
    ASSIGN_OR_RETURN(const std::vector<CommitRecord> newest,
                     state_.log().History(fragment, 1));
    Recorded recorded;
    recorded.last = newest.empty() ? 0 : newest[0].head.version();
    ASSIGN_OR_RETURN(recorded.first, FirstRecorded(fragment, recorded.last));
    return recorded;
  }

  // Calls `merged` after each merge.
  absl::StatusOr<ReplayResult> Replay(uint32_t fragment, Recorded recorded,
                                      absl::FunctionRef<void()> merged) {
    ReplayResult replay{.fragment = fragment,
                        .first_version = recorded.first,
                        .last_version = recorded.first};
    ASSIGN_OR_RETURN(StoredFragment current, StateAt(fragment, recorded.first));
    while (replay.last_version < recorded.last) {
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
      merged();
    }
    return replay;
  }

 private:
  // Returns the version after which every merge up to `head` is recorded, and
  // whose own state is known.
  absl::StatusOr<uint64_t> FirstRecorded(uint32_t fragment, uint64_t head) {
    uint64_t first = head;
    while (first > 0) {
      const absl::Status recorded =
          state_.merges().Open(fragment, first).status();
      if (absl::IsNotFound(recorded)) break;
      RETURN_IF_ERROR(recorded);
      --first;
    }
    // Version 0 can be made from the seed; other versions need their file.
    for (uint64_t version = first; version < head || version == 0; ++version) {
      if (version == 0 && !run_.plan.from_checkpoint()) return 0;
      const absl::Status kept = OpenKept(fragment, version).status();
      if (kept.ok()) return version;
      if (!absl::IsNotFound(kept)) return kept;
    }
    return absl::FailedPreconditionError(absl::Substitute(
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

absl::StatusOr<std::vector<ReplayResult>> ReplayRun(
    StateDirectory& state, absl::FunctionRef<void(uint64_t merges)> progress) {
  ASSIGN_OR_RETURN(RunRecord run, state.log().LoadRun());
  const auto fragments = static_cast<uint32_t>(run.plan.fragments_size());
  Replayer replayer(state, std::move(run));
  std::vector<Recorded> recorded;
  uint64_t merges = 0;
  for (uint32_t fragment = 0; fragment < fragments; ++fragment) {
    ASSIGN_OR_RETURN(recorded.emplace_back(), replayer.FindRecorded(fragment));
    merges += recorded.back().last - recorded.back().first;
  }
  std::vector<ReplayResult> replays;
  for (uint32_t fragment = 0; fragment < fragments; ++fragment) {
    ASSIGN_OR_RETURN(replays.emplace_back(),
                     replayer.Replay(fragment, recorded[fragment],
                                     [&] { progress(merges); }));
  }
  return replays;
}

}  // namespace causeway
