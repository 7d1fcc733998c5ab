// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/island.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <variant>

#include "worker/outer_loop/retry.h"

namespace causeway::simulation {
namespace {

// The time that a leaving island has to contribute what it has trained.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(20);

}  // namespace

Island::Island(const Parts& parts, uint32_t island,
               std::optional<Checkpoint>* checkpoint)
    : process_(parts, island),
      checkpoint_(checkpoint),
      schedule_(
          *SyncSchedule::Create(parts.scenario->config, parts.scenario->plan)),
      resumed_(checkpoint == nullptr ? std::nullopt : *checkpoint),
      loop_(&process_, LoopOptions()),
      session_(&loop_, [this] { return Progress(); }),
      fetched_(static_cast<size_t>(parts.scenario->plan.fragments_size())) {
  parts.world->Trace("island ", IslandName(island), "   process ",
                     process_.number, " starts");
  loop_.Add([this] { return Step(); });
  loop_.Wake();
}

OuterLoop::Options Island::LoopOptions() const {
  OuterLoop::Options options{.leave_timeout = kLeaveTimeout,
                             .seed = process_.number};
  options.overlap_steps =
      process_.parts.scenario->overlap_steps[process_.island];
  options.join.set_island_id(IslandName(process_.island));
  options.join.set_instance_id(instance());
  if (checkpoint_ != nullptr) options.checkpoint_steps = 1;
  if (!resumed_.has_value()) return options;
  options.join.set_replaces_instance_id(resumed_->last_process);
  // A contribution holds the training of at most this many processes, including
  // this one.
  if (std::all_of(resumed_->fragments.begin(), resumed_->fragments.end(),
                  [](const Checkpoint::Fragment& fragment) {
                    return fragment.beyond.size() < kMostIntervals;
                  })) {
    options.resume = resumed_->position;
  }
  return options;
}

uint64_t Island::TokensPerStep() const {
  return process_.parts.scenario->tokens_per_step[process_.island];
}

v1::IslandProgress Island::Progress() const {
  v1::IslandProgress progress;
  progress.set_run_step(loop_.core().step());
  progress.set_tokens(trained_ * TokensPerStep());
  // The last of many islands has data of its own.
  const bool has_own_data =
      process_.parts.scenario->islands > 2 &&
      process_.island + 1 == process_.parts.scenario->islands;
  progress.set_data_digest(std::string(16, has_own_data ? 'b' : 'a'));
  if (validation_.has_value()) *progress.mutable_validation() = *validation_;
  if (trained_ > 0) {
    progress.set_step_seconds(absl::ToDoubleSeconds(
        process_.parts.scenario->step_time[process_.island]));
    // A link has its own rate, which changes, and sums that may fall.
    progress.set_bytes_up(trained_);
    progress.mutable_uplink()->set_busy_seconds(
        static_cast<double>(trained_) *
        std::ldexp(
            1, static_cast<int>((trained_ / 64 + process_.island) * 5 % 12)));
  }
  return progress;
}

absl::Time Island::Step() {
  if (loop_.core().membership().must_leave()) {
    asked_to_leave_ = std::min(asked_to_leave_, process_.now());
  }
  if (busy_) return absl::InfiniteFuture();
  const TrainerAction next = loop_.core().NextForTrainer(process_.now());
  if (const auto* wait = std::get_if<action::Wait>(&next)) return wait->until;
  busy_ = true;
  std::visit([this](const auto& action) { Do(action); }, next);
  return absl::InfiniteFuture();
}

void Island::Soon(EventLoop::Action action) {
  Chance& chance = process_.parts.world->chance;
  if (!chance.OneIn(4)) return action();
  process_.After(chance.Between(absl::ZeroDuration(), absl::Milliseconds(300)),
                 std::move(action));
}

void Island::Do(const action::FetchParameters& fetch) {
  process_.Call<Version>(
      [host = process_.parts.host,
       request = fetch.request](CoordinatorHost::Reply<Version> reply) {
        host->FetchParameters(request, std::move(reply));
      },
      [this](const absl::StatusOr<Version>& answer) {
        absl::StatusOr<v1::FragmentHead> head = v1::FragmentHead();
        if (answer.ok()) {
          head = answer->head;
          fetched_[head->fragment()] = answer->contents;
        } else {
          head = answer.status();
        }
        Done([&](OuterLoop& core, absl::Time now) {
          core.ParametersAnswered(head, now);
        });
      });
}

void Island::Do(const action::Begin& begin) {
  Chance& chance = process_.parts.world->chance;
  if (!process_.parts.scenario->Has(kSlowLoad) || chance.OneIn(2)) {
    return Begin(begin);
  }
  process_.After(chance.Between(absl::ZeroDuration(), absl::Minutes(1)),
                 [this, begin] { Begin(begin); });
}

void Island::Begin(const action::Begin& begin) {
  left_before_ready_ = loop_.core().membership().must_leave();
  const std::vector<uint32_t> processes =
      process_.parts.checker->commits().ProcessesOf(process_.island);
  for (uint32_t id = 0; id < begin.heads.size(); ++id) {
    Checkpoint::Fragment from{.head = begin.heads[id], .anchor = fetched_[id]};
    if (begin.from_checkpoint) from = resumed_->fragments[id];
    replicas_.push_back(std::make_unique<Replica>(processes, from.head,
                                                  from.anchor, from.beyond));
  }
  sent_at_.resize(replicas_.size());
  // Successors of this process must know of it before it contributes.
  if (checkpoint_ != nullptr && checkpoint_->has_value()) {
    (*checkpoint_)->last_process = instance();
  }
  loop_.core().Begun();
  for (uint32_t id = 0; id < replicas_.size(); ++id) {
    transfers_.push_back(
        std::make_unique<Transfers>(&loop_, replicas_[id].get()));
    Check(id);
  }
  Done([](OuterLoop&, absl::Time) {});
}

void Island::CheckMayTrain(uint64_t step) {
  Checker& checker = *process_.parts.checker;
  const IslandMembership& membership = loop_.core().membership();
  if (membership.state().run_state() == v1::PAUSED) {
    checker.Fail("process ", process_.number, " trains in a pause");
  }
  if (membership.must_leave()) {
    checker.Fail("process ", process_.number, " trains, but is to leave");
  }
  const v1::SynchronizationConfig& sync =
      process_.parts.scenario->config.synchronization();
  for (uint32_t id = 0; id < replicas_.size(); ++id) {
    if (loop_.core().exchange(id).in_flight() &&
        step > sent_at_[id] + loop_.core().overlap_steps() +
                   sync.max_overlap_steps() + 1) {
      checker.Fail("process ", process_.number, " trains step ", step,
                   " without the update of fragment ", id,
                   ", which it sent at step ", sent_at_[id]);
    }
  }
}

bool Island::SettlesFirst(uint64_t step) {
  // Some trainers want to have all updates now and then.
  if (process_.number % 4 != 3 || step % 16 != 5) return false;
  if (std::exchange(settled_step_, step) != step) return true;
  for (uint32_t id = 0; id < replicas_.size(); ++id) {
    if (loop_.core().exchange(id).in_flight()) {
      process_.parts.checker->Fail("process ", process_.number,
                                   " has settled before step ", step,
                                   ", but awaits fragment ", id);
    }
  }
  return false;
}

void Island::Do(const action::Train& train) {
  CheckMayTrain(train.step);
  if (SettlesFirst(train.step)) {
    Soon([this] {
      Done([](OuterLoop& core, absl::Time) { core.SettleFirst(); });
    });
    return;
  }
  process_.After(process_.parts.scenario->step_time[process_.island], [this] {
    ++trained_;
    process_.parts.checker->commits().Trained(TokensPerStep());
    for (const auto& replica : replicas_) replica->Train();
    Done(
        [this](OuterLoop& core, absl::Time) { core.Stepped(TokensPerStep()); });
  });
}

void Island::Do(const action::TakeSnapshot& snapshot) {
  Soon([this, fragment = snapshot.fragment] {
    replicas_[fragment]->TakeSnapshot();
    sent_at_[fragment] = loop_.core().step();
    Done([](OuterLoop& core, absl::Time) { core.SnapshotTaken(); });
  });
}

void Island::Do(const action::Apply& apply) {
  Soon([this, apply] {
    Replica& replica = *replicas_[apply.fragment];
    replica.Apply(apply.includes_island);
    // The earlier processes' contributions beyond the checkpoint are the same
    // training again.
    if (apply.includes_island) {
      const uint64_t booked =
          loop_.core().window(apply.fragment).training().tokens;
      replica.GiveUpTo(booked / TokensPerStep());
    }
    Check(apply.fragment);
    Done([](OuterLoop& core, absl::Time) { core.Applied(); });
  });
}

void Island::Do(const action::Validate& validate) {
  std::vector<v1::FragmentHead> heads;
  for (const auto& replica : replicas_) heads.push_back(replica->head());
  v1::Validation& measured = validation_.emplace();
  measured.set_version(validate.version);
  measured.set_loss(LossOf(heads));
  measured.set_tokens(1);
  Soon([this] { Done([](OuterLoop& core, absl::Time) { core.Validated(); }); });
}

void Island::Do(const action::Save& save) {
  // Often a write is still under way, and a kill at that time leaves nothing of
  // it.
  const bool saves = process_.parts.world->chance.OneIn(4);
  if (saves) SaveState(save.position);
  Done([saves](OuterLoop& core, absl::Time) { core.Saved(saves); });
}

void Island::SaveState(const v1::IslandCheckpoint& position) {
  Checkpoint saved{.position = position, .last_process = instance()};
  for (uint32_t id = 0; id < replicas_.size(); ++id) {
    const Replica& replica = *replicas_[id];
    saved.position.mutable_fragments(static_cast<int>(id))
        ->mutable_anchor()
        ->set_digest(replica.head().digest());
    saved.fragments.push_back({.head = replica.head(),
                               .anchor = replica.anchor(),
                               .beyond = replica.beyond()});
  }
  *checkpoint_ = std::move(saved);
}

void Island::Check(uint32_t id) {
  const Replica& replica = *replicas_[id];
  process_.parts.checker->commits().Holds(process_.number, replica);
  const uint64_t tokens = StepsIn(replica.beyond()) * TokensPerStep();
  const uint64_t booked = loop_.core().window(id).training().tokens;
  if (tokens == booked) return;
  process_.parts.checker->Fail("process ", process_.number, " has ", tokens,
                               " tokens beyond the anchor of fragment ", id,
                               ", but its books say ", booked);
}

void Island::CheckHandedIn() {
  const OuterLoop& core = loop_.core();
  // A run that has not begun takes nothing.
  const v1::RunState state = core.membership().state().run_state();
  if (core.membership().stopping() || left_before_ready_ ||
      state == v1::FINISHED || state == v1::WAITING_FOR_ISLANDS ||
      process_.now() >= asked_to_leave_ + kLeaveTimeout ||
      process_.parts.scenario->IsSilent(process_.island)) {
    return;
  }
  for (uint32_t id = 0; id < replicas_.size(); ++id) {
    const Replica& replica = *replicas_[id];
    // A fragment takes nothing after its last version.
    if (replica.head().version() >= schedule_.FinalVersion(id)) continue;
    if (replica.beyond().empty() || transfers_[id]->HasHandedIn()) continue;
    process_.parts.checker->Fail(
        "process ", process_.number, " leaves with ", StepsIn(replica.beyond()),
        " steps of fragment ", id, " that it has not handed in");
  }
}

std::string Island::Describe() const {
  const OuterLoop& core = loop_.core();
  std::string text = absl::StrCat(
      "process ", process_.number, " is ", process_.dead() ? "dead" : "alive",
      " at step ", core.step(), ", ", core.Activity());
  for (uint32_t id = 0; id < replicas_.size(); ++id) {
    const FragmentExchange& exchange = core.exchange(id);
    absl::StrAppend(&text, ", has version ", exchange.version(),
                    " of fragment ", id,
                    exchange.in_flight() ? " (in flight)" : "",
                    exchange.ready() ? " (ready)" : "", " with ",
                    core.window(id).training().inner_steps, " steps");
  }
  return text;
}

void Island::RequestLeave() {
  const bool at_once = process_.parts.world->chance.OneIn(2);
  loop_.Tell([at_once](OuterLoop& core, absl::Time) {
    if (at_once) {
      core.RequestStop();
    } else {
      core.RequestLeave("told to");
    }
  });
}

void Island::Do(const action::End& end) {
  const absl::Status& status = end.status;
  const bool is_late =
      SaysRunIsFinished(loop_.core().membership().join_error());
  const bool leaves = absl::IsCancelled(status) && !is_late;
  if (leaves) CheckHandedIn();
  if (status.ok() || leaves) return Leave(status);
  process_.parts.world->Trace("island ", IslandName(process_.island),
                              "   process ", process_.number,
                              " ends: ", status.ToString());
  // A process that comes after the run's end learns of it, perhaps from a
  // coordinator that is down again.
  finished_ = process_.parts.checker->commits().Complete(schedule_);
  if (absl::IsOutOfRange(status)) {
    // The replica has diverged. The next process begins with the run's
    // parameters, unless this one is killed before it has given up its own.
    const bool killed = process_.parts.scenario->Has(kIslandKill) &&
                        process_.parts.world->chance.OneIn(2);
    if (checkpoint_ != nullptr && !killed) checkpoint_->reset();
    return process_.Die();
  }
  // The name may be taken until the lease of its last process ends. After any
  // other error the island must be able to continue.
  if (!finished_ && !absl::IsAlreadyExists(status)) {
    process_.parts.checker->Fail("process ", process_.number, ", island ",
                                 IslandName(process_.island),
                                 ", cannot go on: ", status.ToString());
  }
  process_.Die();
}

void Island::Leave(const absl::Status& status) {
  finished_ = status.ok();
  process_.parts.world->Trace("island ", IslandName(process_.island),
                              "   process ", process_.number,
                              finished_ ? " is finished" : " leaves");
  v1::LeaveRequest request;
  *request.mutable_identity() = loop_.core().membership().identity();
  *request.mutable_progress() = Progress();
  request.set_reason(finished_ ? "finished" : std::string(status.message()));
  process_.Call<v1::LeaveResponse>(
      [host = process_.parts.host,
       request](CoordinatorHost::Reply<v1::LeaveResponse> reply) {
        host->Leave(request, std::move(reply));
      },
      [](const absl::StatusOr<v1::LeaveResponse>&) {});
  process_.Die();
}

}  // namespace causeway::simulation
