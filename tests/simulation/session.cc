// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/session.h"

#include <utility>
#include <variant>

namespace causeway::simulation {

Session::Session(ActorLoop* loop, std::function<v1::IslandProgress()> progress)
    : loop_(loop), process_(&loop->process()), progress_(std::move(progress)) {
  loop_->Add([this] { return Step(); });
}

absl::Time Session::Step() {
  if (joining_) return absl::InfiniteFuture();
  const SessionAction next = loop_->core().NextForSession(process_->now());
  if (const auto* wait = std::get_if<action::Wait>(&next)) return wait->until;
  if (const auto* join = std::get_if<action::Join>(&next)) {
    Join(join->request);
  } else if (std::holds_alternative<action::OpenStream>(next)) {
    OpenStream();
  } else if (const auto* heartbeat = std::get_if<action::Heartbeat>(&next)) {
    SendHeartbeat(*heartbeat);
  } else if (const auto* close = std::get_if<action::CloseStream>(&next)) {
    ++stream_;
    const absl::Status status =
        close->cancel ? absl::CancelledError("closed here") : ended_;
    loop_->Tell([&](OuterLoop& core, absl::Time now) {
      core.membership().StreamEnded(status, now);
    });
  }
  return absl::InfiniteFuture();
}

void Session::Join(const v1::JoinRequest& request) {
  joining_ = true;
  process_->Call<v1::JoinResponse>(
      [host = process_->parts.host,
       request](CoordinatorHost::Reply<v1::JoinResponse> reply) {
        host->Join(request, std::move(reply));
      },
      [this](const absl::StatusOr<v1::JoinResponse>& response) {
        joining_ = false;
        if (response.ok()) {
          process_->parts.checker->Admitted(process_->number,
                                            response->identity());
          process_->parts.world->Trace(
              "island ", response->identity().island_id(), "   process ",
              process_->number, " is a member, incarnation ",
              response->identity().incarnation());
        }
        loop_->Tell([&](OuterLoop& core, absl::Time now) {
          core.membership().JoinAnswered(response, now);
        });
      });
}

void Session::OpenStream() {
  const uint64_t stream = ++stream_;
  up_ = std::make_shared<Lane>();
  id_ = std::make_shared<uint64_t>(0);
  const auto publish = [this, stream, down = std::make_shared<Lane>()](
                           const absl::StatusOr<v1::SessionResponse>& view) {
    process_->parts.network->SendOn(
        process_->island, down, [this, stream, view] {
          process_->Deliver([this, stream, view] { Hear(stream, view); });
        });
  };
  process_->parts.network->SendOn(
      process_->island, up_, [host = process_->parts.host, id = id_, publish] {
        *id = host->OpenSession(publish);
      });
  loop_->Tell([](OuterLoop& core, absl::Time now) {
    core.membership().StreamOpened(now);
  });
}

void Session::SendHeartbeat(const action::Heartbeat& heartbeat) {
  v1::SessionRequest request;
  *request.mutable_identity() = heartbeat.identity;
  *request.mutable_progress() = progress_();
  request.mutable_progress()->set_ready(heartbeat.ready);
  process_->parts.network->SendOn(
      process_->island, up_, [host = process_->parts.host, id = id_, request] {
        host->Heartbeat(*id, request);
      });
  loop_->Tell([&](OuterLoop& core, absl::Time now) {
    core.membership().HeartbeatSent(heartbeat, now);
  });
}

void Session::Hear(uint64_t stream,
                   const absl::StatusOr<v1::SessionResponse>& view) {
  if (stream != stream_) return;
  if (!view.ok()) {
    ended_ = view.status();
    return loop_->Tell(
        [](OuterLoop& core, absl::Time) { core.membership().StreamBroke(); });
  }
  for (const v1::FragmentHead& head : view->heads()) {
    process_->parts.checker->commits().Heard(head);
  }
  loop_->Tell([&](OuterLoop& core, absl::Time now) {
    core.membership().ViewArrived(*view, now);
  });
}

}  // namespace causeway::simulation
