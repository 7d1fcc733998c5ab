// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/session_call.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "common/transport/chunk_message.h"
#include "proto/coordinator.pb.h"

namespace causeway {
namespace {

class SessionCall : public Call {
 public:
  SessionCall(CallTicket ticket, Engine* engine)
      : Call(std::move(ticket)), engine_(engine) {
    listener_ = engine_->AddListener([this] { Publish(); });
    Read(&received_);
  }

  void OnRead(bool ok) override {
    if (!ok) return FinishOnce(grpc::Status::OK);
    const absl::Status heard = Hear();
    if (!heard.ok()) return FinishOnce(ToGrpcStatus(heard));
    Publish();
    absl::MutexLock lock(&mu_);
    if (!finished_) Read(&received_);
  }

  void OnWritten(bool ok) override {
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

  void OnEnd() override { engine_->RemoveListener(listener_); }

 private:
  absl::Status Hear() {
    v1::SessionRequest request;
    RETURN_IF_ERROR(ParseRequest(received_, request));
    RETURN_IF_ERROR(engine_->Heartbeat(request));
    absl::MutexLock lock(&mu_);
    identity_ = std::move(*request.mutable_identity());
    identified_ = true;
    return absl::OkStatus();
  }

  // Writes the newest view, or does so when the write under way is done: a slow
  // client gets fewer views, never an older one.
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
    grpc::ByteBuffer view = ToByteBuffer(engine_->View(identity));
    absl::MutexLock lock(&mu_);
    if (finished_) return;
    sent_ = std::move(view);
    Write(&sent_);
  }

  void FinishOnce(const grpc::Status& status) {
    absl::MutexLock lock(&mu_);
    if (finished_) return;
    finished_ = true;
    Finish(status);
  }

  Engine* const engine_;
  uint64_t listener_ = 0;
  grpc::ByteBuffer received_;
  grpc::ByteBuffer sent_;

  absl::Mutex mu_;
  v1::IslandIdentity identity_ ABSL_GUARDED_BY(mu_);
  bool identified_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool stale_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

Call* NewSessionCall(CallTicket ticket, Engine* engine) {
  return new SessionCall(std::move(ticket), engine);
}

}  // namespace causeway
