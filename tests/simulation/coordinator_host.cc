// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/coordinator_host.h"

#include <string>
#include <utility>
#include <vector>

#include "common/status_macros.h"

namespace causeway::simulation {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);
// A stream that is silent for this long is given up.
constexpr absl::Duration kSessionTimeout = absl::Seconds(30);
// Enough for a contribution of every island to every fragment, twice.
constexpr uint64_t kStagingBytes = 1 << 14;

}  // namespace

CoordinatorHost::CoordinatorHost(const Scenario* scenario, World* world,
                                 Disk* disk, Checker* checker)
    : scenario_(scenario), world_(world), disk_(disk), checker_(checker) {}

absl::Time CoordinatorHost::now() const {
  return clock_at_start_ + (world_->loop.now() - started_at_) * clock_rate_;
}

void CoordinatorHost::Start() {
  ++life_;
  started_at_ = world_->loop.now();
  clock_at_start_ = started_at_;
  if (scenario_->Has(kClockSkew)) {
    // Each process reads the time of day anew, and somebody may have set it.
    clock_at_start_ +=
        absl::Seconds(world_->chance.Pick(7200)) - absl::Hours(1);
    clock_rate_ = 0.9 + 0.01 * static_cast<double>(world_->chance.Pick(21));
  }
  std::vector<Coordinator::CommittedFragment> heads;
  for (const v1::Fragment& fragment : scenario_->plan.fragments()) {
    // Contributions that are not outliers have a smaller Norm().
    heads.push_back({.head = disk_->commits(fragment.id()).back().head,
                     .parameter_norm = 20});
  }
  std::vector<Member> members;
  for (const auto& [name, member] : disk_->members()) members.push_back(member);
  core_.emplace(Coordinator::Options{.run_id = kRunId,
                                     .config = scenario_->config,
                                     .plan = scenario_->plan,
                                     .schedule = *SyncSchedule::Create(
                                         scenario_->config, scenario_->plan)},
                std::move(heads), std::move(members), now(), disk_->History());
  staging_.emplace(kStagingBytes);
  world_->Trace("coordinator starts, ", v1::RunState_Name(core_->run_state()));
  checker_->Restarted(*core_, *disk_, now());
  Effects effects;
  effects.events.push_back({"coordinator_started", "", ""});
  Enter([this, effects] { Settle(effects, [](const absl::Status&) {}); });
  Tick();
}

void CoordinatorHost::Kill() {
  world_->Trace("coordinator is killed");
  ++life_;
  core_.reset();
  staging_.reset();
  sessions_.clear();
  awaited_updates_.clear();
  busy_ = false;
  waiting_.clear();
  unwritten_ = {};
  orders_.clear();
  merging_ = false;
  admitted_.clear();
  doubtful_.reset();
  disk_->Crash();
}

void CoordinatorHost::Enter(EventLoop::Action event) {
  waiting_.push_back(std::move(event));
  while (!busy_ && !waiting_.empty()) {
    const EventLoop::Action next = std::move(waiting_.front());
    waiting_.pop_front();
    next();
    if (up()) checker_->Inspect(*core_, *staging_);
  }
}

void CoordinatorHost::Settle(Effects effects,
                             std::function<void(const absl::Status&)> answer) {
  checker_->Saw(effects, *core_, now());
  for (const auto* members :
       {&effects.joined, &effects.ended, &effects.changed}) {
    unwritten_.members.insert(unwritten_.members.end(), members->begin(),
                              members->end());
  }
  unwritten_.accounts.insert(unwritten_.accounts.end(),
                             effects.accounts.begin(), effects.accounts.end());
  unwritten_.quarantine.insert(unwritten_.quarantine.end(),
                               effects.quarantine.begin(),
                               effects.quarantine.end());
  if (effects.flags.has_value()) unwritten_.flags = effects.flags;
  unwritten_.validations.insert(unwritten_.validations.end(),
                                effects.validations.begin(),
                                effects.validations.end());
  unwritten_.events += effects.late.size();
  for (const CoordinatorEvent& event : effects.events) {
    if (!event.text.empty()) world_->Trace("event      ", event.text);
    ++unwritten_.events;
    effects.view_changed = true;
  }
  if (unwritten_.empty()) {
    CarryOut(effects);
    answer(absl::OkStatus());
    return;
  }
  busy_ = true;
  disk_->Write(unwritten_, absl::ZeroDuration(),
               [this, effects = std::move(effects),
                answer = std::move(answer)](const absl::Status& written) {
                 busy_ = false;
                 if (written.ok()) unwritten_ = {};
                 CarryOut(effects);
                 answer(written.ok() ? written
                                     : absl::UnavailableError(
                                           "cannot write the commit log"));
                 Enter([] {});
               });
}

