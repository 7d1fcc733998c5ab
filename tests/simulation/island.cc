// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/island.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "outer_optimizer/step_share.h"
#include "worker/sync/island_session.h"

namespace causeway::simulation {
namespace {

// How long an island that is to leave may take to hand in what it has trained.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(20);

}  // namespace

Island::Island(const Parts& parts, uint32_t island,
               std::optional<Checkpoint>* checkpoint)
    : process_(parts, island),
      checkpoint_(checkpoint),
      schedule_(
          *SyncSchedule::Create(parts.scenario->config, parts.scenario->plan)),
      session_(
          &process_, /*instance=*/process_.number + 1,
          /*replaces=*/checkpoint != nullptr && checkpoint->has_value()
              ? (*checkpoint)->instance
              : 0,
          {.wake = [this] { Wake(); },
           .fail = [this](const absl::Status& status) { Fail(status); },
           .progress =
               [this] {
                 v1::IslandProgress progress;
                 progress.set_run_step(step_);
                 progress.set_tokens(trained_ * TokensPerStep());
                 if (trained_ > 0) {
                   progress.set_step_seconds(absl::ToDoubleSeconds(
                       process_.parts.scenario->step_time[process_.island]));
                 }
                 return progress;
               }}),
      load_backoff_({}, process_.number) {
  parts.world->Trace("island ", IslandName(island), "   process ",
                     process_.number, " starts");
  session_.Join([this](const v1::JoinResponse& joined) {
    session_.Start();
    const std::optional<Checkpoint> restored = TakeCheckpoint(joined);
    if (restored.has_value()) return Restore(*restored, joined);
    Load(joined);
  });
}

uint64_t Island::TokensPerStep() const {
  return process_.parts.scenario->tokens_per_step[process_.island];
}

void Island::Load(const v1::JoinResponse& joined) {
  joined_ = joined;
  anchors_.clear();
  FetchNext();
}

void Island::FetchNext() {
  // Version 0 is made from the run's seed.
  while (anchors_.size() < static_cast<size_t>(joined_.heads_size()) &&
         joined_.heads(static_cast<int>(anchors_.size())).version() == 0) {
    anchors_.emplace_back();
  }
  if (anchors_.size() == static_cast<size_t>(joined_.heads_size())) {
    return MakeLinks(nullptr);
  }
  v1::FetchParametersRequest request;
  *request.mutable_identity() = session_.identity();
  request.set_fragment(static_cast<uint32_t>(anchors_.size()));
  request.set_version(
      joined_.heads(static_cast<int>(anchors_.size())).version());
  process_.Call<FetchedParameters>(
      [host = process_.parts.host,
       request](CoordinatorHost::Reply<FetchedParameters> reply) {
        host->FetchParameters(request, std::move(reply));
      },
      [this](const absl::StatusOr<FetchedParameters>& fetched) {
        if (fetched.ok()) {
          anchors_.push_back(fetched->contents);
          FetchNext();
        } else if (absl::IsNotFound(fetched.status())) {
          session_.Join(
              [this](const v1::JoinResponse& joined) { Load(joined); });
        } else if (IsRetryable(fetched.status())) {
          process_.After(load_backoff_.Next(), [this] { FetchNext(); });
        } else {
          Fail(fetched.status());
        }
      });
}

void Island::MakeLinks(const Checkpoint* restored) {
  step_ = joined_.run_step();
  for (uint32_t id = 0; id < anchors_.size(); ++id) {
    const uint64_t others_until = Newest(id) + 1;
    fragments_.push_back(
        {.link = std::make_unique<Link>(
             &process_, &session_, joined_.heads(static_cast<int>(id)),
             anchors_[id], restored == nullptr ? 0 : others_until,
             Link::Callbacks{
                 .wake = [this] { Continue(); },
                 .fail =
                     [this](const absl::Status& status) { Fail(status); }})});
    fragments_[id].others_until = others_until;
    if (restored != nullptr) SplitWindow(restored->fragments[id], id);
    Check(id);
  }
  AwaitStart();
}

void Island::AwaitStart() {
  if (started_ || fragments_.empty() ||
      session_.state().run_state() == v1::WAITING_FOR_ISLANDS) {
    return;
  }
  started_ = true;
  if (!catching_up_) return TrainStep();
  synchronizing_ = true;
  Continue();
}

void Island::TrainStep() {
  ++step_;
  const uint64_t share = session_.state().inner_steps_per_round();
  const uint64_t round =
      process_.parts.scenario->config.synchronization().inner_steps_per_round();
  if (!IsTrained(step_, share, round) && !MustTrain()) {
    process_.After(absl::ZeroDuration(), [this] { AfterStep(0); });
    return;
  }
  process_.After(process_.parts.scenario->step_time[process_.island],
                 [this] { AfterStep(1); });
}

bool Island::MustTrain() const {
  for (const SyncSchedule::Send& send : schedule_.SendsAt(step_)) {
    const Fragment& fragment = fragments_[send.fragment];
    if (fragment.window == fragment.sent &&
        fragment.restored.size() == fragment.restored_sent) {
      return true;
    }
  }
  return false;
}

void Island::AfterStep(uint64_t trained) {
  trained_ += trained;
  process_.parts.checker->commits().Trained(trained * TokensPerStep());
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    Fragment& fragment = fragments_[id];
    fragment.window += trained;
    fragment.trained += trained;
    if (fragment.link->ready() &&
        (!fragment.link->in_flight() || step_ >= fragment.apply_step)) {
      Apply(id);
    }
  }
  synchronizing_ = true;
  sends_ = schedule_.SendsAt(step_);
  next_send_ = 0;
  Continue();
}

