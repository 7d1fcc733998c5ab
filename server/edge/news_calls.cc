// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/status_macros.h"
#include "common/transport/chunk_message.h"
#include "common/transport/grpc_status.h"
#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"
#include "server/edge/calls.h"
#include "server/edge/news_call.h"
#include "server/rules/event_filter.h"

namespace causeway {
namespace {

// The number of events read from the log at a time. Each watcher takes the
// memory of a page.
constexpr uint64_t kEventPage = 32;

// A slow client gets fewer views, never an older one.
class SessionCall : public NewsCall {
 public:
  SessionCall(BegunCall begun, Engine* engine)
      : NewsCall(std::move(begun), &engine->news()), engine_(engine) {
    Listen();
    Read(&received_);
  }

  void OnRead(bool ok) override {
    const absl::Status heard = ok ? Hear() : absl::OkStatus();
    if (ok && heard.ok()) OnNews();
    absl::MutexLock lock(&mu_);
    if (!ok || !heard.ok()) return FinishOnce(ToGrpcStatus(heard));
    if (!finished_) Read(&received_);
  }

 private:
  absl::Status Hear() {
    v1::SessionRequest request;
    RETURN_IF_ERROR(ParseRequest(caller(), received_, request));
    RETURN_IF_ERROR(engine_->Heartbeat(request));
    absl::MutexLock lock(&mu_);
    identity_ = std::move(*request.mutable_identity());
    owes_answer_ = true;
    return absl::OkStatus();
  }

  std::optional<grpc::ByteBuffer> Next() override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!has_news_ || !identity_.has_value()) return std::nullopt;
    has_news_ = false;
    std::optional<v1::SessionResponse> view =
        std::exchange(owes_answer_, false) ? engine_->View(*identity_)
                                           : engine_->News(*identity_, shown_);
    if (!view.has_value()) return std::nullopt;
    shown_ = *std::move(view);
    return ToByteBuffer(shown_);
  }

  Engine* const engine_;
  // Not set before the first heartbeat.
  std::optional<v1::IslandIdentity> identity_ ABSL_GUARDED_BY(mu_);
  // True from a heartbeat to its answer.
  bool owes_answer_ ABSL_GUARDED_BY(mu_) = false;
  v1::SessionResponse shown_ ABSL_GUARDED_BY(mu_);
};

class WatchEventsCall : public NewsCall {
 public:
  WatchEventsCall(BegunCall begun, EventHost host)
      : NewsCall(std::move(begun), host.news), host_(std::move(host)) {
    Read(&received_);
  }

  void OnRead(bool ok) override {
    v1::WatchEventsRequest request;
    const absl::Status parsed = ok ? ParseRequest(caller(), received_, request)
                                   : absl::CancelledError("no request");
    absl::StatusOr<EventFilter> filter = FilterOf(request);
    {
      absl::MutexLock lock(&mu_);
      if (!parsed.ok()) return FinishOnce(ToGrpcStatus(parsed));
      if (!filter.ok()) return FinishOnce(ToGrpcStatus(filter.status()));
      filter_ = *std::move(filter);
      recorded_only_ = request.recorded_only();
      last_id_ = request.after_id();
    }
    // The first search may go through the whole log, and must not hold up news.
    // So do not listen yet.
    OnNews();
    Listen();
    // Something may have changed in between.
    OnNews();
  }

 private:
  std::optional<grpc::ByteBuffer> Next() override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (page_.empty()) {
      const absl::Status read = ReadPage();
      if (!read.ok() || (page_.empty() && recorded_only_)) {
        FinishOnce(ToGrpcStatus(read));
      }
      if (page_.empty()) return std::nullopt;
    }
    const v1::Event event = std::move(page_.front());
    page_.pop_front();
    last_id_ = event.id();
    return ToByteBuffer(event);
  }

  absl::Status ReadPage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ASSIGN_OR_RETURN(const std::shared_ptr<CommitLog> log, host_.log());
    ASSIGN_OR_RETURN(const uint64_t newest, log->NewestEvent());
    if (last_id_ > newest && !host_.is_copy) {
      // The previous leader gave this id to an event that was lost, so this one
      // will give it to another.
      ASSIGN_OR_RETURN(
          const std::vector<v1::Event> takeover,
          log->NewestEvents(0, 1, {.kinds = {"follower_promoted"}}));
      last_id_ = takeover.empty() ? newest : takeover[0].id() - 1;
    }
    ASSIGN_OR_RETURN(std::vector<v1::Event> events,
                     log->EventsAfter(last_id_, kEventPage, filter_));
    // Search unwanted events only once.
    if (events.empty()) last_id_ = std::max(last_id_, newest);
    page_.assign(std::make_move_iterator(events.begin()),
                 std::make_move_iterator(events.end()));
    return absl::OkStatus();
  }

  const EventHost host_;
  EventFilter filter_ ABSL_GUARDED_BY(mu_);
  bool recorded_only_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<v1::Event> page_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

Call* NewSessionCall(BegunCall begun, Engine* engine) {
  return new SessionCall(std::move(begun), engine);
}

Call* NewWatchEventsCall(BegunCall begun, EventHost host) {
  return new WatchEventsCall(std::move(begun), std::move(host));
}

}  // namespace causeway
