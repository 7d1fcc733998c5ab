// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replay.h"

#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/checkpoint/initial_values.h"
#include "common/checksum.h"
#include "common/model_layout.h"
#include "common/status_macros.h"
#include "outer_optimizer/merge.h"
#include "outer_optimizer/outer_step.h"
#include "quantization/codec_config.h"
#include "server/storage/merge_store.h"

namespace causeway {
namespace {

// Empty for an empty vector, as in the record.
std::string DigestOf(absl::Span<const float> values) {
  return values.empty() ? "" : Digest128(values);
}

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
  absl::StatusOr<FragmentReplay> Replay(uint32_t fragment, Recorded recorded,
                                        absl::FunctionRef<void()> merged) {
    FragmentReplay replay{.fragment = fragment,
                          .first_version = recorded.first,
                          .last_version = recorded.first};
    ASSIGN_OR_RETURN(FragmentState current, StateAt(fragment, recorded.first));
    while (replay.last_version < recorded.last) {
      const uint64_t version = replay.last_version + 1;
      ASSIGN_OR_RETURN(const StoredMerge stored,
                       state_.merges().Open(fragment, version));
      ASSIGN_OR_RETURN(replay.difference, DifferenceFromLog(stored, version));
      if (!replay.difference.empty()) break;
      ASSIGN_OR_RETURN(OuterStepResult result,
                       MakeAgain(stored, fragment, current));
      replay.difference = Difference(stored.merge(), result);
      if (!replay.difference.empty()) break;
      current = std::move(result.state);
      replay.last_version = version;
      replay.contributions += stored.encodings().size();
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
    // Version 0 can be made anew from the seed; other versions need their file.
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
    ASSIGN_OR_RETURN(const CommitRecord commit,
                     state_.log().FindCommit(fragment, version));
    return state_.fragments().OpenFragment(commit.file, run_.run_id,
                                           commit.head);
  }

  absl::StatusOr<FragmentState> StateAt(uint32_t fragment, uint64_t version) {
    if (version > 0 || run_.plan.from_checkpoint()) {
      ASSIGN_OR_RETURN(const StoredFragment stored,
                       OpenKept(fragment, version));
      const FragmentContents& contents = stored.contents();
      return FragmentState{
          .theta = {contents.theta.begin(), contents.theta.end()},
          .momentum = {contents.momentum.begin(), contents.momentum.end()},
          .residual = {contents.residual.begin(), contents.residual.end()},
          .gradient_sum = {contents.gradient_sum.begin(),
                           contents.gradient_sum.end()},
          .merged_norms = {contents.merged_norms.begin(),
                           contents.merged_norms.end()},
          .version = version};
    }
    const v1::Fragment& placed =
        run_.plan.fragments(static_cast<int>(fragment));
    std::vector<float> theta(placed.size());
    RETURN_IF_ERROR(
        InitialValues::FromSeed(MakeModelLayout(run_.config.model()),
                                run_.config.seed())
            .Read(placed, absl::MakeSpan(theta)));
    ASSIGN_OR_RETURN(const CommitRecord commit,
                     state_.log().FindCommit(fragment, 0));
    if (Digest128(absl::MakeConstSpan(theta)) != commit.head.digest()) {
      return absl::FailedPreconditionError(absl::Substitute(
          "the initial parameters of fragment $0 are not those of the run: it "
          "was begun by another version of Causeway",
          fragment));
    }
    return InitialFragmentState(OptionsOf(run_.config, fragment),
                                std::move(theta));
  }

  OuterStepOptions OptionsOf(const v1::RunConfig& config, uint32_t fragment) {
    return MakeOuterStepOptions(
        config, run_.plan.fragments(static_cast<int>(fragment)));
  }

  // Returns how the record's merge differs from the commit log's; empty if they
  // are the same.
  absl::StatusOr<std::string> DifferenceFromLog(const StoredMerge& stored,
                                                uint64_t version) {
    const v1::RecordedMerge& merge = stored.merge();
    ASSIGN_OR_RETURN(const CommitRecord commit,
                     state_.log().FindCommit(merge.head().fragment(), version));
    if (merge.head().digest() != commit.head.digest()) {
      return absl::Substitute(
          "the record is of parameters $0, but $1 were committed",
          DigestToHex(merge.head().digest()),
          DigestToHex(commit.head.digest()));
    }
    ASSIGN_OR_RETURN(
        const std::vector<ContributionRecord> merged,
        state_.log().MergedContributions(merge.head().fragment(), version - 1));
    if (merged.size() != static_cast<size_t>(merge.contributions_size())) {
      return absl::Substitute(
          "the record has $0 contributions, but $1 were merged",
          merge.contributions_size(), merged.size());
    }
    for (size_t i = 0; i < merged.size(); ++i) {
      const v1::ContributionHeader& header =
          merge.contributions(static_cast<int>(i));
      if (merged[i].island_id != header.identity().island_id() ||
          merged[i].digest != header.object().digest() ||
          merged[i].tokens != header.tokens()) {
        return absl::Substitute(
            "the record has another contribution of $0 than that of $1 which "
            "was merged",
            header.identity().island_id(), merged[i].island_id);
      }
    }
    return "";
  }

  absl::StatusOr<OuterStepResult> MakeAgain(const StoredMerge& stored,
                                            uint32_t fragment,
                                            const FragmentState& before) {
    const v1::RunConfig& config = stored.config();
    std::vector<Effort> efforts;
    for (const v1::ContributionHeader& header :
         stored.merge().contributions()) {
      efforts.push_back(
          {.tokens = header.tokens(), .inner_steps = header.inner_steps()});
    }
    ASSIGN_OR_RETURN(
        const std::vector<float> shares,
        MergeShares(config.outer_optimizer().weighting(), efforts));
    std::vector<MergeInput> inputs;
    for (size_t i = 0; i < shares.size(); ++i) {
      inputs.push_back({.spec = UplinkSpec(config.synchronization()),
                        .encoded = stored.encodings()[i],
                        .share = shares[i]});
    }
    return RunOuterStep(OptionsOf(config, fragment), before, inputs);
  }

  static std::string Difference(const v1::RecordedMerge& merge,
                                const OuterStepResult& result) {
    const struct {
      const char* name;
      const std::string& recorded;
      std::string replayed;
    } parts[] = {
        {"parameters", merge.head().digest(), DigestOf(result.state.theta)},
        {"momentum", merge.momentum_digest(), DigestOf(result.state.momentum)},
        {"residual", merge.residual_digest(), DigestOf(result.state.residual)},
        {"gradient sum", merge.gradient_sum_digest(),
         DigestOf(result.state.gradient_sum)},
        {"update", merge.update_digest(), Digest128(result.update)},
    };
    std::string difference;
    for (const auto& part : parts) {
      if (part.recorded == part.replayed) continue;
      absl::StrAppend(&difference, difference.empty() ? "" : "; ", part.name,
                      ": committed ", DigestToHex(part.recorded), ", replayed ",
                      DigestToHex(part.replayed));
    }
    return difference;
  }

  StateDirectory& state_;
  const RunRecord run_;
};

}  // namespace

absl::StatusOr<std::vector<FragmentReplay>> ReplayRun(
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
  std::vector<FragmentReplay> replays;
  for (uint32_t fragment = 0; fragment < fragments; ++fragment) {
    ASSIGN_OR_RETURN(replays.emplace_back(),
                     replayer.Replay(fragment, recorded[fragment],
                                     [&] { progress(merges); }));
  }
  return replays;
}

}  // namespace causeway