void Island::Continue() {
  if (leaving_) return HandIn();
  if (!synchronizing_ || finished_ || process_.dead()) return;
  if (catching_up_ && !CatchUp()) return;
  if (step_ >= schedule_.total_steps()) return Finish();
  for (; next_send_ < sends_.size(); ++next_send_) {
    const SyncSchedule::Send& send = sends_[next_send_];
    Fragment& fragment = fragments_[send.fragment];
    // A contribution builds on the newest version: catch up first.
    const Awaited awaited = TryNewest(send.fragment);
    if (awaited == Awaited::kNothingYet) return;
    if (awaited == Awaited::kNothingToCome) return Leave();
    if (fragment.link->version() >= send.version) continue;
    // Or there is nothing left to send, and the step comes again.
    if (Window(send.fragment).empty()) continue;
    fragment.apply_step = schedule_.ApplyStep(step_);
    Send(send.fragment);
  }
  const uint64_t further =
      process_.parts.scenario->config.synchronization().max_overlap_steps();
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    const Fragment& fragment = fragments_[id];
    if (!fragment.link->in_flight() || step_ < fragment.apply_step + further) {
      continue;
    }
    const Awaited awaited = TryApply(id);
    if (awaited == Awaited::kNothingYet) return;
    if (awaited == Awaited::kNothingToCome) return Leave();
  }
  if (std::exchange(rebased_, false)) {
    std::vector<uint64_t> versions;
    for (const Fragment& fragment : fragments_) {
      versions.push_back(fragment.link->version());
    }
    step_ = schedule_.ClampToVersions(step_, versions);
  }
  if (RunIsOver()) return Leave();
  if (session_.state().drain()) {
    leaving_ = true;
    process_.After(kLeaveTimeout, [this] { Leave(); });
    return HandIn();
  }
  if (session_.state().run_state() == v1::PAUSED) return;
  Save();
  synchronizing_ = false;
  TrainStep();
}

Island::Awaited Island::TryNewest(uint32_t id) {
  const Link& link = *fragments_[id].link;
  while (link.in_flight() || Newest(id) > link.version()) {
    const Awaited awaited = TryApply(id);
    if (awaited != Awaited::kApplied) return awaited;
  }
  return Awaited::kApplied;
}

bool Island::CatchUp() {
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    const Awaited awaited = TryNewest(id);
    if (awaited == Awaited::kNothingToCome) Leave();
    if (awaited != Awaited::kApplied) return false;
  }
  catching_up_ = false;
  return true;
}

void Island::HandIn() {
  if (process_.dead()) return;
  bool done = true;
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    done &= HandInFragment(id);
    if (process_.dead()) return;
  }
  if (done || RunIsOver()) Leave();
}

bool Island::HandInFragment(uint32_t id) {
  Fragment& fragment = fragments_[id];
  if (fragment.link->ready()) Apply(id);
  if (fragment.link->version() >= schedule_.FinalVersion(id)) return true;
  if (!fragment.link->in_flight()) {
    if (Window(id).empty()) return true;
    // A contribution builds on the newest version.
    if (Newest(id) > fragment.link->version()) return false;
    Send(id, /*partial=*/true);
  }
  return fragment.link->accepted() && fragment.window == fragment.sent &&
         fragment.restored.size() == fragment.restored_sent;
}

