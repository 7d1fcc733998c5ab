// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/engine.h"

#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/merge.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "quantization/encoded_object.h"

namespace causeway {
namespace {

// How often leases and grace windows are looked at.
constexpr absl::Duration kTick = absl::Milliseconds(100);

// One for each fragment.
std::vector<OuterStepOptions> StepOptions(const v1::RunConfig& config,
                                          const v1::FragmentPlan& plan) {
  std::vector<OuterStepOptions> options;
  for (const v1::Fragment& fragment : plan.fragments()) {
    options.push_back(MakeOuterStepOptions(config, fragment));
  }
  return options;
}

ContributionRecord RecordOf(const v1::ContributionHeader& header,
                            ContributionFate fate, absl::Time at) {
  return {.fragment = header.fragment(),
          .base_version = header.base_version(),
          .island_id = header.identity().island_id(),
          .incarnation = header.identity().incarnation(),
          .tokens = header.tokens(),
          .inner_steps = header.inner_steps(),
          .digest = header.object().digest(),
          .fate = fate,
          .at = at};
}

}  // namespace

Engine::Engine(Options options, std::unique_ptr<StateDirectory> state,
               Coordinator::Options rules,
               std::vector<Coordinator::FragmentState> heads,
               std::vector<Member> members, CoordinatorHistory history,
               uint64_t staging_bytes)
    : options_(std::move(options)),
      run_id_(rules.run_id),
      started_at_(options_.now()),
      state_(std::move(state)),
      quarantine_(state_->path()),
      staging_(staging_bytes),
      step_options_(StepOptions(options_.config, rules.plan)),
      merge_pool_(options_.merge_threads),
      coordinator_(std::move(rules), std::move(heads), std::move(members),
                   started_at_, std::move(history)) {}

void Engine::StartThreads(Effects effects,
                          const std::vector<LedgerSum>& ledger) {
  {
    absl::MutexLock lock(&mu_);
    for (const LedgerSum& sum : ledger) {
      if (sum.fate == ContributionFate::kLate) continue;
      merged_token_values_ += static_cast<double>(sum.tokens) *
                              static_cast<double>(FragmentSize(sum.fragment));
    }
    const absl::Status persisted = Persist(effects);
    LOG_IF(ERROR, !persisted.ok()) << persisted;
  }
  ticker_ = std::thread([this] { TickLoop(); });
  merger_ = std::thread([this] { OuterStepLoop(); });
}

Engine::~Engine() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (ticker_.joinable()) ticker_.join();
  if (merger_.joinable()) merger_.join();
}

absl::StatusOr<v1::JoinResponse> Engine::Join(const v1::JoinRequest& request) {
  return Handle([&](Effects& effects) {
    mu_.AssertHeld();
    return coordinator_.Join(request, options_.now(), effects);
  });
}

absl::Status Engine::Heartbeat(const v1::SessionRequest& request) {
  return Handle([&](Effects& effects) {
    mu_.AssertHeld();
    return coordinator_.Heartbeat(request.identity(), request.progress(),
                                  options_.now(), effects);
  });
}

v1::SessionResponse Engine::View(const v1::IslandIdentity& identity) {
  absl::MutexLock lock(&mu_);
  return coordinator_.View(identity);
}

absl::StatusOr<v1::ContributeResponse> Engine::Offer(
    const v1::ContributionHeader& header) {
  absl::StatusOr<v1::ContributeResponse> response;
  {
    absl::MutexLock lock(&mu_);
    response = coordinator_.Offer(header, options_.now());
  }
  if (response.ok() && response->verdict() == v1::ContributeResponse::UPLOAD) {
    const v1::EncodedObject& object = header.object();
    ASSIGN_OR_RETURN(
        const uint64_t offset,
        staging_.Begin(KeyOf(header), object,
                       MaxEncodedBytes(SpecOf(object), object.size())));
    response->set_next_offset(offset);
  }
  return response;
}

absl::StatusOr<bool> Engine::Append(const ContributionKey& key,
                                    const Chunk& chunk) {
  bytes_received_ += chunk.size();
  return staging_.Append(key, chunk);
}

