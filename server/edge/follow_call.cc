// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "common/transport/coordinator_target.h"
#include "proto/replication.pb.h"
#include "server/edge/calls.h"
#include "server/edge/news_call.h"
#include "server/replication/copy_stream.h"

namespace causeway {
namespace {

class FollowCall : public NewsCall {
 public:
  // Copying the log may take long, and must not hold up the news of other
  // followers. So the call listens to the news, and uses `feeders`, once the
  // copy is sent.
  FollowCall(BegunCall begun, Engine* engine, DiskThreads* feeders)
      : NewsCall(std::move(begun), &engine->followed().feed->news()),
        engine_(engine),
        feeders_(feeders),
        source_(engine->followed()) {
    Read(&received_);
  }

  void OnRead(bool ok) override {
    const absl::Status heard =
        ok ? Hear() : absl::CancelledError("the follower has disconnected");
    if (!heard.ok()) return End(ToGrpcStatus(heard));
    ReadOn();
  }

  void OnEnd() override {
    NewsCall::OnEnd();
    if (!hello_.name().empty()) {
      source_.feed->Leave(hello_.name(), "its stream has ended");
    }
  }

 private:
  absl::Status Hear() {
    v1::FollowRequest request;
    RETURN_IF_ERROR(ParseRequest(caller(), received_, request));
    if (request.has_hello()) return Begin(*request.mutable_hello());
    if (hello_.name().empty()) {
      return absl::InvalidArgumentError(
          "a follower's first message must be a hello");
    }
    source_.feed->Acknowledge(hello_.name(), request.durable_index());
    return absl::OkStatus();
  }

  absl::Status Begin(v1::FollowRequest::Hello& hello) {
    if (!hello_.name().empty()) {
      return absl::InvalidArgumentError("a follower must send only one hello");
    }
    if (!IsValidName(hello.name())) {
      return absl::InvalidArgumentError(
          absl::StrCat("a follower named \"", hello.name(),
                       "\" is not allowed; use 1 to 64 of [a-z0-9-]"));
    }
    if (hello.run_id() == source_.run_id && hello.epoch() > source_.epoch) {
      RETURN_IF_ERROR(engine_->StandDown(hello.epoch()));
    }
    RETURN_IF_ERROR(engine_->CheckInOffice());
    if (!hello.region().empty() &&
        (!IsValidName(hello.region()) || !HasHostAndPort(hello.address()))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a follower in region \"", hello.region(), "\" at \"",
          hello.address(),
          "\" is not allowed; use 1 to 64 of [a-z0-9-], and host:port"));
    }
    RETURN_IF_ERROR(source_.feed->Join(hello.name(), caller().peer(),
                                       engine_->now(),
                                       {hello.region(), hello.address()}));
    hello_ = std::move(hello);
    OnNews();
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<grpc::ByteBuffer>> Next(bool) override {
    if (!stream_.has_value()) {
      ASSIGN_OR_RETURN(stream_, CopyStream::Begin(source_, hello_));
    }
    if (!listens_ && stream_->HasSentCopy()) {
      listens_ = true;
      ContinueOn(feeders_);
      Listen();
    }
    ASSIGN_OR_RETURN(std::optional<grpc::ByteBuffer> next, stream_->Next());
    if (next.has_value()) {
      source_.feed->CountSent(hello_.name(), next->Length());
    }
    return next;
  }

  Engine* const engine_;
  DiskThreads* const feeders_;
  const FollowedSource source_;
  // Empty before it arrives.
  v1::FollowRequest::Hello hello_;
  // Not set before the first message is made.
  std::optional<CopyStream> stream_;
  bool listens_ = false;
};

}  // namespace

Call* NewFollowCall(BegunCall begun, Engine* engine, DiskThreads* feeders) {
  return new FollowCall(std::move(begun), engine, feeders);
}

}  // namespace causeway
