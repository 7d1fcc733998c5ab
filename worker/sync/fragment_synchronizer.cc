// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/fragment_synchronizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/mixing.h"
#include "quantization/codec_config.h"

namespace causeway {

FragmentSynchronizer::FragmentSynchronizer(
    Options options, absl::Span<const v1::FragmentHead> heads,
    absl::Span<const float> parameters, CoordinatorClient* client,
    IslandSession* session)
    : options_(std::move(options)), session_(session) {
  const v1::SynchronizationConfig& config = options_.config;
  for (uint32_t fragment = 0; fragment < options_.map.fragments(); ++fragment) {
    std::vector<float> anchor(options_.map.size(fragment));
    options_.map.Gather(fragment, parameters, absl::MakeSpan(anchor));
    Fragment& added = fragments_.emplace_back();
    if (config.eager_updates() && options_.schedule.overlap_steps() > 0) {
      added.eager.emplace(options_.outer_optimizer, config.mixing(),
                          anchor.size());
    }
    if (!options_.restored.empty()) {
      const v1::IslandCheckpoint::Fragment& restored =
          options_.restored[fragment];
      added.window = {restored.tokens(), restored.inner_steps()};
      added.forgotten = {restored.sent_tokens(), restored.sent_inner_steps()};
    }
    added.link = std::make_unique<FragmentLink>(
        FragmentLink::Options{
            .fragment = fragment,
            .uplink = UplinkSpec(config),
            .uplink_options =
                UplinkOptions(config, options_.rounding_seed + fragment),
            .error_feedback = static_cast<float>(config.error_feedback()),
            .downlink = DownlinkSpec(config),
            .restored = !options_.restored.empty(),
            .seed = options_.seed,
            .snapshots = &snapshots_},
        heads[fragment], std::move(anchor), client, session);
  }
}

absl::StatusOr<FragmentSynchronizer::Outcome> FragmentSynchronizer::AfterStep(
    uint64_t step, uint64_t tokens, absl::Span<float> parameters) {
  const SyncSchedule& schedule = options_.schedule;
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    Fragment& fragment = fragments_[id];
    RETURN_IF_ERROR(fragment.link->status());
    fragment.window.tokens += tokens;
    fragment.window.inner_steps += tokens > 0 ? 1 : 0;
    // An update that none of our contributions waits for is a rebase, which may
    // happen at any step; ours is applied at its step, so that what training
    // sees does not depend on the link's speed.
    if (fragment.link->ready() &&
        (!fragment.link->in_flight() || step >= fragment.apply_step)) {
      Apply(id, parameters);
    }
  }
  if (step >= schedule.total_steps()) return Finish(parameters);

  for (const SyncSchedule::Send& send : schedule.SendsAt(step)) {
    Fragment& fragment = fragments_[send.fragment];
    // A contribution builds on the newest version: catch up first.
    while (fragment.link->in_flight() ||
           NewestVersion(session_->view(), send.fragment) >
               fragment.link->version()) {
      ASSIGN_OR_RETURN(const bool applied,
                       AwaitAndApply(send.fragment, parameters));
      if (!applied) return Outcome{.step = step, .finished = true};
    }
    // What was caught up with may have been this very round.
    if (fragment.link->version() >= send.version) continue;
    Send(send.fragment, parameters);
    fragment.apply_step = schedule.ApplyStep(step);
    if (fragment.eager.has_value()) {
      fragment.eager->Begin(fragment.link->anchor(),
                            options_.map.segments(send.fragment), parameters);
      changed_ = true;
    }
  }
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    if (!IsOverdue(fragments_[id], step)) continue;
    ASSIGN_OR_RETURN(const bool applied, AwaitAndApply(id, parameters));
    if (!applied) return Outcome{.step = step, .finished = true};
  }

  Outcome outcome{.step = step};
  if (std::exchange(rebased_, false)) {
    std::vector<uint64_t> versions;
    for (const Fragment& fragment : fragments_) {
      versions.push_back(fragment.link->version());
    }
    outcome.step = schedule.ClampToVersions(step, versions);
  }
  outcome.finished = RunIsOver(session_->view());
  return outcome;
}