void Island::Finish() {
  for (bool settled = false; !settled;) {
    for (uint32_t id = 0; id < fragments_.size(); ++id) {
      const Link& link = *fragments_[id].link;
      if (link.in_flight() || link.version() >= schedule_.FinalVersion(id)) {
        continue;
      }
      if (!Window(id).empty()) {
        fragments_[id].apply_step = 0;
        Send(id);
      } else if (Newest(id) <= link.version()) {
        // Its update was an earlier process's: the step is done again.
        step_ = schedule_.total_steps() - 1;
        synchronizing_ = false;
        return TrainStep();
      }
    }
    settled = true;
    for (uint32_t id = 0; id < fragments_.size(); ++id) {
      if (fragments_[id].link->version() >= schedule_.FinalVersion(id)) {
        continue;
      }
      settled = false;
      const Awaited awaited = TryApply(id);
      if (awaited == Awaited::kNothingYet) return;
      if (awaited == Awaited::kNothingToCome) break;
    }
  }
  Leave();
}

void Island::Send(uint32_t id, bool partial) {
  Fragment& fragment = fragments_[id];
  fragment.sent = fragment.window;
  fragment.restored_sent = fragment.restored.size();
  fragment.link->Send(Window(id), StepsIn(fragment.restored) * TokensPerStep(),
                      partial);
}

Island::Awaited Island::TryApply(uint32_t id) {
  const Link& link = *fragments_[id].link;
  if (link.ready()) {
    Apply(id);
    return Awaited::kApplied;
  }
  const bool over = session_.state().run_state() == v1::FINISHED &&
                    Newest(id) <= link.version();
  return over ? Awaited::kNothingToCome : Awaited::kNothingYet;
}

void Island::Apply(uint32_t id) {
  Fragment& fragment = fragments_[id];
  const Link::Taken taken = fragment.link->Take();
  Settle(taken, fragment);
  rebased_ |= !taken.includes_island;
  Check(id);
  fragment.link->Step();
}

void Island::Check(uint32_t id) {
  const Fragment& fragment = fragments_[id];
  process_.parts.checker->commits().Holds(
      process_.number, fragment.link->head(), fragment.link->anchor(),
      fragment.window, fragment.trained, fragment.restored);
}

uint64_t Island::Newest(uint32_t id) const {
  return session_.state().heads(static_cast<int>(id)).version();
}

bool Island::RunIsOver() const {
  if (session_.state().run_state() != v1::FINISHED) return false;
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    if (fragments_[id].link->version() < Newest(id)) return false;
  }
  return true;
}

void Island::Wake() {
  AwaitStart();
  for (Fragment& fragment : fragments_) fragment.link->Step();
  Continue();
}

void Island::Leave() {
  finished_ = session_.state().run_state() == v1::FINISHED;
  process_.parts.world->Trace("island ", IslandName(process_.island),
                              "   process ", process_.number,
                              finished_ ? " is finished" : " leaves");
  v1::LeaveRequest request;
  *request.mutable_identity() = session_.identity();
  request.set_reason(finished_ ? "finished" : "told to");
  process_.Call<v1::LeaveResponse>(
      [host = process_.parts.host,
       request](CoordinatorHost::Reply<v1::LeaveResponse> reply) {
        host->Leave(request, std::move(reply));
      },
      [](const absl::StatusOr<v1::LeaveResponse>&) {});
  process_.Die();
}

void Island::Fail(const absl::Status& status) {
  process_.parts.world->Trace("island ", IslandName(process_.island),
                              "   process ", process_.number,
                              " ends: ", status.ToString());
  // Who comes after the end is told so, perhaps by a coordinator that is down
  // again.
  finished_ = process_.parts.checker->commits().Complete(schedule_);
  if (absl::IsOutOfRange(status)) {
    // Its replica has diverged; the next process begins with the run's, unless
    // this one is killed before it has given up what it has.
    const bool killed = process_.parts.scenario->Has(kIslandKill) &&
                        process_.parts.world->chance.OneIn(2);
    if (checkpoint_ != nullptr && !killed) checkpoint_->reset();
    return process_.Die();
  }
  // A name that is taken, until the lease of its last process ends, is nobody's
  // fault. With everything else the island has to be able to go on.
  if (!finished_ && !absl::IsAlreadyExists(status)) {
    process_.parts.checker->Fail("process ", process_.number, ", island ",
                                 IslandName(process_.island),
                                 ", cannot go on: ", status.ToString());
  }
  process_.Die();
}

}  // namespace causeway::simulation
