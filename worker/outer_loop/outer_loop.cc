// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/outer_loop/outer_loop.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/outer_loop/retry.h"

namespace causeway {
namespace {

// Returns whether fragments do this one after the other: a first offer or a
// fetch of parameters.
bool TakesTurns(const FragmentAction& action) {
  const auto* contribute = std::get_if<action::Contribute>(&action);
  return contribute == nullptr
             ? std::holds_alternative<action::FetchParameters>(action)
             : contribute->is_new;
}

// Returns whether an island that has just joined can continue from a
// checkpoint. It cannot if the coordinator no longer keeps all updates since
// the checkpoint, or went back behind it. FAILED_PRECONDITION: the checkpoint
// is of another run, island or optimizer.
absl::StatusOr<bool> CanResume(const v1::IslandCheckpoint& position,
                               const v1::JoinResponse& joined) {
  const v1::IslandIdentity& identity = joined.identity();
  if (position.run_id() != identity.run_id() ||
      position.island_id() != identity.island_id() ||
      position.fragments_size() != joined.heads_size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint directory is that of island ", position.island_id(),
        " of run ", position.run_id(), ", not of island ", identity.island_id(),
        " of run ", identity.run_id(),
        "; name another directory, or remove its checkpoint"));
  }
  const std::string& run_optimizer = v1::TrainingConfig::Optimizer_Name(
      joined.config().training().optimizer());
  const std::string optimizer =
      position.optimizer().empty() ? "ADAMW" : position.optimizer();
  if (optimizer != run_optimizer) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the island's checkpoint has the state of ", optimizer,
        ", but training.optimizer is ", run_optimizer,
        "; remove the checkpoint to start with the coordinator's parameters"));
  }
  const uint64_t history = joined.config().storage().update_history();
  for (int i = 0; i < joined.heads_size(); ++i) {
    const v1::FragmentHead& head = joined.heads(i);
    const v1::FragmentHead& anchor = position.fragments(i).anchor();
    if (anchor.version() <= head.version() &&
        head.version() - anchor.version() <= history &&
        (anchor.version() < head.version() ||
         anchor.digest() == head.digest())) {
      continue;
    }
    LOG(WARNING) << "the checkpoint cannot be used: it has version "
                 << anchor.version() << " of fragment " << i
                 << ", the run is at " << head.version()
                 << ", and its coordinator keeps " << history
                 << " updates; starting from the coordinator's parameters. A "
                    "smaller checkpoint_steps, or a larger "
                    "storage.update_history of the run, lets the next restart "
                    "continue";
    return false;
  }
  return true;
}

}  // namespace

OuterLoop::OuterLoop(Options options)
    : options_(std::move(options)),
      membership_(options_.join, options_.seed),
      load_backoff_({}, options_.seed) {}

TrainerAction OuterLoop::NextForTrainer(absl::Time now) {
  if (end_.has_value()) return *end_;
  if (ordered_.has_value()) return *ordered_;
  TrainerAction action = Decide(now);
  BookWait(action, now);
  if (!std::holds_alternative<action::Wait>(action) && !end_.has_value()) {
    ordered_ = action;
  }
  return action;
}

FragmentAction OuterLoop::NextForFragment(uint32_t fragment,
                                          absl::Time now) const {
  if (membership_.stopping() || !membership_.failure().ok()) {
    return action::End{};
  }
  const Fragment& own = fragments_[fragment];
  FragmentAction next = own.exchange.Next(membership_, now);
  if (!TakesTurns(next)) return next;
  if (auto* contribute = std::get_if<action::Contribute>(&next)) {
    contribute->uplink_bits = uplink_bits();
  }
  // All islands send in the same order, so that a round closes, and its update
  // comes down, while the next fragment goes up. Parameters that come alone
  // come sooner, before the updates that follow them are dropped.
  for (uint32_t other = 0; other < fragments_.size(); ++other) {
    const Fragment& before = fragments_[other];
    if (std::pair(before.apply_step, other) >=
        std::pair(own.apply_step, fragment)) {
      continue;
    }
    const FragmentAction first = before.exchange.Next(membership_, now);
    if (TakesTurns(first) && first.index() == next.index()) {
      return action::Wait{};
    }
  }
  return next;
}