absl::StatusOr<FragmentSynchronizer::Outcome> FragmentSynchronizer::Finish(
    absl::Span<float> parameters) {
  const SyncSchedule& schedule = options_.schedule;
  bool settled = false;
  while (!settled) {
    // All at once, so that the last rounds of all fragments overlap.
    for (uint32_t id = 0; id < fragments_.size(); ++id) {
      const Fragment& fragment = fragments_[id];
      if (!fragment.link->in_flight() && fragment.window.tokens > 0 &&
          fragment.link->version() < schedule.FinalVersion(id)) {
        Send(id, parameters);
      }
    }
    settled = true;
    for (uint32_t id = 0; id < fragments_.size(); ++id) {
      if (fragments_[id].link->version() >= schedule.FinalVersion(id)) continue;
      settled = false;
      ASSIGN_OR_RETURN(const bool applied, AwaitAndApply(id, parameters));
      if (!applied) break;
    }
  }
  return Outcome{.step = schedule.total_steps(), .finished = true};
}

bool FragmentSynchronizer::MustTrain(uint64_t step) const {
  for (const SyncSchedule::Send& send : options_.schedule.SendsAt(step)) {
    const Fragment& fragment = fragments_[send.fragment];
    if (fragment.window.tokens == fragment.sent.tokens) return true;
  }
  return false;
}

absl::Status FragmentSynchronizer::HandIn(absl::Span<float> parameters,
                                          absl::Time deadline) {
  while (true) {
    // Taken first: what happens from here on wakes the wait below.
    const IslandView view = session_->view();
    if (view.stopping) return absl::CancelledError("the island is stopping");
    RETURN_IF_ERROR(view.failure);
    bool done = true;
    for (uint32_t id = 0; id < fragments_.size(); ++id) {
      ASSIGN_OR_RETURN(const bool handed_in,
                       HandInFragment(id, view, parameters));
      done &= handed_in;
    }
    if (done || RunIsOver(view)) return absl::OkStatus();
    const absl::Duration left = deadline - options_.now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          "not everything trained could be handed in in time");
    }
    session_->AwaitChange(view.generation,
                          std::min(left, absl::Milliseconds(200)));
  }
}

absl::StatusOr<bool> FragmentSynchronizer::HandInFragment(
    uint32_t id, const IslandView& view, absl::Span<float> parameters) {
  Fragment& fragment = fragments_[id];
  RETURN_IF_ERROR(fragment.link->status());
  if (fragment.link->ready()) Apply(id, parameters);
  if (fragment.link->version() >= options_.schedule.FinalVersion(id)) {
    return true;
  }
  if (!fragment.link->in_flight()) {
    if (fragment.window.tokens == 0) return true;
    // A contribution builds on the newest version.
    if (NewestVersion(view, id) > fragment.link->version()) return false;
    Send(id, parameters, /*partial=*/true);
  }
  return fragment.link->accepted() &&
         fragment.window.tokens == fragment.sent.tokens;
}

void FragmentSynchronizer::Send(uint32_t id, absl::Span<const float> parameters,
                                bool partial) {
  Fragment& fragment = fragments_[id];
  FragmentSnapshot snapshot{
      .parameters = snapshots_.Take(options_.map.size(id)),
      .tokens = fragment.window.tokens,
      .inner_steps = fragment.window.inner_steps,
      .partial = partial};
  options_.map.Gather(id, parameters, absl::MakeSpan(snapshot.parameters));
  fragment.sent = fragment.window;
  fragment.apply_step = 0;
  fragment.late = false;
  fragment.link->Send(std::move(snapshot));
}

bool FragmentSynchronizer::IsOverdue(Fragment& fragment, uint64_t step) {
  if (!fragment.link->in_flight() || step < fragment.apply_step) return false;
  if (!fragment.link->ready()) {
    if (!std::exchange(fragment.late, true)) ++lateness_.updates;
    if (step > fragment.apply_step) ++lateness_.steps;
  }
  return step >= fragment.apply_step + options_.config.max_overlap_steps();
}

absl::StatusOr<bool> FragmentSynchronizer::AwaitAndApply(
    uint32_t id, absl::Span<float> parameters) {
  const FragmentLink& link = *fragments_[id].link;
  {
    absl::MutexLock lock(&wait_mu_);
    waiting_since_ = options_.now();
  }
  const absl::Cleanup account = [this] {
    absl::MutexLock lock(&wait_mu_);
    waited_ += options_.now() - waiting_since_;
    waiting_since_ = absl::InfiniteFuture();
  };
  while (!link.AwaitReady(absl::Milliseconds(200))) {
    RETURN_IF_ERROR(link.status());
    const IslandView view = session_->view();
    if (view.stopping) return absl::CancelledError("the island is stopping");
    if (view.must_leave()) return absl::CancelledError("the island leaves");
    RETURN_IF_ERROR(view.failure);
    if (view.state.run_state() == v1::FINISHED &&
        NewestVersion(view, id) <= link.version()) {
      return false;
    }
  }
  Apply(id, parameters);
  return true;
}

