// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of OuterLoop that decides between the first step and the last.
#include <algorithm>
#include <utility>
#include <vector>

#include "outer_optimizer/step_share.h"
#include "worker/outer_loop/outer_loop.h"

namespace causeway {

TrainerAction OuterLoop::TrainAndSynchronize() {
  while (true) {
    if (synchronizing_) {
      std::optional<TrainerAction> action = Synchronize();
      if (action.has_value()) return *std::move(action);
      synchronizing_ = false;
    }
    std::optional<TrainerAction> validate = ValidateIfDue();
    if (validate.has_value()) return *std::move(validate);
    if (RunIsOver()) return End(absl::OkStatus());
    if (SaveIsDue()) {
      save_ordered_step_ = step_;
      return action::Save{Position()};
    }
    if (membership_.state().run_state() == v1::PAUSED) {
      return WaitFor(v1::Wait::PAUSED);
    }
    const uint64_t step = step_ + 1;
    if (IsTrained(step, membership_.state().inner_steps_per_round(),
                  config_.synchronization().inner_steps_per_round()) ||
        MustTrain(step)) {
      return action::Train{.step = step};
    }
    // The island skips this step, so that it arrives with the others.
    step_ = step;
    StartSynchronizing();
  }
}

void OuterLoop::Stepped(uint64_t tokens) {
  ordered_.reset();
  ++step_;
  for (Fragment& fragment : fragments_) fragment.window.Add(tokens);
  StartSynchronizing();
}

void OuterLoop::SettleFirst() {
  if (!ordered_.has_value() ||
      !std::holds_alternative<action::Train>(*ordered_)) {
    return;
  }
  ordered_.reset();
  // All sends of the last step are on their way.
  synchronizing_ = true;
  settling_ = true;
}

void OuterLoop::StartSynchronizing() {
  synchronizing_ = true;
  sends_ = schedule_->SendsAt(step_);
  next_send_ = 0;
  lateness_booked_ = false;
}

std::optional<TrainerAction> OuterLoop::Synchronize() {
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    const Fragment& fragment = fragments_[id];
    if (fragment.exchange.ready() &&
        (!fragment.exchange.in_flight() || IsDue(fragment) || settling_)) {
      return ApplyUpdate(id);
    }
  }
  if (step_ >= schedule_->total_steps()) return Finish();
  for (; next_send_ < sends_.size(); ++next_send_) {
    const SyncSchedule::Send& send = sends_[next_send_];
    const Fragment& fragment = fragments_[send.fragment];
    // A contribution builds on the newest version: catch up first.
    auto action = ReachNewest(send.fragment);
    if (action.has_value()) return action;
    // Catching up may have reached this round's version.
    if (fragment.exchange.version() >= send.version) continue;
    // Catching up may have left nothing to send. The step is repeated, as after
    // every rebase to a version before this send's.
    if (fragment.window.empty()) continue;
    ++next_send_;
    return Send(send.fragment, /*partial=*/false, schedule_->ApplyStep(step_));
  }
  if (std::exchange(is_astray_, false)) FindStep();
  BookLateness();
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    const Fragment& fragment = fragments_[id];
    if (fragment.exchange.in_flight() &&
        (settling_ ||
         step_ >= fragment.apply_step +
                      config_.synchronization().max_overlap_steps())) {
      return ApplyOrWait(id);
    }
  }
  settling_ = false;
  return std::nullopt;
}

void OuterLoop::FindStep() {
  std::vector<uint64_t> versions;
  for (const Fragment& fragment : fragments_) {
    // Training in flight is sent, so its step is not repeated.
    versions.push_back(fragment.exchange.version() +
                       (fragment.exchange.in_flight() ? 1 : 0));
  }
  // An island that a round did not wait for is far behind. From its own step it
  // would be late for every round.
  step_ = schedule_->ClampToVersions(
      std::max(step_, membership_.state().run_step()), versions);
}

std::optional<TrainerAction> OuterLoop::ReachNewest(uint32_t id) {
  const FragmentExchange& exchange = fragments_[id].exchange;
  if (!exchange.in_flight() &&
      membership_.newest_version(id) <= exchange.version()) {
    return std::nullopt;
  }
  return ApplyOrWait(id);
}

std::optional<TrainerAction> OuterLoop::Finish() {
  // Send all at once, so that the last rounds of all fragments overlap.
  std::optional<uint32_t> open;
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    const Fragment& fragment = fragments_[id];
    const FragmentExchange& exchange = fragment.exchange;
    if (exchange.version() >= schedule_->FinalVersion(id)) continue;
    if (!open.has_value()) open = id;
    // A contribution builds on the newest version.
    if (exchange.in_flight() ||
        membership_.newest_version(id) > exchange.version()) {
      continue;
    }
    if (!fragment.window.empty()) {
      return Send(id, /*partial=*/false, /*apply_step=*/0);
    }
    // Its training, by an earlier process, is merged, but others may wait for a
    // contribution, so the last step is repeated.
    step_ = schedule_->total_steps() - 1;
    return std::nullopt;
  }
  if (open.has_value() && !RunIsOver()) {
    return WaitFor(v1::Wait::LAST_ROUNDS, open);
  }
  std::optional<TrainerAction> validate = ValidateIfDue();
  return validate.has_value() ? *std::move(validate) : End(absl::OkStatus());
}

