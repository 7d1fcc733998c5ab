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
#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
    if (!ok || !heard.ok()) return End(ToGrpcStatus(heard));
    OnNews();
    ReadOn();
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

  absl::StatusOr<std::optional<grpc::ByteBuffer>> Next(bool has_news) override {
    if (!has_news) return std::nullopt;
    v1::IslandIdentity identity;
    bool owes_answer = false;
    {
      absl::MutexLock lock(&mu_);
      if (!identity_.has_value()) return std::nullopt;
      identity = *identity_;
      owes_answer = std::exchange(owes_answer_, false);
    }
    std::optional<v1::SessionResponse> view =
        owes_answer ? engine_->View(identity) : engine_->News(identity, shown_);
    if (!view.has_value()) return std::nullopt;
    shown_ = *std::move(view);
    return ToByteBuffer(shown_);
  }

  Engine* const engine_;
  // Not set before the first heartbeat.
  std::optional<v1::IslandIdentity> identity_ ABSL_GUARDED_BY(mu_);
  // True from a heartbeat to its answer.
  bool owes_answer_ ABSL_GUARDED_BY(mu_) = false;
  v1::SessionResponse shown_;
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
    if (!parsed.ok()) return End(ToGrpcStatus(parsed));
    absl::StatusOr<EventFilter> filter = FilterOf(request);
    if (!filter.ok()) return End(ToGrpcStatus(filter.status()));
    filter_ = *std::move(filter);
    recorded_only_ = request.recorded_only();
    last_id_ = request.after_id();
    OnNews();
  }

 private:
  absl::StatusOr<std::optional<grpc::ByteBuffer>> Next(bool) override {
    if (page_.empty()) RETURN_IF_ERROR(ReadPage());
    if (page_.empty() && recorded_only_) {
      End(grpc::Status::OK);
      return std::nullopt;
    }
    if (page_.empty() && !listens_) {
      listens_ = true;
      Listen();
      // Something may have changed in between.
      RETURN_IF_ERROR(ReadPage());
    }
    if (page_.empty()) return std::nullopt;
    const v1::Event event = std::move(page_.front());
    page_.pop_front();
    last_id_ = event.id();
    return ToByteBuffer(event);
  }

  absl::Status ReadPage() {
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
  EventFilter filter_;
  bool recorded_only_ = false;
  uint64_t last_id_ = 0;
  std::deque<v1::Event> page_;
  bool listens_ = false;
};

}  // namespace

Call* NewSessionCall(BegunCall begun, Engine* engine) {
  return new SessionCall(std::move(begun), engine);
}

Call* NewWatchEventsCall(BegunCall begun, EventHost host) {
  return new WatchEventsCall(std::move(begun), std::move(host));
}

}  // namespace causeway
