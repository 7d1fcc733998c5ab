// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The base of calls that send messages when there is news.
#ifndef SERVER_EDGE_NEWS_CALL_H_
#define SERVER_EDGE_NEWS_CALL_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/listeners.h"
#include "common/transport/grpc_status.h"
#include "grpcpp/grpcpp.h"
#include "server/edge/call.h"

namespace causeway {

// Writes one message at a time, and asks for the next when it is sent or when
// there is news.
class NewsCall : public Call {
 public:
  void OnWritten(bool ok) override {
    // During a long call, a certificate may expire or be revoked.
    const absl::Status allowed = caller().Check();
    absl::MutexLock lock(&mu_);
    if (!ok || !allowed.ok()) return FinishOnce(ToGrpcStatus(allowed));
    writing_ = false;
    Advance();
  }

  void OnCancel() override {
    absl::MutexLock lock(&mu_);
    FinishOnce(grpc::Status::CANCELLED);
  }

  void OnEnd() override { news_->Remove(listener_); }

 protected:
  // `news` outlives the call.
  NewsCall(BegunCall begun, Listeners* news)
      : Call(std::move(begun)), news_(news) {}

  void Listen() {
    listener_ = news_->Add([this] { OnNews(); });
  }

  void OnNews() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    has_news_ = true;
    Advance();
  }

  // Returns the next message, if there is one now. May clear has_news_, and may
  // end the call.
  virtual std::optional<grpc::ByteBuffer> Next()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;

  void FinishOnce(const grpc::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!finished_) Finish(status);
    finished_ = true;
  }

  grpc::ByteBuffer received_;
  absl::Mutex mu_;
  bool has_news_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;

 private:
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || finished_) return;
    std::optional<grpc::ByteBuffer> message = Next();
    if (!message.has_value()) return;
    sent_ = *std::move(message);
    writing_ = true;
    Write(&sent_);
  }

  Listeners* const news_;
  uint64_t listener_ = 0;
  grpc::ByteBuffer sent_;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace causeway

#endif  // SERVER_EDGE_NEWS_CALL_H_