absl::Status OuterLoop::Failure() const {
  RETURN_IF_ERROR(failure_);
  RETURN_IF_ERROR(membership_.failure());
  for (const Fragment& fragment : fragments_) {
    RETURN_IF_ERROR(fragment.exchange.failure());
  }
  return absl::OkStatus();
}

TrainerAction OuterLoop::Decide(absl::Time now) {
  if (membership_.stopping()) return End(absl::CancelledError("stopped"));
  if (absl::Status failure = Failure(); !failure.ok()) {
    return End(std::move(failure));
  }
  if (membership_.must_leave() && phase_ < Phase::kTraining) {
    // There is nothing to hand in.
    return End(absl::CancelledError(membership_.leave_reason()));
  }
  if (phase_ == Phase::kJoining) {
    if (!membership_.joined().has_value()) return WaitFor(v1::Wait::JOINING);
    if (absl::Status started = StartLoading(); !started.ok()) {
      return End(std::move(started));
    }
  }
  if (phase_ == Phase::kLoading) return Load(now);
  if (phase_ == Phase::kStarting) {
    // A run that was paused before it began may still need islands. An island
    // with a checkpoint has training to hand in.
    if (membership_.state().run_state() == v1::PAUSED && !resumes_) {
      return WaitFor(v1::Wait::PAUSED);
    }
    if (membership_.state().run_state() == v1::WAITING_FOR_ISLANDS) {
      LOG_IF(INFO, wait_.reason() != v1::Wait::ISLANDS)
          << "waiting for the other islands to be ready";
      return WaitFor(v1::Wait::ISLANDS);
    }
    phase_ = Phase::kTraining;
  }
  if (phase_ == Phase::kTraining && membership_.must_leave()) {
    LOG(INFO) << "leaving the run (" << membership_.leave_reason()
              << "): handing in what is trained";
    phase_ = Phase::kLeaving;
    leave_deadline_ = now + options_.leave_timeout;
  }
  return phase_ == Phase::kLeaving ? LeaveInGoodOrder(now)
                                   : TrainAndSynchronize();
}

absl::Status OuterLoop::StartLoading() {
  const v1::JoinResponse& joined = *membership_.joined();
  config_ = joined.config();
  v1::SynchronizationConfig& sync = *config_.mutable_synchronization();
  sync.set_overlap_steps(overlap_steps());
  if (options_.uplink_bits.has_value()) {
    if (sync.uplink_format() != v1::ECQ) {
      return absl::FailedPreconditionError(
          absl::StrCat("uplink_bits of this island is ", *options_.uplink_bits,
                       ", but the run's synchronization.uplink_format is ",
                       v1::Format_Name(sync.uplink_format()),
                       ", whose bits are the same on all islands; only ECQ "
                       "lets an island choose"));
    }
    sync.set_ecq_bits(*options_.uplink_bits);
  }
  ASSIGN_OR_RETURN(schedule_, SyncSchedule::Create(config_, joined.plan()));
  if (options_.resume.has_value()) {
    ASSIGN_OR_RETURN(resumes_, CanResume(*options_.resume, joined));
  }
  if (resumes_) {
    for (const auto& fragment : options_.resume->fragments()) {
      heads_.push_back(fragment.anchor());
    }
    loaded_ = static_cast<uint32_t>(heads_.size());
    step_ = options_.resume->run_step();
    LOG(INFO) << "continuing from the checkpoint of step " << step_;
  } else {
    heads_.assign(joined.heads().begin(), joined.heads().end());
    step_ = joined.run_step();
  }
  phase_ = Phase::kLoading;
  return absl::OkStatus();
}

TrainerAction OuterLoop::Load(absl::Time now) {
  if (loaded_ == heads_.size()) {
    return action::Begin{.from_checkpoint = resumes_, .heads = heads_};
  }
  // The wait gives no reason: LOADING says that a fetch has failed.
  if (fetching_) return action::Wait{};
  if (now < load_not_before_) {
    action::Wait wait = WaitFor(v1::Wait::LOADING);
    wait.until = load_not_before_;
    return wait;
  }
  // The run may have moved on since the join.
  v1::FragmentHead& wanted = heads_[loaded_];
  if (membership_.newest_version(loaded_) > wanted.version()) {
    wanted = membership_.state().heads(static_cast<int>(loaded_));
  }
  action::FetchParameters fetch;
  *fetch.request.mutable_identity() = membership_.identity();
  fetch.request.set_fragment(loaded_);
  fetch.request.set_version(wanted.version());
  return fetch;
}

