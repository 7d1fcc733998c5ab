// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/session_actor.h"

#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/printable.h"
#include "glog/logging.h"

namespace causeway {

SessionActor::SessionActor(CoordinatorClient* client, SharedOuterLoop* loop,
                           std::function<v1::IslandProgress()> progress)
    : client_(client), loop_(loop), progress_(std::move(progress)) {
  thread_ = std::thread([this] { Run(); });
}

SessionActor::~SessionActor() { thread_.join(); }

void SessionActor::Run() {
  while (true) {
    const SessionAction next = loop_->AwaitSessionAction();
    if (std::holds_alternative<action::End>(next)) return;
    if (const auto* join = std::get_if<action::Join>(&next)) {
      const absl::StatusOr<v1::JoinResponse> response =
          client_->Join(join->request);
      loop_->Tell([&](OuterLoop& core, absl::Time now) {
        core.membership().JoinAnswered(response, now);
        const absl::Status& error = core.membership().join_error();
        LOG_IF(WARNING, !error.ok() && !core.membership().stopping())
            << "cannot join: " << error.message();
      });
    } else if (std::holds_alternative<action::OpenStream>(next)) {
      OpenStream();
    } else if (const auto* heartbeat = std::get_if<action::Heartbeat>(&next)) {
      v1::SessionRequest request;
      *request.mutable_identity() = heartbeat->identity;
      *request.mutable_progress() = progress_();
      request.mutable_progress()->set_ready(heartbeat->ready);
      const bool sent = stream_->Write(request);
      loop_->Tell([&](OuterLoop& core, absl::Time now) {
        if (sent) {
          core.membership().HeartbeatSent(*heartbeat, now);
        } else {
          core.membership().StreamBroke();
        }
      });
    } else if (const auto* close = std::get_if<action::CloseStream>(&next)) {
      absl::Status status = CloseStream(close->cancel);
      if (close->is_silent && absl::IsCancelled(status)) {
        status = absl::UnavailableError(
            "the coordinator has not answered for half of the lease");
      }
      loop_->Tell([&](OuterLoop& core, absl::Time now) {
        if (!core.membership().stopping()) {
          // While the coordinator is away, every stream ends at once.
          LOG_EVERY_T(WARNING, 10) << "the control stream has ended: " << status
                                   << "; training continues";
        }
        core.membership().StreamEnded(status, now);
      });
    }
  }
}

void SessionActor::OpenStream() {
  stream_ = client_->OpenSession();
  reader_ = std::thread([this] {
    v1::SessionResponse response;
    while (stream_->Read(&response)) {
      if (response.message() != message_) {
        message_ = response.message();
        LOG_IF(WARNING, !message_.empty())
            << "the coordinator says: " << Printable(message_);
      }
      loop_->Tell([&](OuterLoop& core, absl::Time now) {
        core.membership().ViewArrived(response, now);
      });
    }
    loop_->Tell(
        [](OuterLoop& core, absl::Time) { core.membership().StreamBroke(); });
  });
  loop_->Tell([](OuterLoop& core, absl::Time now) {
    core.membership().StreamOpened(now);
  });
}

absl::Status SessionActor::CloseStream(bool cancel) {
  if (cancel) stream_->Cancel();
  reader_.join();
  const absl::Status status = stream_->Finish();
  stream_.reset();
  return status;
}

}  // namespace causeway