absl::StatusOr<v1::ContributeResponse> Engine::Complete(
    const v1::ContributionHeader& header) {
  const ContributionKey key = KeyOf(header);
  const absl::StatusOr<double> verified = staging_.Verify(key, header.object());
  // The rules decide what is to become of values that are not finite.
  if (!absl::IsOutOfRange(verified.status())) {
    RETURN_IF_ERROR(verified.status());
  }
  const double norm =
      verified.value_or(std::numeric_limits<double>::quiet_NaN());
  return Handle([&](Effects& effects) {
    mu_.AssertHeld();
    return coordinator_.Complete(header, norm, options_.now(), effects);
  });
}

absl::Status Engine::Leave(const v1::LeaveRequest& request) {
  return Handle([&](Effects& effects) {
    mu_.AssertHeld();
    return coordinator_.Leave(request, options_.now(), effects);
  });
}

absl::StatusOr<OpenedParameters> Engine::OpenParameters(
    const v1::FetchParametersRequest& request) {
  {
    absl::MutexLock lock(&mu_);
    RETURN_IF_ERROR(coordinator_.Check(request.identity()));
  }
  ASSIGN_OR_RETURN(
      const CommitRecord commit,
      state_->log().FindCommit(request.fragment(), request.version()));
  ASSIGN_OR_RETURN(
      StoredFragment stored,
      state_->fragments().OpenFragment(commit.file, run_id_, commit.head));
  auto owner = std::make_shared<const StoredFragment>(std::move(stored));
  return OpenedParameters{
      .head = commit.head, .bytes = owner->theta_bytes(), .owner = owner};
}

absl::StatusOr<OpenedUpdate> Engine::OpenUpdate(
    const v1::FetchUpdateRequest& request) {
  {
    absl::MutexLock lock(&mu_);
    RETURN_IF_ERROR(coordinator_.Check(request.identity()));
  }
  ASSIGN_OR_RETURN(
      const CommitRecord commit,
      state_->log().FindCommit(request.fragment(), request.from_version() + 1));
  absl::StatusOr<StoredUpdate> stored =
      state_->fragments().OpenUpdate(commit.update_file, run_id_, commit.head);
  // Who was merged stays known when the update is no longer kept. An island
  // that has begun to download has heard it.
  if (!stored.ok() &&
      (!absl::IsNotFound(stored.status()) || request.offset() > 0)) {
    return stored.status();
  }
  ASSIGN_OR_RETURN(const std::vector<ContributionRecord> merged,
                   state_->log().MergedContributions(request.fragment(),
                                                     request.from_version()));
  OpenedUpdate opened{.head = commit.head};
  for (const ContributionRecord& record : merged) {
    if (record.island_id != request.identity().island_id()) continue;
    if (record.digest != request.contribution_digest()) {
      opened.includes_other = true;
      continue;
    }
    opened.includes_island = true;
    opened.island_share = record.weight;
  }
  if (!stored.ok()) return opened;
  auto owner = std::make_shared<const StoredUpdate>(*std::move(stored));
  opened.object = owner->contents().object;
  opened.bytes = owner->contents().encoding;
  opened.owner = std::move(owner);
  return opened;
}

absl::StatusOr<bool> Engine::IsAwaited(const v1::FetchUpdateRequest& request) {
  absl::MutexLock lock(&mu_);
  RETURN_IF_ERROR(coordinator_.Check(request.identity()));
  const uint32_t fragment = request.fragment();
  return request.wait() && fragment < coordinator_.heads().size() &&
         coordinator_.heads()[fragment].head.version() ==
             request.from_version() &&
         request.from_version() <
             coordinator_.schedule().FinalVersion(fragment);
}

absl::Status Engine::Persist(Effects& effects) {
  const absl::Time now = options_.now();
  const auto append = [](auto& from, auto& to) {
    to.insert(to.end(), std::make_move_iterator(from.begin()),
              std::make_move_iterator(from.end()));
  };
  append(effects.joined, unwritten_.members);
  append(effects.ended, unwritten_.members);
  append(effects.changed, unwritten_.members);
  append(effects.accounts, unwritten_.accounts);
  // CarryOut needs the entries, too.
  unwritten_.quarantine.insert(unwritten_.quarantine.end(),
                               effects.quarantine.begin(),
                               effects.quarantine.end());
  if (effects.flags.has_value()) unwritten_.flags = std::move(effects.flags);
  for (const v1::ContributionHeader& header : effects.late) {
    unwritten_.contributions.push_back(
        RecordOf(header, ContributionFate::kLate, now));
  }
  for (CoordinatorEvent& event : effects.events) {
    LOG(INFO) << event.text;
    unwritten_.events.push_back({.time = now,
                                 .kind = std::move(event.kind),
                                 .island_id = std::move(event.island_id),
                                 .text = std::move(event.text)});
    effects.view_changed = true;
  }
  if (unwritten_.empty()) return absl::OkStatus();
  // What could not be written stays, and goes first the next time: nobody may
  // hear of a membership that a restart would not know.
  const absl::Status written = state_->log().Apply(unwritten_);
  if (!written.ok()) {
    // Whatever the reason, it is this machine's: islands go on and try again.
    return absl::UnavailableError(
        absl::StrCat("the coordinator cannot write its commit log: ",
                     std::string(written.message())));
  }
  unwritten_ = {};
  return absl::OkStatus();
}

