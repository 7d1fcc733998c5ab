// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/fragment_synchronizer.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/codec_config.h"

namespace causeway {

FragmentSynchronizer::FragmentSynchronizer(
    Options options, absl::Span<const v1::FragmentHead> heads,
    std::vector<std::unique_ptr<FragmentReplica>> replica,
    CoordinatorClient* client, IslandSession* session)
    : options_(std::move(options)),
      session_(session),
      rebased_(!options_.restored.empty()) {
  for (uint32_t fragment = 0; fragment < replica.size(); ++fragment) {
    Fragment& added = fragments_.emplace_back();
    const uint64_t newest = NewestVersion(session_->view(), fragment);
    added.window = options_.restored.empty()
                       ? FragmentWindow(newest)
                       : FragmentWindow(options_.restored[fragment], newest);
    added.replica = std::move(replica[fragment]);
    added.link = std::make_unique<FragmentLink>(
        FragmentLink::Options{.fragment = fragment,
                              .uplink = UplinkSpec(options_.config),
                              .downlink = DownlinkSpec(options_.config),
                              .earlier_until = added.window.earlier_until(),
                              .seed = options_.seed},
        heads[fragment], added.replica.get(), client, session);
  }
}

absl::StatusOr<FragmentSynchronizer::Outcome> FragmentSynchronizer::CatchUp(
    uint64_t step) {
  if (options_.restored.empty()) return Outcome{.step = step};
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    ASSIGN_OR_RETURN(const bool newest, AwaitNewest(id));
    if (!newest) return Outcome{.step = step, .finished = true};
  }
  return GoOnFrom(step);
}

absl::StatusOr<FragmentSynchronizer::Outcome> FragmentSynchronizer::AfterStep(
    uint64_t step, uint64_t tokens) {
  const SyncSchedule& schedule = options_.schedule;
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    Fragment& fragment = fragments_[id];
    RETURN_IF_ERROR(fragment.link->status());
    fragment.window.Add(tokens);
    // An update that none of our contributions waits for is a rebase, which may
    // happen at any step; ours is applied at its step, so that what training
    // sees does not depend on the link's speed.
    if (fragment.link->ready() &&
        (!fragment.link->in_flight() || step >= fragment.apply_step)) {
      RETURN_IF_ERROR(Apply(id));
    }
  }
  if (step >= schedule.total_steps()) return Finish();

  for (const SyncSchedule::Send& send : schedule.SendsAt(step)) {
    Fragment& fragment = fragments_[send.fragment];
    // A contribution builds on the newest version: catch up first.
    ASSIGN_OR_RETURN(const bool newest, AwaitNewest(send.fragment));
    if (!newest) return Outcome{.step = step, .finished = true};
    // What was caught up with may have been this very round.
    if (fragment.link->version() >= send.version) continue;
    // Or it has left nothing to send: as after every rebase to a version before
    // this send's, the step comes again.
    if (fragment.window.empty()) continue;
    RETURN_IF_ERROR(Send(send.fragment, Reason::kSchedule));
    fragment.apply_step = schedule.ApplyStep(step);
  }
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    if (!IsOverdue(fragments_[id], step)) continue;
    ASSIGN_OR_RETURN(const bool applied, AwaitAndApply(id));
    if (!applied) return Outcome{.step = step, .finished = true};
  }
  return GoOnFrom(step);
}

FragmentSynchronizer::Outcome FragmentSynchronizer::GoOnFrom(uint64_t step) {
  Outcome outcome{.step = step};
  if (std::exchange(rebased_, false)) {
    std::vector<uint64_t> versions;
    for (const Fragment& fragment : fragments_) {
      versions.push_back(fragment.link->version());
    }
    outcome.step = options_.schedule.ClampToVersions(step, versions);
  }
  outcome.finished = RunIsOver(session_->view());
  return outcome;
}

absl::StatusOr<FragmentSynchronizer::Outcome> FragmentSynchronizer::Finish() {
  const SyncSchedule& schedule = options_.schedule;
  bool settled = false;
  while (!settled) {
    // All at once, so that the last rounds of all fragments overlap.
    for (uint32_t id = 0; id < fragments_.size(); ++id) {
      const FragmentLink& link = *fragments_[id].link;
      if (link.in_flight() || link.version() >= schedule.FinalVersion(id)) {
        continue;
      }
      if (!fragments_[id].window.empty()) {
        RETURN_IF_ERROR(Send(id, Reason::kEnd));
      } else if (NewestVersion(session_->view(), id) <= link.version()) {
        // Its update was an earlier process's, and others may wait for it.
        return Outcome{.step = schedule.total_steps() - 1};
      }
    }
    settled = true;
    for (uint32_t id = 0; id < fragments_.size(); ++id) {
      if (fragments_[id].link->version() >= schedule.FinalVersion(id)) continue;
      settled = false;
      ASSIGN_OR_RETURN(const bool applied, AwaitAndApply(id));
      if (!applied) break;
    }
  }
  return Outcome{.step = schedule.total_steps(), .finished = true};
}

