// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/fragment_merge.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <future>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "common/as_bytes.h"
#include "common/checksum.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/merge.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "quantization/encoded_object.h"
#include "server/rules/fragment_files.h"

namespace causeway {
namespace {

// The parts of a state begin at multiples of this number of bytes, so that the
// step may write them past the caches.
constexpr size_t kAlignment = 64;

size_t Padded(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The state of a fragment that is being made, in one piece of memory.
struct NewState {
  OuterStepOutput parts;
  PooledBuffer memory;
};

NewState TakeState(const FragmentContents& before, BufferPool& memory) {
  NewState state;
  OuterStepOutput& parts = state.parts;
  const std::array<std::pair<absl::Span<float>*, size_t>, 4> sizes = {{
      {&parts.theta, before.theta.size()},
      {&parts.momentum, before.momentum.size()},
      {&parts.residual, before.residual.size()},
      {&parts.gradient_sum, before.gradient_sum.size()},
  }};
  size_t bytes = 0;
  for (const auto& [part, values] : sizes) {
    bytes += Padded(values * sizeof(float));
  }
  state.memory = memory.Take(bytes);
  char* next = state.memory.bytes.data();
  for (const auto& [part, values] : sizes) {
    *part = {reinterpret_cast<float*>(next), values};
    next += Padded(values * sizeof(float));
  }
  return state;
}

// Sets the digests in parallel, because each reads a whole vector. An empty
// vector has none.
void DigestParts(const FragmentContents& after, absl::string_view update,
                 absl::string_view gradient, v1::RecordedMerge& digests,
                 ThreadPool& pool) {
  const std::array<std::pair<absl::string_view, std::string*>, 6> parts = {{
      {AsStringView(after.theta), digests.mutable_head()->mutable_digest()},
      {AsStringView(after.momentum), digests.mutable_momentum_digest()},
      {AsStringView(after.residual), digests.mutable_residual_digest()},
      {AsStringView(after.gradient_sum), digests.mutable_gradient_sum_digest()},
      {gradient, digests.mutable_gradient_digest()},
      {update, digests.mutable_update_digest()},
  }};
  std::atomic<size_t> next = 0;
  pool.Run([&](int) {
    for (size_t i = next++; i < parts.size(); i = next++) {
      const auto& [bytes, digest] = parts[i];
      *digest = bytes.empty() ? "" : Digest128(bytes);
    }
  });
}

// Opens one of a fragment's snapshots, of which `newest` is the newest.
absl::StatusOr<StoredFragment> OpenSnapshot(StateDirectory& state,
                                            const RunRecord& run,
                                            const SnapshotRecord& snapshot,
                                            const SnapshotRecord& newest) {
  const v1::FragmentHead& head = snapshot.head;
  if (head.version() != newest.head.version()) {
    // The merges since an older snapshot must be recorded.
    RETURN_IF_ERROR(
        state.merges().Size(head.fragment(), head.version() + 1).status());
    LOG(WARNING) << "going back to " << snapshot.file
                 << " and repeating more merges, as " << newest.file
                 << " cannot be read";
  }
  return state.fragments().OpenFragment(snapshot.file, run.run_id, head);
}

// Reads the records of a fragment's consecutive versions. Another thread reads
// one ahead, because that waits for the disk and verifies all bytes.
class RecordReader {
 public:
  // The last version is `last`.
  RecordReader(const MergeStore& merges, uint32_t fragment, uint64_t last)
      : merges_(merges), fragment_(fragment), last_(last) {}

  absl::StatusOr<StoredMerge> Read(uint64_t version) {
    if (!next_.valid()) Begin(version);
    absl::StatusOr<StoredMerge> read = next_.get();
    if (version < last_) Begin(version + 1);
    return read;
  }

 private:
  void Begin(uint64_t version) {
    next_ = std::async(std::launch::async, [this, version] {
      return merges_.Open(fragment_, version);
    });
  }

  const MergeStore& merges_;
  const uint32_t fragment_;
  const uint64_t last_;
  std::future<absl::StatusOr<StoredMerge>> next_;
};

// Repeats the recorded merge that made `commit` from the version in `restored`.
absl::StatusOr<MergedFragment> RepeatCommit(
    StateDirectory& state, const RunRecord& run, const CommitRecord& commit,
    RecordReader& records, RestoredFragment& restored, BufferPool& memory,
    ThreadPool& pool) {
  const uint32_t fragment = commit.head.fragment();
  const uint64_t version = commit.head.version();
  const Clock now = SteadyWallClock();
  const absl::Time begin = now();
  ASSIGN_OR_RETURN(const StoredMerge stored, records.Read(version));
  ASSIGN_OR_RETURN(std::string difference,
                   DifferenceFromLog(state.log(), stored.merge()));
  ASSIGN_OR_RETURN(const uint64_t bytes,
                   state.merges().Size(fragment, version));
  std::optional<MergedFragment> merged;
  if (difference.empty()) {
    ASSIGN_OR_RETURN(
        merged,
        RepeatMerge(run.plan, stored, restored.head.contents(), memory, pool));
    difference = Difference(stored.merge(), *merged);
  }
  restored.repeated.Add({.bytes = bytes, .duration = now() - begin});
  if (difference.empty()) return *std::move(merged);
  return absl::DataLossError(
      absl::Substitute("$0: the recorded merge to version $1 of fragment $2 is "
                       "not the committed one: $3; if another build of the "
                       "coordinator committed it, start that build once more "
                       "and end it with SIGTERM; else the disk, the memory or "
                       "the processor is at fault, and `causeway replay` tells "
                       "more",
                       state.path(), version, fragment, difference));
}

// Logs how fast the merges to the restored version were repeated.
void LogRate(const RestoredFragment& restored, uint64_t merges) {
  const FragmentContents& head = restored.head.contents();
  const double seconds = absl::ToDoubleSeconds(restored.repeated.duration);
  const double values =
      static_cast<double>(merges) * static_cast<double>(head.theta.size());
  LOG(INFO) << absl::StrFormat(
      "repeated %d merges of fragment %d in %.1f s, %.0f million values/s",
      merges, head.head.fragment(), seconds, values / seconds / 1e6);
}

absl::StatusOr<RestoredFragment> TryRestore(
    StateDirectory& state, const RunRecord& run, uint32_t fragment,
    BufferPool& memory, ThreadPool& pool, MergeRepeated repeated) {
  ASSIGN_OR_RETURN(const std::vector<CommitRecord> newest,
                   state.log().History(fragment, 1));
  if (newest.empty()) {
    return absl::NotFoundError(absl::Substitute(
        "$0 has no committed version of fragment $1", state.path(), fragment));
  }
  const uint64_t last = newest[0].head.version();
  ASSIGN_OR_RETURN(
      const std::vector<SnapshotRecord> snapshots,
      state.log().Snapshots(fragment, run.config.storage().versions_kept()));
  std::optional<RestoredFragment> restored;
  uint64_t first = last;
  RecordReader records(state.merges(), fragment, last);
  const auto open = [&](const SnapshotRecord& snapshot) -> absl::Status {
    ASSIGN_OR_RETURN(StoredFragment opened,
                     OpenSnapshot(state, run, snapshot, snapshots[0]));
    LOG_IF(INFO, snapshot.head.version() < last)
        << "repeating the merges of fragment " << fragment << " after version "
        << snapshot.head.version() << " up to " << last;
    first = snapshot.head.version();
    restored.emplace(RestoredFragment{.head = std::move(opened)});
    return absl::OkStatus();
  };
  const auto repeat = [&](uint64_t version) -> absl::Status {
    ASSIGN_OR_RETURN(const CommitRecord commit,
                     state.log().FindCommit(fragment, version));
    ASSIGN_OR_RETURN(
        MergedFragment merged,
        RepeatCommit(state, run, commit, records, *restored, memory, pool));
    RETURN_IF_ERROR(repeated(commit, merged));
    restored->head = std::move(merged.after);
    LOG_EVERY_T(INFO, 10) << "repeated the merge to version " << version
                          << " of " << last << " of fragment " << fragment;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RestoreVersion(snapshots, last, open, repeat));
  if (first < last) LogRate(*restored, last - first);
  return *std::move(restored);
}

}  // namespace

FragmentContents ContentsOfSize(const OuterStepOptions& options,
                                const std::string& run_id, uint64_t size) {
  const auto values = [size](bool is_there) {
    return absl::MakeConstSpan(static_cast<const float*>(nullptr),
                               is_there ? size : 0);
  };
  return {.run_id = run_id,
          .theta = values(true),
          .momentum = values(HasMomentum(options)),
          .residual = values(HasResidual(options)),
          .gradient_sum = values(HasGradientSum(options))};
}

absl::StatusOr<MergedFragment> MergeFragment(
    const OuterStepOptions& options, const FragmentContents& before,
    absl::Span<const MergeInput> inputs, bool with_gradient, BufferPool& memory,
    ThreadPool& pool) {
  const Clock now = SteadyWallClock();
  const absl::Time begin = now();
  NewState state = TakeState(before, memory);
  const size_t values = before.theta.size();
  PooledBuffer update = memory.Take(MaxEncodedBytes(options.downlink, values));
  PooledBuffer gradient =
      memory.Take(with_gradient ? values * sizeof(float) : 0);
  state.parts.update = update.bytes;
  if (with_gradient) {
    state.parts.gradient = {reinterpret_cast<float*>(gradient.bytes.data()),
                            values};
  }
  ASSIGN_OR_RETURN(OuterStepSummary summary,
                   RunOuterStep(options,
                                {.version = before.head.version(),
                                 .theta = before.theta,
                                 .momentum = before.momentum,
                                 .residual = before.residual,
                                 .gradient_sum = before.gradient_sum},
                                inputs, state.parts, pool));
  FragmentContents after{.run_id = before.run_id,
                         .head = before.head,
                         .theta = state.parts.theta,
                         .momentum = state.parts.momentum,
                         .residual = state.parts.residual,
                         .gradient_sum = state.parts.gradient_sum};
  after.head.set_version(before.head.version() + 1);
  UpdateContents change{
      .run_id = before.run_id,
      .object = DescribeOpen(options.downlink, values),
      .encoding = {update.bytes.data(), summary.update_bytes}};
  const absl::string_view merged(gradient.bytes.data(), gradient.bytes.size());
  v1::RecordedMerge digests;
  *digests.mutable_head() = after.head;
  DigestParts(after, change.encoding, merged, digests, pool);
  after.head = digests.head();
  change.head = digests.head();
  change.object.set_encoded_bytes(summary.update_bytes);
  change.object.set_digest(digests.update_digest());
  return MergedFragment{
      .after = StoredFragment(std::move(state.memory.owner), std::move(after)),
      .update = StoredUpdate(std::move(update.owner), std::move(change)),
      .gradient = merged,
      .gradient_memory = std::move(gradient),
      .summary = std::move(summary),
      .digests = std::move(digests),
      .duration = now() - begin};
}

v1::RecordedMerge MakeMergeRecord(
    const MergedFragment& merged,
    absl::Span<const v1::ContributionHeader> contributions) {
  v1::RecordedMerge record = merged.digests;
  record.mutable_contributions()->Assign(contributions.begin(),
                                         contributions.end());
  return record;
}

absl::StatusOr<MergedFragment> RepeatMerge(const v1::FragmentPlan& plan,
                                           const StoredMerge& stored,
                                           const FragmentContents& before,
                                           BufferPool& memory,
                                           ThreadPool& pool) {
  const v1::RunConfig& config = stored.config();
  const auto& fragment =
      plan.fragments(static_cast<int>(before.head.fragment()));
  OuterStepOptions options = MakeOuterStepOptions(config, fragment);
  RETURN_IF_ERROR(CheckCodecSpec(options.downlink));
  if (!stored.merge().gradient_digest().empty()) {
    options.tensor_merge = {};
    const MergeInput gradient = {.spec = {.format = v1::FP32},
                                 .encoded = stored.encodings()[0],
                                 .share = 1};
    return MergeFragment(options, before, {gradient}, /*with_gradient=*/false,
                         memory, pool);
  }
  std::vector<Effort> efforts;
  for (const v1::ContributionHeader& header : stored.merge().contributions()) {
    efforts.push_back(
        {.tokens = header.tokens(), .inner_steps = header.inner_steps()});
  }
  const std::vector<float> shares =
      MergeShares(config.outer_optimizer().weighting(), efforts);
  std::vector<MergeInput> inputs;
  for (size_t i = 0; i < shares.size(); ++i) {
    inputs.push_back({.spec = UplinkSpec(config.synchronization()),
                      .encoded = stored.encodings()[i],
                      .share = shares[i]});
  }
  return MergeFragment(options, before, inputs, /*with_gradient=*/false, memory,
                       pool);
}

std::string Difference(const v1::RecordedMerge& recorded,
                       const MergedFragment& repeated) {
  const v1::RecordedMerge& made = repeated.digests;
  const struct {
    const char* name;
    const std::string& recorded;
    const std::string& made;
  } parts[] = {
      {"parameters", recorded.head().digest(), made.head().digest()},
      {"momentum", recorded.momentum_digest(), made.momentum_digest()},
      {"residual", recorded.residual_digest(), made.residual_digest()},
      {"gradient sum", recorded.gradient_sum_digest(),
       made.gradient_sum_digest()},
      {"update", recorded.update_digest(), made.update_digest()},
  };
  std::string difference;
  for (const auto& part : parts) {
    if (part.recorded == part.made) continue;
    absl::StrAppend(&difference, difference.empty() ? "" : "; ", part.name,
                    ": committed ", DigestToHex(part.recorded), ", replayed ",
                    DigestToHex(part.made));
  }
  return difference;
}

absl::StatusOr<std::string> DifferenceFromLog(CommitLog& log,
                                              const v1::RecordedMerge& merge) {
  const v1::FragmentHead& head = merge.head();
  ASSIGN_OR_RETURN(const CommitRecord commit,
                   log.FindCommit(head.fragment(), head.version()));
  if (head.digest() != commit.head.digest()) {
    return absl::Substitute(
        "the record is of parameters $0, but $1 were committed",
        DigestToHex(head.digest()), DigestToHex(commit.head.digest()));
  }
  ASSIGN_OR_RETURN(
      const std::vector<ContributionRecord> merged,
      log.MergedContributions(head.fragment(), head.version() - 1));
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
          "the record has another contribution of $0 than the merged one of $1",
          header.identity().island_id(), merged[i].island_id);
    }
  }
  return "";
}

absl::StatusOr<RestoredFragment> RestoreHead(
    StateDirectory& state, const RunRecord& run, uint32_t fragment,
    BufferPool& memory, ThreadPool& pool, MergeRepeated repeated) {
  // Beside a coordinator, a new snapshot may remove files between reading the
  // log and opening them, but not this many times in a row.
  const int attempts = state.is_held() ? 1 : 5;
  absl::Status status;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    absl::StatusOr<RestoredFragment> restored =
        TryRestore(state, run, fragment, memory, pool, repeated);
    if (!absl::IsNotFound(restored.status())) return restored;
    status = restored.status();
  }
  return absl::DataLossError(
      absl::Substitute("$0 lacks what fragment $1 is made of: $2", state.path(),
                       fragment, status.message()));
}

}  // namespace causeway
