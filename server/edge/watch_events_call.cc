// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/watch_events_call.h"

#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc_status.h"
#include "common/transport/chunk_message.h"
#include "proto/status.pb.h"

namespace causeway {
namespace {

// The number of events that are read from the log at a time. Each watcher takes
// the memory of a page.
constexpr uint64_t kEventPage = 32;

class WatchEventsCall : public Call {
 public:
  WatchEventsCall(CallTicket ticket, Engine* engine)
      : Call(std::move(ticket)), engine_(engine) {
    Read(&received_);
  }

  void OnRead(bool ok) override {
    v1::WatchEventsRequest request;
    const absl::Status parsed = ok ? ParseRequest(received_, request)
                                   : absl::CancelledError("no request");
    if (!parsed.ok()) return FinishOnce(ToGrpcStatus(parsed));
    {
      absl::MutexLock lock(&mu_);
      recorded_only_ = request.recorded_only();
      last_id_ = request.after_id();
    }
    listener_ = engine_->AddListener([this] { Advance(); });
    Advance();
  }

  void OnWritten(bool ok) override {
    if (!ok) return FinishOnce(grpc::Status::OK);
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
    }
    Advance();
  }

  void OnCancel() override { FinishOnce(grpc::Status::CANCELLED); }

  void OnEnd() override { engine_->RemoveListener(listener_); }

 private:
  void Advance() {
    absl::MutexLock lock(&mu_);
    if (writing_ || finished_) return;
    if (page_.empty()) {
      absl::StatusOr<std::vector<v1::Event>> events =
          engine_->EventsAfter(last_id_, kEventPage);
      if (!events.ok()) {
        finished_ = true;
        return Finish(ToGrpcStatus(events.status()));
      }
      page_.assign(std::make_move_iterator(events->begin()),
                   std::make_move_iterator(events->end()));
    }
    if (page_.empty()) {
      if (!recorded_only_) return;  // The listener calls again.
      finished_ = true;
      return Finish(grpc::Status::OK);
    }
    sent_ = ToByteBuffer(page_.front());
    last_id_ = page_.front().id();
    page_.pop_front();
    writing_ = true;
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
  bool recorded_only_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<v1::Event> page_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

Call* NewWatchEventsCall(CallTicket ticket, Engine* engine) {
  return new WatchEventsCall(std::move(ticket), engine);
}

}  // namespace causeway