bool FragmentSynchronizer::CorrectEagerStep(uint32_t id,
                                            const FragmentUpdate& update,
                                            absl::Span<float> parameters) {
  std::optional<EagerUpdate>& eager = fragments_[id].eager;
  if (!eager.has_value()) return false;
  const bool expected = eager->under_way();
  if (expected) {
    eager->Correct(update.change, update.island_share,
                   options_.map.segments(id), parameters);
  }
  if (update.head.version() == update.from_version + 1) {
    eager->Observe(update.change, update.island_share);
  } else {
    eager->Forget();
  }
  return expected;
}

void FragmentSynchronizer::MixOrRebase(uint32_t id,
                                       const FragmentUpdate& update,
                                       absl::Span<float> parameters) {
  const absl::Span<const float> anchor = fragments_[id].link->anchor();
  const float mixing = static_cast<float>(options_.config.mixing());
  for (const FragmentMap::Segment& segment : options_.map.segments(id)) {
    const absl::Span<float> local =
        parameters.subspan(segment.model_offset, segment.size);
    if (update.includes_island || update.includes_forgotten) {
      Mix(anchor.subspan(segment.fragment_offset, segment.size), mixing, local);
    } else {
      Rebase(absl::MakeConstSpan(update.change)
                 .subspan(segment.fragment_offset, segment.size),
             local);
    }
  }
}

void FragmentSynchronizer::Apply(uint32_t id, absl::Span<float> parameters) {
  changed_ = true;
  Fragment& fragment = fragments_[id];
  const FragmentUpdate update = fragment.link->Take();
  if (!CorrectEagerStep(id, update, parameters)) {
    MixOrRebase(id, update, parameters);
  }
  if (update.includes_island) {
    fragment.window.tokens -= fragment.sent.tokens;
    fragment.window.inner_steps -= fragment.sent.inner_steps;
  } else if (update.includes_forgotten && fragment.forgotten.tokens > 0) {
    fragment.window.tokens -= fragment.forgotten.tokens;
    fragment.window.inner_steps -= fragment.forgotten.inner_steps;
  } else if (update.includes_forgotten) {
    // It was sent after the checkpoint: all since the anchor is part of it, and
    // what was trained since the restart is the same training again.
    fragment.window = {};
  }
  if (!update.includes_island) rebased_ = true;
  fragment.sent = {};
  fragment.forgotten = {};
}

void FragmentSynchronizer::Save(v1::IslandCheckpoint& position,
                                absl::Span<float> anchors) const {
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    const Fragment& fragment = fragments_[id];
    v1::IslandCheckpoint::Fragment& saved = *position.add_fragments();
    saved.mutable_anchor()->set_fragment(id);
    saved.mutable_anchor()->set_version(fragment.link->version());
    saved.mutable_anchor()->set_digest(Digest128(fragment.link->anchor()));
    saved.set_tokens(fragment.window.tokens);
    saved.set_inner_steps(fragment.window.inner_steps);
    saved.set_sent_tokens(fragment.sent.tokens);
    saved.set_sent_inner_steps(fragment.sent.inner_steps);
    options_.map.Scatter(id, fragment.link->anchor(), anchors);
  }
}

absl::Duration FragmentSynchronizer::waited() const {
  absl::MutexLock lock(&wait_mu_);
  return waited_ +
         std::max(absl::ZeroDuration(), options_.now() - waiting_since_);
}

uint64_t FragmentSynchronizer::NewestVersion(const IslandView& view,
                                             uint32_t fragment) const {
  return view.state.heads(static_cast<int>(fragment)).version();
}

bool FragmentSynchronizer::RunIsOver(const IslandView& view) const {
  if (view.state.run_state() != v1::FINISHED) return false;
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    if (fragments_[id].link->version() < NewestVersion(view, id)) return false;
  }
  return true;
}

}  // namespace causeway