void CoordinatorHost::CarryOut(const Effects& effects) {
  KeepQuarantined(effects);
  for (const ContributionKey& key : effects.discarded) {
    staging_->Discard(key);
    admitted_.erase(key);
  }
  orders_.insert(orders_.end(), effects.outer_steps.begin(),
                 effects.outer_steps.end());
  if (effects.view_changed) {
    Publish();
    ServeAwaited();
  }
  BeginOuterStep();
}

void CoordinatorHost::Publish() {
  for (const auto& [id, session] : sessions_) {
    if (!session.identity.island_id().empty()) ShowView(session);
  }
}

void CoordinatorHost::ShowView(const Session& session) {
  const v1::SessionResponse view = core_->View(session.identity);
  checker_->Shown(session.identity, view);
  session.publish(view);
}

void CoordinatorHost::Tick() {
  world_->loop.After(kTick, [this, life = life_] {
    if (life != life_) return;
    Tick();
    if (disk_->poisoned() && !busy_ && world_->chance.OneIn(10)) Reconcile();
    // A tick that would have to wait is dropped, because the next one does its
    // work.
    if (busy_) return;
    Enter([this] {
      Effects effects;
      core_->Tick(now(), effects);
      Settle(std::move(effects), [](const absl::Status&) {});
      checker_->Ticked(*core_, now());
    });
    std::erase_if(sessions_, [this](const auto& entry) {
      return world_->loop.now() - entry.second.heard > kSessionTimeout;
    });
  });
}

void CoordinatorHost::Join(const v1::JoinRequest& request,
                           Reply<v1::JoinResponse> reply) {
  if (!up()) return reply(Down());
  Enter([this, request, reply = std::move(reply)] {
    Effects effects;
    absl::StatusOr<v1::JoinResponse> response =
        core_->Join(request, now(), effects);
    if (response.ok()) {
      checker_->Joined(request, *response, effects, now());
    }
    Settle(std::move(effects), [reply, response](const absl::Status& written) {
      if (!written.ok()) return reply(written);
      reply(response);
    });
  });
}

void CoordinatorHost::Leave(const v1::LeaveRequest& request,
                            Reply<v1::LeaveResponse> reply) {
  if (!up()) return reply(Down());
  Enter([this, request, reply = std::move(reply)] {
    Effects effects;
    checker_->Calls(request.identity(), now());
    const absl::Status left = core_->Leave(request, now(), effects);
    checker_->Called(request.identity(), left, now());
    if (!left.ok()) return reply(left);
    Settle(std::move(effects), [reply](const absl::Status& written) {
      if (!written.ok()) return reply(written);
      reply(v1::LeaveResponse());
    });
  });
}

bool CoordinatorHost::IsOutOfRange() {
  return scenario_->Has(kOutlier) && outliers_ && world_->chance.OneIn(12);
}

uint64_t CoordinatorHost::OpenSession(Reply<v1::SessionResponse> publish) {
  if (!up()) {
    publish(Down());
    return 0;
  }
  sessions_[next_session_] = {.publish = std::move(publish),
                              .heard = world_->loop.now()};
  return next_session_++;
}

void CoordinatorHost::Heartbeat(uint64_t session,
                                const v1::SessionRequest& request) {
  if (!up()) return;
  Enter([this, session, request] {
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return;
    found->second.heard = world_->loop.now();
    const v1::RunState before = core_->run_state();
    Effects effects;
    checker_->Calls(request.identity(), now());
    const absl::Status heard = core_->Heartbeat(
        request.identity(), request.progress(), now(), effects);
    checker_->Called(request.identity(), heard, now());
    if (!heard.ok()) {
      found->second.publish(heard);
      sessions_.erase(found);
      return;
    }
    const bool ready = request.progress().ready();
    if (ready) {
      checker_->ReportedReady(request.identity(), *core_, effects, before);
    }
    Settle(std::move(effects),
           [this, session, request, ready](const absl::Status& written) {
             if (ready && written.ok()) {
               checker_->ReadyIsDurable(request.identity());
             }
             const auto found = sessions_.find(session);
             if (found == sessions_.end()) return;
             if (!written.ok()) {
               found->second.publish(written);
               sessions_.erase(found);
               return;
             }
             found->second.identity = request.identity();
             ShowView(found->second);
           });
  });
}

