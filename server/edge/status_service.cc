// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/status_service.h"

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc_status.h"
#include "proto/status.grpc.pb.h"

namespace causeway {
namespace {

// Events are read from the log in pages of this many.
constexpr uint64_t kEventPage = 256;

// One watcher of events: what is in the log first, then whatever is added.
class WatchEventsReactor : public grpc::ServerWriteReactor<v1::Event> {
 public:
  WatchEventsReactor(Engine* engine, const v1::WatchEventsRequest& request)
      : engine_(engine),
        recorded_only_(request.recorded_only()),
        last_id_(request.after_id()) {
    listener_ = engine_->AddListener([this] { Advance(); });
    Advance();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return FinishOnce(grpc::Status::OK);
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
    }
    Advance();
  }

  void OnCancel() override { FinishOnce(grpc::Status::CANCELLED); }

  void OnDone() override {
    engine_->RemoveListener(listener_);
    delete this;
  }

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
    event_ = std::move(page_.front());
    page_.pop_front();
    last_id_ = event_.id();
    writing_ = true;
    StartWrite(&event_);
  }

  void FinishOnce(const grpc::Status& status) {
    absl::MutexLock lock(&mu_);
    if (finished_) return;
    finished_ = true;
    Finish(status);
  }

  Engine* const engine_;
  const bool recorded_only_;
  uint64_t listener_ = 0;
  v1::Event event_;

  absl::Mutex mu_;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::Event> page_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

class StatusService : public v1::Status::CallbackService {
 public:
  StatusService(Engine* engine, const IslandLinks* links)
      : engine_(engine), links_(links) {}

  grpc::ServerUnaryReactor* GetRun(grpc::CallbackServerContext* context,
                                   const v1::GetRunRequest*,
                                   v1::RunStatus* response) override {
    *response = engine_->GetRun();
    return Done(context);
  }

  grpc::ServerUnaryReactor* ListIslands(
      grpc::CallbackServerContext* context,
      const v1::ListIslandsRequest* request,
      v1::ListIslandsResponse* response) override {
    *response = engine_->ListIslands(request->include_departed());
    links_->Describe(*response);
    return Done(context);
  }

  grpc::ServerUnaryReactor* ListFragments(
      grpc::CallbackServerContext* context, const v1::ListFragmentsRequest*,
      v1::ListFragmentsResponse* response) override {
    *response = engine_->ListFragments();
    return Done(context);
  }

  grpc::ServerWriteReactor<v1::Event>* WatchEvents(
      grpc::CallbackServerContext*,
      const v1::WatchEventsRequest* request) override {
    return new WatchEventsReactor(engine_, *request);
  }

 private:
  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  Engine* const engine_;
  const IslandLinks* const links_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewStatusService(Engine* engine,
                                                const IslandLinks* links) {
  return std::make_unique<StatusService>(engine, links);
}

}  // namespace causeway
