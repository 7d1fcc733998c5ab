// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/session_reactor.h"

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc_status.h"

namespace causeway {
namespace {

class SessionReactor
    : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse> {
 public:
  explicit SessionReactor(Engine* engine) : engine_(engine) {
    listener_ = engine_->AddListener([this] { Publish(); });
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return FinishOnce(grpc::Status::OK);
    const absl::Status heard = engine_->Heartbeat(request_);
    if (!heard.ok()) return FinishOnce(ToGrpcStatus(heard));
    {
      absl::MutexLock lock(&mu_);
      identity_ = request_.identity();
      identified_ = true;
    }
    Publish();
    absl::MutexLock lock(&mu_);
    if (!finished_) StartRead(&request_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return FinishOnce(grpc::Status::OK);
    bool again;
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
      again = stale_;
    }
    if (again) Publish();
  }

  void OnCancel() override { FinishOnce(grpc::Status::CANCELLED); }

  void OnDone() override {
    engine_->RemoveListener(listener_);
    delete this;
  }

 private:
  // Writes the newest view, or remembers to when the write under way is done:
  // a slow client gets fewer views, never an older one.
  void Publish() {
    v1::IslandIdentity identity;
    {
      absl::MutexLock lock(&mu_);
      if (finished_ || !identified_) return;
      if (writing_) {
        stale_ = true;
        return;
      }
      writing_ = true;
      stale_ = false;
      identity = identity_;
    }
    v1::SessionResponse view = engine_->View(identity);
    absl::MutexLock lock(&mu_);
    if (finished_) return;
    response_ = std::move(view);
    StartWrite(&response_);
  }

  void FinishOnce(const grpc::Status& status) {
    absl::MutexLock lock(&mu_);
    if (finished_) return;
    finished_ = true;
    Finish(status);
  }

  Engine* const engine_;
  uint64_t listener_ = 0;
  v1::SessionRequest request_;
  v1::SessionResponse response_;

  absl::Mutex mu_;
  v1::IslandIdentity identity_ ABSL_GUARDED_BY(mu_);
  bool identified_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool stale_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>*
NewSessionReactor(Engine* engine) {
  return new SessionReactor(engine);
}

}  // namespace causeway