absl::Status CoordinatorHost::CheckMember(const v1::IslandIdentity& identity) {
  absl::Status member = core_->Check(identity);
  checker_->Checked(identity, member);
  return member;
}

void CoordinatorHost::BeginOuterStep() {
  if (merging_ || orders_.empty()) return;
  const OuterStepOrder order = std::move(orders_.front());
  orders_.pop_front();
  merging_ = true;
  const absl::Duration work = world_->chance.Between(
      absl::Milliseconds(20),
      world_->chance.OneIn(8) ? absl::Seconds(4) : absl::Milliseconds(300));
  absl::StatusOr<Commit> commit = Merge(order);
  if (IsOutOfRange()) {
    commit = absl::OutOfRangeError("the result is not finite");
  }
  if (!commit.ok()) {
    world_->loop.After(work,
                       [this, life = life_, order, status = commit.status()] {
                         if (life == life_) EndOuterStep(order, status);
                       });
    return;
  }
  disk_->Write({.commit = *commit, .admitted = order.admitted}, work,
               [this, order, head = commit->head](const absl::Status& written) {
                 if (absl::IsUnknown(written)) {
                   doubtful_ = {order, head};
                   return Enter([this, order, written] {
                     Effects effects;
                     core_->OuterStepInDoubt(order, written, effects);
                     Settle(std::move(effects), [](const absl::Status&) {});
                   });
                 }
                 if (!written.ok()) return EndOuterStep(order, written);
                 EndOuterStep(order, head);
               });
}

void CoordinatorHost::Reconcile() {
  const bool found = disk_->Reconcile();
  if (!doubtful_.has_value()) return;
  const auto [order, head] = *std::exchange(doubtful_, std::nullopt);
  if (found) return EndOuterStep(order, head);
  EndOuterStep(order, absl::UnavailableError("it was not written"));
}

absl::StatusOr<Commit> CoordinatorHost::Merge(
    const OuterStepOrder& order) const {
  const Commit& before = disk_->commits(order.fragment).back();
  Commit after{.head = before.head,
               .contents = before.contents,
               .merged = order.contributions};
  std::vector<std::string> encodings;
  for (const v1::ContributionHeader& header : order.contributions) {
    const auto admitted = admitted_.find(KeyOf(header));
    if (admitted != admitted_.end()) {
      encodings.push_back(admitted->second);
    } else {
      ASSIGN_OR_RETURN(const StagedEncoding staged,
                       staging_->Get(KeyOf(header)));
      encodings.emplace_back(staged.bytes);
    }
    after.intervals.push_back(DecodeIntervals(encodings.back()));
    for (const Interval& interval : after.intervals.back()) {
      after.contents[interval.process] = interval.end;
    }
  }
  after.head.set_version(order.base_version + 1);
  after.head.set_digest(NextDigest(before.head.digest(), encodings));
  return after;
}

void CoordinatorHost::EndOuterStep(
    const OuterStepOrder& order, const absl::StatusOr<v1::FragmentHead>& head) {
  Enter([this, order, head] {
    merging_ = false;
    Effects effects;
    checker_->OuterStepEnds(order.fragment, head.ok(), now());
    if (head.ok()) {
      for (const CoordinatorEvent& event :
           core_->CommitEvents(order, {.head = *head})) {
        world_->Trace("event      ", event.text);
      }
      core_->OuterStepCommitted(order, {.head = *head}, now(), effects);
      staging_->DiscardBefore(order.fragment, head->version());
    } else {
      core_->OuterStepFailed(order, head.status(), now(), effects);
    }
    if (absl::IsOutOfRange(head.status())) {
      checker_->SetAside(order, *core_, effects);
    }
    Settle(std::move(effects), [](const absl::Status&) {});
  });
}

}  // namespace causeway::simulation
