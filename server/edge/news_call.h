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
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/listeners.h"
#include "common/transport/grpc_status.h"
#include "grpcpp/grpcpp.h"
#include "server/edge/call.h"
#include "server/edge/disk_threads.h"

namespace causeway {

// Makes and sends one message at a time, and asks for the next when it is sent
// or when there is news.
class NewsCall : public Call {
 public:
  void OnWritten(bool ok) override {
    // During a long call, a certificate may expire or be revoked.
    const absl::Status allowed = caller().Check();
    {
      // Once the lock is free, Write has returned.
      absl::MutexLock lock(&mu_);
      if (!ok || !allowed.ok()) SetEnd(ToGrpcStatus(allowed));
    }
    Continue();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnEnd() override { news_->Remove(listener_); }

 protected:
  // Messages are made on the threads of the call; if it has none, on the thread
  // that has the news or has sent the previous message. `news` outlives the
  // call.
  NewsCall(BegunCall begun, Listeners* news)
      : Call(std::move(begun)), news_(news), makers_(threads()) {}

  // Returns the next message, if there is one now; an error ends the call.
  // `has_news` says whether there was news since the last time. Called by one
  // thread at a time, without mu_.
  virtual absl::StatusOr<std::optional<grpc::ByteBuffer>> Next(
      bool has_news) = 0;

  // Begins to listen to the news. Next or the constructor calls it once.
  void Listen() {
    listener_ = news_->Add([this] { OnNews(); });
  }
  // For Next: has further messages made on `threads`, which outlive the call.
  void ContinueOn(DiskThreads* threads) { makers_ = threads; }

  void OnNews() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      has_news_ = true;
      if (busy_ || ended_) return;
      busy_ = true;
    }
    Continue();
  }

  // Reads the next message, unless the call ends.
  void ReadOn() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (!ended_) Read(&received_);
  }

  // Ends the call, after the message that is being made or sent.
  void End(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (SetEnd(status) && !busy_) Finish(status);
  }

  grpc::ByteBuffer received_;
  absl::Mutex mu_;

 private:
  // Returns false if the call ends already.
  bool SetEnd(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (ended_) return false;
    end_ = status;
    ended_ = true;
    return true;
  }

  // Makes the next message, or ends the call. The call must be busy.
  void Continue() {
    if (makers_ == nullptr) return MakeNext();
    makers_->Run([this] { MakeNext(); });
  }
  void MakeNext() {
    grpc::Status end;
    while (true) {
      bool has_news = false;
      {
        absl::MutexLock lock(&mu_);
        end = end_;
        if (ended_) break;
        has_news = std::exchange(has_news_, false);
      }
      absl::StatusOr<std::optional<grpc::ByteBuffer>> message = Next(has_news);
      absl::MutexLock lock(&mu_);
      if (message.ok() && message->has_value()) {
        sent_ = **std::move(message);
        return Write(&sent_);
      }
      if (!message.ok()) SetEnd(ToGrpcStatus(message.status()));
      if (has_news_ || ended_) continue;
      busy_ = false;
      return;
    }
    Finish(end);
  }

  Listeners* const news_;
  uint64_t listener_ = 0;
  // Changed only while the call is busy.
  DiskThreads* makers_;
  grpc::ByteBuffer sent_;
  bool has_news_ ABSL_GUARDED_BY(mu_) = false;
  // True while a message is being made or sent. Then the call must not finish,
  // which would destroy it.
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // SERVER_EDGE_NEWS_CALL_H_
