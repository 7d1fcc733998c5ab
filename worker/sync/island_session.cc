// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/island_session.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/backoff.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {

bool IsRetryable(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kCancelled:
      return true;
    default:
      return false;
  }
}

IslandSession::IslandSession(Options options, CoordinatorClient* client,
                             std::function<v1::IslandProgress()> progress)
    : options_(std::move(options)),
      client_(client),
      progress_(std::move(progress)) {}

IslandSession::~IslandSession() { Stop(); }

absl::StatusOr<v1::JoinResponse> IslandSession::Join() {
  Backoff backoff({}, options_.seed);
  v1::JoinRequest request = options_.join;
  while (true) {
    // A run this island was part of is the only one it may come back to.
    request.set_expected_run_id(view().identity.run_id());
    absl::StatusOr<v1::JoinResponse> response = client_->Join(request);
    if (response.ok()) {
      heartbeat_ =
          absl::Seconds(response->config().membership().heartbeat_seconds());
      Publish([&](IslandView& view) {
        view.identity = response->identity();
        *view.state.mutable_heads() = response->heads();
        *view.state.mutable_first_contribution_version() =
            response->first_contribution_version();
        view.state.set_run_state(response->run_state());
        view.state.set_run_step(response->run_step());
      });
      return response;
    }
    if (!IsRetryable(response.status())) return response;
    const absl::Duration pause = backoff.Next();
    LOG(WARNING) << "cannot join: " << response.status().message()
                 << "; next try in " << absl::FormatDuration(pause);
    if (!Sleep(pause)) return absl::CancelledError("stopped while joining");
  }
}

void IslandSession::Start() {
  thread_ = std::thread([this] { Run(); });
}

void IslandSession::Run() {
  Backoff backoff({}, options_.seed + 1);
  while (!view().stopping) {
    const uint64_t before = view().connection;
    absl::Status status = RunStream();
    Publish([](IslandView& view) { view.connected = false; });
    if (view().stopping) return;
    if (view().connection != before) backoff.Reset();
    if (status.code() == absl::StatusCode::kAborted) {
      LOG(WARNING) << "the coordinator dropped this island ("
                   << status.message() << "); joining again";
      status = Join().status();
      if (status.ok()) continue;
    }
    if (!status.ok() && !IsRetryable(status)) {
      Publish([&](IslandView& view) { view.failure = status; });
      return;
    }
    const absl::Duration pause = backoff.Next();
    LOG(WARNING) << "control stream ended"
                 << (status.ok()
                         ? ""
                         : absl::StrCat(": ", std::string(status.message())))
                 << "; training goes on, next try in "
                 << absl::FormatDuration(pause);
    if (!Sleep(pause)) return;
  }
}

absl::Status IslandSession::RunStream() {
  const std::unique_ptr<ControlStream> stream = client_->OpenSession();
  {
    absl::MutexLock lock(&mu_);
    if (view_.stopping) return absl::CancelledError("stopped");
    stream_ = stream.get();
  }
  bool first = true;
  std::thread reader([&] {
    v1::SessionResponse response;
    while (stream->Read(&response)) {
      Publish([&](IslandView& view) {
        view.state = response;
        view.connected = true;
        if (first) ++view.connection;
      });
      first = false;
    }
    // Wakes the writer below.
    Publish([](IslandView& view) { view.connected = false; });
    absl::MutexLock lock(&mu_);
    stream_ = nullptr;
  });
  v1::SessionRequest request;
  while (true) {
    request.mutable_identity()->CopyFrom(view().identity);
    *request.mutable_progress() = progress_();
    if (!stream->Write(request)) break;
    absl::MutexLock lock(&mu_);
    const auto broken = [this] {
      mu_.AssertReaderHeld();
      return stream_ == nullptr || view_.stopping;
    };
    if (mu_.AwaitWithTimeout(absl::Condition(&broken), heartbeat_)) break;
  }
  // A reader that still waits must not keep us: the stream is of no more use.
  {
    absl::MutexLock lock(&mu_);
    if (stream_ != nullptr && view_.stopping) stream_->Cancel();
  }
  reader.join();
  return stream->Finish();
}

bool IslandSession::Sleep(absl::Duration duration) {
  absl::MutexLock lock(&mu_);
  const auto stopping = [this] {
    mu_.AssertReaderHeld();
    return view_.stopping;
  };
  return !mu_.AwaitWithTimeout(absl::Condition(&stopping), duration);
}

void IslandSession::Publish(const std::function<void(IslandView&)>& change) {
  absl::MutexLock lock(&mu_);
  change(view_);
  ++view_.generation;
}

IslandView IslandSession::view() const {
  absl::MutexLock lock(&mu_);
  return view_;
}

IslandView IslandSession::AwaitChange(uint64_t seen,
                                      absl::Duration timeout) const {
  absl::MutexLock lock(&mu_);
  const auto changed = [this, seen] {
    mu_.AssertReaderHeld();
    return view_.generation != seen || view_.stopping;
  };
  mu_.AwaitWithTimeout(absl::Condition(&changed), timeout);
  return view_;
}

void IslandSession::Wake() {
  Publish([](IslandView&) {});
}

void IslandSession::RequestLeave(absl::string_view reason) {
  Publish([&](IslandView& view) {
    view.leaving = true;
    view.leave_reason = std::string(reason);
  });
}

void IslandSession::RequestStop() {
  absl::MutexLock lock(&mu_);
  view_.stopping = true;
  ++view_.generation;
  if (stream_ != nullptr) stream_->Cancel();
}

void IslandSession::Stop() {
  RequestStop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace causeway
