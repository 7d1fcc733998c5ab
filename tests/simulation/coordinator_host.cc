// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/coordinator_host.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace causeway::simulation {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);
// A stream that is silent for this long is abandoned.
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
    // Each process reads the time of day again, which may have been set.
    clock_at_start_ +=
        absl::Seconds(world_->chance.Pick(7200)) - absl::Hours(1);
    clock_rate_ = 0.9 + 0.01 * static_cast<double>(world_->chance.Pick(21));
  }
  std::vector<Coordinator::CommittedFragment> heads;
  for (const v1::Fragment& fragment : scenario_->plan.fragments()) {
    const absl::Status restored = Restore(fragment.id());
    if (!restored.ok()) {
      checker_->Fail("fragment ", fragment.id(),
                     " cannot be taken up: ", restored.message());
    }
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
  checker_->Restarted(*core_, *disk_, now());
  Handle([this](Effects& effects) {
    effects.events.push_back(
        {"coordinator_started", "",
         absl::StrCat("the coordinator starts, ",
                      v1::RunState_Name(core_->run_state()))});
    return absl::OkStatus();
  });
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
  journal_ = {};
  closed_.clear();
  steps_.clear();
  newest_.clear();
  records_since_.clear();
  snapshotting_ = false;
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

void CoordinatorHost::CarryOut(const Effects& effects) {
  KeepQuarantined(effects);
  for (const ContributionKey& key : effects.discarded) staging_->Discard(key);
  closed_.insert(closed_.end(), effects.outer_steps.begin(),
                 effects.outer_steps.end());
  if (effects.view_changed) {
    Publish();
    ServeAwaited();
  }
  BeginOuterSteps();
}

void CoordinatorHost::Publish() {
  for (auto& [id, session] : sessions_) {
    if (session.identity.island_id().empty()) continue;
    const auto news = core_->News(session.identity, session.shown);
    if (news.has_value()) Show(session, *news);
  }
}

void CoordinatorHost::Show(Session& session, const v1::SessionResponse& view) {
  checker_->Shown(session.identity, view);
  session.shown = view;
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
    Handle<absl::Status>(
        [this, at = now()](Effects& effects) {
          core_->Tick(at, effects);
          return absl::OkStatus();
        },
        [this, at = now()](const absl::Status&) {
          checker_->Ticked(*core_, at);
        });
    std::erase_if(sessions_, [this](const auto& entry) {
      return world_->loop.now() - entry.second.heard > kSessionTimeout;
    });
  });
}

void CoordinatorHost::Join(const v1::JoinRequest& request,
                           Reply<v1::JoinResponse> reply) {
  if (!up()) return reply(Down());
  Handle<absl::StatusOr<v1::JoinResponse>>(
      [this, request](Effects& effects) {
        auto response = core_->Join(request, now(), effects);
        if (response.ok()) {
          checker_->Joined(request, *response, effects, now());
        }
        return response;
      },
      std::move(reply));
}

void CoordinatorHost::Leave(const v1::LeaveRequest& request,
                            Reply<v1::LeaveResponse> reply) {
  if (!up()) return reply(Down());
  Handle<absl::StatusOr<v1::LeaveResponse>>(
      [this, request](Effects& effects) -> absl::StatusOr<v1::LeaveResponse> {
        checker_->Calls(request.identity(), now());
        const absl::Status left = core_->Leave(request, now(), effects);
        checker_->Called(request.identity(), left, now());
        RETURN_IF_ERROR(left);
        return v1::LeaveResponse();
      },
      std::move(reply));
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
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  found->second.heard = world_->loop.now();
  Handle<absl::Status>(
      [this, request](Effects& effects) {
        const v1::RunState before = core_->run_state();
        checker_->Calls(request.identity(), now());
        const absl::Status heard = core_->Heartbeat(
            request.identity(), request.progress(), now(), effects);
        checker_->Called(request.identity(), heard, now());
        if (heard.ok() && request.progress().ready()) {
          checker_->ReportedReady(request.identity(), *core_, effects, before);
        }
        return heard;
      },
      [this, session, request](const absl::Status& answer) {
        if (answer.ok() && request.progress().ready()) {
          checker_->ReadyIsDurable(request.identity());
        }
        const auto found = sessions_.find(session);
        if (found == sessions_.end()) return;
        if (!answer.ok()) {
          found->second.publish(answer);
          sessions_.erase(found);
          return;
        }
        found->second.identity = request.identity();
        Show(found->second, core_->View(request.identity()));
      });
}

}  // namespace causeway::simulation