void OuterLoop::FetchStarted() {
  ordered_.reset();
  fetching_ = true;
}

void OuterLoop::ParametersAnswered(const absl::StatusOr<v1::FragmentHead>& head,
                                   absl::Time now) {
  ordered_.reset();
  fetching_ = false;
  if (head.ok()) {
    load_backoff_.Reset();
    heads_[loaded_++] = *head;
    return;
  }
  if (absl::IsNotFound(head.status()) &&
      membership_.newest_version(loaded_) > heads_[loaded_].version()) {
    // The run has moved on and dropped the version to start from.
    return;
  }
  if (absl::IsNotFound(head.status()) || IsRetryable(head.status())) {
    const absl::Duration pause = load_backoff_.Next();
    LOG(WARNING) << "fetching fragment " << loaded_ << ": "
                 << head.status().message() << "; next try in "
                 << absl::FormatDuration(pause);
    load_not_before_ = now + pause;
  } else {
    failure_ = head.status();
  }
}

void OuterLoop::Begun() {
  ordered_.reset();
  std::vector<uint64_t> versions;
  for (uint32_t id = 0; id < heads_.size(); ++id) {
    versions.push_back(heads_[id].version());
    FragmentWindow window;
    if (resumes_) {
      window = FragmentWindow(options_.resume->fragments(static_cast<int>(id)),
                              membership_.newest_version(id));
    }
    FragmentExchange exchange({.fragment = id,
                               .earlier_until = window.earlier_until(),
                               .seed = options_.seed},
                              heads_[id].version());
    fragments_.push_back(
        {.exchange = std::move(exchange), .window = std::move(window)});
  }
  if (resumes_) {
    // Contributions in flight at the checkpoint that were not accepted are sent
    // again at this step, unless the island must repeat an earlier step.
    is_astray_ = true;
    StartSynchronizing();
    for (const SyncSchedule::Send& send : sends_) {
      uint64_t& version = versions[send.fragment];
      version = std::max(version, send.version);
    }
    if (schedule_->ClampToVersions(step_, versions) < step_) sends_.clear();
  } else if (membership_.state().run_step() > step_) {
    // The run went on while the island got ready.
    step_ =
        schedule_->ClampToVersions(membership_.state().run_step(), versions);
  }
  membership_.BeReady();
  phase_ = Phase::kStarting;
}

void OuterLoop::Failed(const absl::Status& status) {
  ordered_.reset();
  failure_ = status;
}

TrainerAction OuterLoop::LeaveInGoodOrder(absl::Time now) {
  std::optional<action::Wait> wait;
  for (uint32_t id = 0; id < fragments_.size(); ++id) {
    const std::optional<TrainerAction> action = HandIn(id);
    if (!action.has_value()) continue;
    if (!std::holds_alternative<action::Wait>(*action)) return *action;
    if (!wait.has_value()) wait = std::get<action::Wait>(*action);
  }
  const bool late = now >= leave_deadline_;
  if (wait.has_value() && !late && !RunIsOver()) {
    wait->until = leave_deadline_;
    return *wait;
  }
  has_handed_in_ = !wait.has_value() || RunIsOver();
  LOG_IF(WARNING, wait.has_value() && late)
      << "the time for leaving has run out; what is not handed in yet is lost";
  return End(absl::CancelledError(membership_.leave_reason()));
}

std::optional<TrainerAction> OuterLoop::HandIn(uint32_t id) {
  const Fragment& fragment = fragments_[id];
  const FragmentExchange& exchange = fragment.exchange;
  if (exchange.ready()) return ApplyUpdate(id);
  if (exchange.version() >= schedule_->FinalVersion(id)) return std::nullopt;
  if (exchange.in_flight()) {
    if (exchange.accepted(membership_) && fragment.window.all_sent()) {
      return std::nullopt;
    }
    return WaitFor(v1::Wait::LEAVING, id);
  }
  if (fragment.window.empty()) return std::nullopt;
  // A contribution builds on the newest version.
  if (membership_.newest_version(id) > exchange.version()) {
    return WaitFor(v1::Wait::LEAVING, id);
  }
  return Send(id, /*partial=*/true, /*apply_step=*/0);
}

