// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/session.h"

#include <utility>

#include "worker/sync/island_session.h"

namespace causeway::simulation {

Session::Session(Process* process, uint64_t instance, uint64_t replaces,
                 Callbacks callbacks)
    : process_(process),
      instance_(instance),
      replaces_(replaces),
      callbacks_(std::move(callbacks)),
      heartbeat_(absl::Seconds(
          process->parts.scenario->config.membership().heartbeat_seconds())),
      join_backoff_({}, instance),
      stream_backoff_({}, instance + 1) {}

void Session::Join(std::function<void(const v1::JoinResponse&)> done) {
  v1::JoinRequest request;
  request.set_island_id(IslandName(process_->island));
  request.set_instance_id(instance_);
  request.set_replaces_instance_id(replaces_);
  request.set_expected_run_id(identity_.run_id());
  const auto answered = [this, done = std::move(done)](
                            const absl::StatusOr<v1::JoinResponse>& response) {
    if (response.ok()) {
      join_backoff_.Reset();
      identity_ = response->identity();
      *state_.mutable_heads() = response->heads();
      *state_.mutable_first_contribution_version() =
          response->first_contribution_version();
      state_.set_run_state(response->run_state());
      state_.set_run_step(response->run_step());
      process_->parts.checker->Admitted(process_->number, identity_);
      process_->parts.world->Trace(
          "island ", identity_.island_id(), "   process ", process_->number,
          " is a member, incarnation ", identity_.incarnation());
      done(*response);
      callbacks_.wake();
    } else if (IsRetryable(response.status())) {
      process_->After(join_backoff_.Next(), [this, done] { Join(done); });
    } else {
      callbacks_.fail(response.status());
    }
  };
  process_->Call<v1::JoinResponse>(
      [host = process_->parts.host,
       request](CoordinatorHost::Reply<v1::JoinResponse> reply) {
        host->Join(request, std::move(reply));
      },
      answered);
}

void Session::OpenStream() {
  const uint64_t stream = ++stream_;
  heard_ = process_->parts.world->loop.now();
  const auto up = std::make_shared<Lane>();
  const auto down = std::make_shared<Lane>();
  // Of the coordinator: its number of the stream.
  const auto id = std::make_shared<uint64_t>(0);
  const auto publish = [this, stream,
                        down](const absl::StatusOr<v1::SessionResponse>& view) {
    process_->parts.network->SendOn(
        process_->island, down, [this, stream, view] {
          process_->Deliver([this, stream, view] { Hear(stream, view); });
        });
  };
  process_->parts.network->SendOn(process_->island, up,
                                  [host = process_->parts.host, id, publish] {
                                    *id = host->OpenSession(publish);
                                  });
  Beat(stream, up, id);
  Watch(stream);
}

void Session::Beat(uint64_t stream, const std::shared_ptr<Lane>& up,
                   const std::shared_ptr<uint64_t>& id) {
  if (stream != stream_) return;
  v1::SessionRequest request;
  *request.mutable_identity() = identity_;
  *request.mutable_progress() = callbacks_.progress();
  process_->parts.network->SendOn(process_->island, up,
                                  [host = process_->parts.host, id, request] {
                                    host->Heartbeat(*id, request);
                                  });
  process_->After(heartbeat_, [this, stream, up, id] { Beat(stream, up, id); });
}

// Every heartbeat is answered by a view; a stream without one is broken.
void Session::Watch(uint64_t stream) {
  if (stream != stream_) return;
  if (process_->parts.world->loop.now() - heard_ > 3 * heartbeat_) {
    return End(absl::UnavailableError("the stream is silent"));
  }
  process_->After(heartbeat_, [this, stream] { Watch(stream); });
}

void Session::Hear(uint64_t stream,
                   const absl::StatusOr<v1::SessionResponse>& view) {
  if (stream != stream_) return;
  if (!view.ok()) return End(view.status());
  heard_ = process_->parts.world->loop.now();
  state_ = *view;
  if (!connected_) {
    connected_ = true;
    ++connection_;
    stream_backoff_.Reset();
  }
  for (const v1::FragmentHead& head : state_.heads()) {
    process_->parts.checker->commits().Heard(head);
  }
  callbacks_.wake();
}

void Session::End(const absl::Status& status) {
  ++stream_;
  connected_ = false;
  if (absl::IsAborted(status)) {
    Join([this](const v1::JoinResponse&) { OpenStream(); });
  } else if (IsRetryable(status)) {
    process_->After(stream_backoff_.Next(), [this, stream = stream_] {
      if (stream == stream_) OpenStream();
    });
  } else {
    callbacks_.fail(status);
  }
}

}  // namespace causeway::simulation