TrainerAction OuterLoop::ApplyOrWait(uint32_t id) {
  if (fragments_[id].exchange.ready()) return ApplyUpdate(id);
  if (IsOver(id)) return End(absl::OkStatus());
  if (settling_) return WaitFor(v1::Wait::SETTLING, id);
  return WaitFor(fragments_[id].exchange.in_flight() ? v1::Wait::UPDATE_DUE
                                                     : v1::Wait::CATCHING_UP,
                 id);
}

TrainerAction OuterLoop::ApplyUpdate(uint32_t id) {
  Fragment& fragment = fragments_[id];
  const AnchorChange& update = fragment.exchange.update();
  return action::Apply{.fragment = id,
                       .includes_island = fragment.window.Settle(update)};
}

void OuterLoop::Applied() {
  // The island may have failed while the trainer applied the update.
  if (!ordered_.has_value()) return;
  FragmentExchange& exchange =
      fragments_[std::get<action::Apply>(*ordered_).fragment].exchange;
  ordered_.reset();
  is_astray_ |= !exchange.update().includes_island;
  exchange.Advance();
}

TrainerAction OuterLoop::Send(uint32_t id, bool partial, uint64_t apply_step) {
  snapshot_ = {.fragment = id, .partial = partial, .apply_step = apply_step};
  return action::TakeSnapshot{.fragment = id};
}

void OuterLoop::SnapshotTaken() {
  ordered_.reset();
  Fragment& fragment = fragments_[snapshot_->fragment];
  fragment.window.Send();
  fragment.apply_step = snapshot_->apply_step;
  fragment.late = false;
  fragment.exchange.Send(fragment.window.training(), snapshot_->partial);
}

bool OuterLoop::IsDue(const Fragment& fragment) const {
  return step_ >= fragment.apply_step;
}

void OuterLoop::BookLateness() {
  if (std::exchange(lateness_booked_, true)) return;
  for (Fragment& fragment : fragments_) {
    if (!fragment.exchange.in_flight() || fragment.exchange.ready() ||
        !IsDue(fragment)) {
      continue;
    }
    if (!std::exchange(fragment.late, true)) ++lateness_.updates;
    if (step_ > fragment.apply_step) ++lateness_.steps;
  }
}

bool OuterLoop::MustTrain(uint64_t step) const {
  for (const SyncSchedule::Send& send : schedule_->SendsAt(step)) {
    if (fragments_[send.fragment].window.all_sent()) return true;
  }
  return false;
}

std::optional<TrainerAction> OuterLoop::ValidateIfDue() {
  const v1::ValidationConfig& wanted = membership_.state().validation();
  if (wanted.every_rounds() == 0) return std::nullopt;
  std::vector<uint64_t> versions;
  for (const Fragment& fragment : fragments_) {
    versions.push_back(fragment.exchange.version());
  }
  const uint64_t version = schedule_->ModelVersion(versions);
  if (!schedule_->IsModelVersion(versions) || version <= validated_version_ ||
      (version % wanted.every_rounds() != 0 &&
       version != schedule_->FinalModelVersion())) {
    return std::nullopt;
  }
  validated_version_ = version;
  return action::Validate{.version = version,
                          .max_sequences = wanted.max_sequences()};
}

void OuterLoop::Validated() { ordered_.reset(); }

bool OuterLoop::SaveIsDue() const {
  if (options_.checkpoint_steps == 0 || save_ordered_step_ == step_) {
    return false;
  }
  // The first one is due soon, so that a successor knows which process it
  // replaces.
  return !saved_step_.has_value() ||
         step_ >= *saved_step_ + options_.checkpoint_steps;
}

void OuterLoop::Saved(bool saved) {
  ordered_.reset();
  if (saved) saved_step_ = step_;
}

v1::IslandCheckpoint OuterLoop::Position() const {
  v1::IslandCheckpoint position;
  position.set_run_id(membership_.identity().run_id());
  position.set_island_id(membership_.identity().island_id());
  position.set_instance_id(options_.join.instance_id());
  position.set_shard(membership_.joined()->shard());
  position.set_run_step(step_);
  position.set_optimizer(v1::TrainingConfig::Optimizer_Name(
      membership_.joined()->config().training().optimizer()));
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    const Fragment& fragment = fragments_[id];
    v1::IslandCheckpoint::Fragment& saved = *position.add_fragments();
    saved.mutable_anchor()->set_fragment(id);
    saved.mutable_anchor()->set_version(fragment.exchange.version());
    fragment.window.Save(saved);
  }
  return position;
}

bool OuterLoop::IsOver(uint32_t id) const {
  return membership_.state().run_state() == v1::FINISHED &&
         membership_.newest_version(id) <= fragments_[id].exchange.version();
}

bool OuterLoop::RunIsOver() const {
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    if (!IsOver(id)) return false;
  }
  return true;
}

}  // namespace causeway