TrainerAction OuterLoop::End(absl::Status status) {
  end_ = action::End{std::move(status)};
  return *end_;
}

action::Wait OuterLoop::WaitFor(v1::Wait::Reason reason,
                                std::optional<uint32_t> fragment) const {
  action::Wait wait;
  wait.why.set_reason(reason);
  if (reason == v1::Wait::ISLANDS || fragment.has_value()) {
    wait.why.set_islands_missing(membership_.state().islands_missing());
  }
  if (fragment.has_value()) {
    const uint64_t version = fragments_[*fragment].exchange.version();
    wait.why.set_fragment(*fragment);
    wait.why.set_from_version(version);
    wait.why.set_to_version(
        std::max(membership_.newest_version(*fragment), version + 1));
  }
  if (reason == v1::Wait::UPDATE_DUE) {
    wait.why.set_due_step(fragments_[*fragment].apply_step);
  }
  return wait;
}

void OuterLoop::BookWait(const TrainerAction& action, absl::Time now) {
  const auto* const wait = std::get_if<action::Wait>(&action);
  const v1::Wait why = wait == nullptr ? v1::Wait() : wait->why;
  if (why.reason() != wait_.reason()) {
    waited_ = waited(now);
    wait_since_ = now;
  }
  wait_ = why;
}

uint32_t OuterLoop::overlap_steps() const {
  const std::optional<v1::JoinResponse>& joined = membership_.joined();
  if (!joined.has_value()) return 0;
  return options_.overlap_steps.value_or(
      joined->config().synchronization().overlap_steps());
}

double OuterLoop::uplink_bits() const {
  const v1::SynchronizationConfig& sync = config_.synchronization();
  if (sync.uplink_format() != v1::ECQ) return 0;
  const double planned = membership_.state().uplink_bits();
  return has_own_uplink_bits() || planned == 0 ? sync.ecq_bits() : planned;
}

absl::Duration OuterLoop::waited(absl::Time now) const {
  const bool counts =
      wait_.has_fragment() && wait_.reason() != v1::Wait::LEAVING;
  return waited_ + (counts ? std::max(absl::ZeroDuration(), now - wait_since_)
                           : absl::ZeroDuration());
}

v1::Wait OuterLoop::wait(absl::Time now) const {
  v1::Wait wait = wait_;
  if (wait.reason() != v1::Wait::REASON_UNSPECIFIED) {
    wait.set_seconds(absl::ToDoubleSeconds(
        std::max(absl::ZeroDuration(), now - wait_since_)));
  }
  return wait;
}

std::string OuterLoop::Activity() const {
  if (phase_ == Phase::kJoining) return "joining";
  if (phase_ == Phase::kLoading) return "loading parameters";
  if (is_training()) return "training";
  if (ordered_.has_value() &&
      std::holds_alternative<action::Validate>(*ordered_)) {
    return "validating";
  }
  const std::string update =
      absl::StrCat("waiting for fragment ", wait_.fragment(), "'s update");
  const uint32_t missing = wait_.islands_missing();
  const std::string islands =
      missing == 0
          ? ""
          : absl::StrCat("; ", missing, missing == 1 ? " island" : " islands",
                         " missing");
  switch (wait_.reason()) {
    case v1::Wait::ISLANDS:
      return absl::StrCat("waiting for islands", islands);
    case v1::Wait::PAUSED:
      return "paused";
    case v1::Wait::CATCHING_UP:
      return absl::StrCat("catching up from version ", wait_.from_version(),
                          " to ", wait_.to_version(), " of fragment ",
                          wait_.fragment());
    case v1::Wait::UPDATE_DUE:
      return absl::StrCat(update, ", due at step ", wait_.due_step(), islands);
    case v1::Wait::SETTLING:
      return absl::StrCat("settling: ", update, islands);
    case v1::Wait::LAST_ROUNDS:
      return absl::StrCat("waiting for the last round of fragment ",
                          wait_.fragment(), islands);
    case v1::Wait::LEAVING:
      return absl::StrCat("leaving: handing in fragment ", wait_.fragment());
    default:
      // The rest takes a moment.
      return phase_ == Phase::kLeaving ? "leaving" : "synchronizing";
  }
}

}  // namespace causeway