void Engine::CarryOut(const Effects& effects) {
  KeepQuarantined(effects);
  for (const ContributionKey& key : effects.discarded) staging_.Discard(key);
  if (!effects.outer_steps.empty() || !effects.discarded.empty()) {
    absl::MutexLock lock(&mu_);
    for (const ContributionKey& key : effects.discarded) admitted_.erase(key);
    orders_.insert(orders_.end(), effects.outer_steps.begin(),
                   effects.outer_steps.end());
  }
  if (effects.view_changed) NotifyListeners();
}

void Engine::TickLoop() {
  while (true) {
    Effects effects;
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(absl::Condition(&stopping_), kTick)) return;
      coordinator_.Tick(options_.now(), effects);
      const absl::Status persisted = Persist(effects);
      LOG_IF_EVERY_N(ERROR, !persisted.ok(), 100)
          << "cannot write the commit log: " << persisted;
    }
    CarryOut(effects);
  }
}

void Engine::OuterStepLoop() {
  while (true) {
    OuterStepOrder order;
    {
      absl::MutexLock lock(&mu_);
      const auto due = [this] {
        mu_.AssertReaderHeld();
        return stopping_ || !orders_.empty();
      };
      mu_.Await(absl::Condition(&due));
      if (stopping_) return;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    RunOuterStep(order);
  }
}

void Engine::RunOuterStep(const OuterStepOrder& order) {
  const absl::Time begin = options_.now();
  absl::StatusOr<OuterStepOutcome> outcome = Merge(order);
  const absl::Time end = options_.now();
  Effects effects;
  {
    absl::MutexLock lock(&mu_);
    if (outcome.ok()) {
      outcome->duration = end - begin;
      ++outer_steps_;
      outer_step_time_ += outcome->duration;
      const double size = static_cast<double>(FragmentSize(order.fragment));
      for (const v1::ContributionHeader& header : order.contributions) {
        merged_token_values_ += static_cast<double>(header.tokens()) * size;
        merged_step_values_ += static_cast<double>(header.inner_steps()) * size;
      }
      coordinator_.OuterStepCommitted(order, *outcome, end, effects);
    } else {
      coordinator_.OuterStepFailed(order, outcome.status(), end, effects);
    }
    const absl::Status persisted = Persist(effects);
    LOG_IF(ERROR, !persisted.ok())
        << "cannot write the commit log: " << persisted;
  }
  if (outcome.ok()) {
    staging_.DiscardBefore(order.fragment, outcome->head.version());
  }
  CarryOut(effects);
}

absl::StatusOr<StagedEncoding> Engine::EncodingOf(const ContributionKey& key) {
  {
    absl::MutexLock lock(&mu_);
    const auto admitted = admitted_.find(key);
    if (admitted != admitted_.end()) return admitted->second;
  }
  return staging_.Get(key);
}

absl::StatusOr<OuterStepOutcome> Engine::Merge(const OuterStepOrder& order) {
  const v1::RunConfig& config = options_.config;
  const v1::SynchronizationConfig& sync = config.synchronization();
  ASSIGN_OR_RETURN(const StoredFragment stored,
                   state_->ReadHead(run_id_, order.fragment));
  const FragmentContents& before = stored.contents();

  std::vector<Effort> efforts;
  std::vector<StagedEncoding> encodings;
  for (const v1::ContributionHeader& header : order.contributions) {
    efforts.push_back(
        {.tokens = header.tokens(), .inner_steps = header.inner_steps()});
    ASSIGN_OR_RETURN(encodings.emplace_back(), EncodingOf(KeyOf(header)));
  }
  ASSIGN_OR_RETURN(const std::vector<float> shares,
                   MergeShares(config.outer_optimizer().weighting(), efforts));
  std::vector<MergeInput> inputs;
  for (size_t i = 0; i < encodings.size(); ++i) {
    inputs.push_back({.spec = UplinkSpec(sync),
                      .encoded = encodings[i].bytes,
                      .share = shares[i]});
  }
  LogBatch batch;
  ASSIGN_OR_RETURN(CommitRecord commit, StepAndStore(before, inputs));
  commit.participation = order.participation;
  if (config.storage().record_contributions()) {
    std::vector<absl::string_view> merged;
    for (const StagedEncoding& encoding : encodings) {
      merged.push_back(encoding.bytes);
    }
    RETURN_IF_ERROR(state_->RecordMerge(run_id_, config, commit,
                                        order.contributions, merged));
  }
  batch.commits.push_back(commit);
  batch.admitted = order.admitted;
  for (size_t i = 0; i < encodings.size(); ++i) {
    const v1::ContributionHeader& header = order.contributions[i];
    ContributionRecord& record = batch.contributions.emplace_back(
        RecordOf(header,
                 header.partial() ? ContributionFate::kPartial
                                  : ContributionFate::kMerged,
                 commit.committed_at));
    record.weight = shares[i];
    record.norm = order.norms[i];
  }
  RETURN_IF_ERROR(state_->log().Apply(batch));

  // Old files are only space; what cannot be removed now is removed later.
  const auto removed = state_->RemoveUnreferenced(
      config.storage().versions_kept(), config.storage().update_history());
  LOG_IF(WARNING, !removed.ok())
      << "cannot remove old versions: " << removed.status();
  return OuterStepOutcome{.head = commit.head,
                          .merged_norm = commit.merged_norm};
}

absl::StatusOr<CommitRecord> Engine::StepAndStore(
    const FragmentContents& before, absl::Span<const MergeInput> inputs) {
  const FragmentStore& store = state_->fragments();
  const OuterStepOptions& options = step_options_[before.head.fragment()];
  FragmentContents like = before;
  like.head.set_version(before.head.version() + 1);
  // The step writes straight into the new version's file.
  ASSIGN_OR_RETURN(NewFragment after, store.BeginFragment(like));
  std::string encoding(MaxEncodedBytes(options.downlink, before.theta.size()),
                       '\0');
  ASSIGN_OR_RETURN(const OuterStepSummary summary,
                   causeway::RunOuterStep(options,
                                          {.version = before.head.version(),
                                           .theta = before.theta,
                                           .momentum = before.momentum,
                                           .residual = before.residual,
                                           .gradient_sum = before.gradient_sum},
                                          inputs,
                                          {.theta = after.theta,
                                           .momentum = after.momentum,
                                           .residual = after.residual,
                                           .gradient_sum = after.gradient_sum,
                                           .update = absl::MakeSpan(encoding)},
                                          merge_pool_));
  CommitRecord commit{.merged_norm = summary.gradient_norm};
  ASSIGN_OR_RETURN(commit.file,
                   store.CommitFragment(std::move(after), commit.head));
  UpdateContents update{
      .run_id = run_id_,
      .head = commit.head,
      .object = DescribeOpen(options.downlink, before.theta.size()),
      .encoding = absl::string_view(encoding.data(), summary.update_bytes)};
  ASSIGN_OR_RETURN(commit.update_file, store.WriteUpdate(update));
  commit.committed_at = options_.now();
  return commit;
}

uint64_t Engine::FragmentSize(uint32_t fragment) const {
  return coordinator_.options()
      .plan.fragments(static_cast<int>(fragment))
      .size();
}

uint64_t Engine::AddListener(std::function<void()> listener) {
  absl::MutexLock lock(&listeners_mu_);
  listeners_.emplace(next_listener_, std::move(listener));
  return next_listener_++;
}

void Engine::RemoveListener(uint64_t id) {
  absl::MutexLock lock(&listeners_mu_);
  listeners_.erase(id);
}

void Engine::NotifyListeners() {
  absl::MutexLock lock(&listeners_mu_);
  for (const auto& [id, listener] : listeners_) listener();
}

v1::RunState Engine::run_state() {
  absl::MutexLock lock(&mu_);
  return coordinator_.run_state();
}

}  // namespace causeway