bool FragmentSynchronizer::MustTrain(uint64_t step) const {
  for (const SyncSchedule::Send& send : options_.schedule.SendsAt(step)) {
    if (fragments_[send.fragment].window.all_sent()) return true;
  }
  return false;
}

absl::Status FragmentSynchronizer::HandIn(absl::Time deadline) {
  while (true) {
    // Taken first: what happens from here on wakes the wait below.
    const IslandView view = session_->view();
    if (view.stopping) return absl::CancelledError("the island is stopping");
    RETURN_IF_ERROR(view.failure);
    bool done = true;
    for (uint32_t id = 0; id < fragments_.size(); ++id) {
      ASSIGN_OR_RETURN(const bool handed_in, HandInFragment(id, view));
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
    uint32_t id, const IslandView& view) {
  Fragment& fragment = fragments_[id];
  RETURN_IF_ERROR(fragment.link->status());
  if (fragment.link->ready()) RETURN_IF_ERROR(Apply(id));
  if (fragment.link->version() >= options_.schedule.FinalVersion(id)) {
    return true;
  }
  if (!fragment.link->in_flight()) {
    if (fragment.window.empty()) return true;
    // A contribution builds on the newest version.
    if (NewestVersion(view, id) > fragment.link->version()) return false;
    RETURN_IF_ERROR(Send(id, Reason::kLeaving));
  }
  return fragment.link->accepted() && fragment.window.all_sent();
}

absl::Status FragmentSynchronizer::Send(uint32_t id, Reason reason) {
  Fragment& fragment = fragments_[id];
  RETURN_IF_ERROR(
      fragment.replica->TakeSnapshot(/*eager=*/reason == Reason::kSchedule));
  fragment.window.Send();
  fragment.apply_step = 0;
  fragment.late = false;
  fragment.link->Send({.training = fragment.window.training(),
                       .partial = reason == Reason::kLeaving});
  return absl::OkStatus();
}

bool FragmentSynchronizer::IsOverdue(Fragment& fragment, uint64_t step) {
  if (!fragment.link->in_flight() || step < fragment.apply_step) return false;
  if (!fragment.link->ready()) {
    if (!std::exchange(fragment.late, true)) ++lateness_.updates;
    if (step > fragment.apply_step) ++lateness_.steps;
  }
  return step >= fragment.apply_step + options_.config.max_overlap_steps();
}

absl::StatusOr<bool> FragmentSynchronizer::AwaitAndApply(uint32_t id) {
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
  RETURN_IF_ERROR(Apply(id));
  return true;
}

absl::StatusOr<bool> FragmentSynchronizer::AwaitNewest(uint32_t id) {
  const FragmentLink& link = *fragments_[id].link;
  while (link.in_flight() ||
         NewestVersion(session_->view(), id) > link.version()) {
    ASSIGN_OR_RETURN(const bool applied, AwaitAndApply(id));
    if (!applied) return false;
  }
  return true;
}

absl::Status FragmentSynchronizer::Apply(uint32_t id) {
  Fragment& fragment = fragments_[id];
  const FragmentUpdate update = fragment.link->update();
  RETURN_IF_ERROR(fragment.replica->Apply(
      {.includes_island = fragment.window.Settle(update),
       .is_next = update.head.version() == update.from_version + 1,
       .island_share = update.island_share}));
  fragment.link->Advance();
  if (!update.includes_island) rebased_ = true;
  return absl::OkStatus();
}

absl::Status FragmentSynchronizer::Save(const FragmentMap& map,
                                        v1::IslandCheckpoint& position,
                                        absl::Span<float> anchors) const {
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    const Fragment& fragment = fragments_[id];
    v1::IslandCheckpoint::Fragment& saved = *position.add_fragments();
    saved.mutable_anchor()->set_fragment(id);
    saved.mutable_anchor()->set_version(fragment.link->version());
    std::vector<float> anchor(map.size(id));
    RETURN_IF_ERROR(fragment.replica->ReadAnchor(absl::MakeSpan(anchor)));
    saved.mutable_anchor()->set_digest(Digest128(absl::MakeConstSpan(anchor)));
    fragment.window.Save(fragment.link->version(), saved);
    map.Scatter(id, anchor, anchors);
  }
  return absl::OkStatus();
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
