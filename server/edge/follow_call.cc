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
  FollowCall(BegunCall begun, Engine* engine)
      : NewsCall(std::move(begun), &engine->followed().feed->news()),
        engine_(engine),
        source_(engine->followed()) {
    Read(&received_);
  }

  void OnRead(bool ok) override {
    const absl::Status heard =
        ok ? Hear() : absl::CancelledError("the follower has disconnected");
    absl::MutexLock lock(&mu_);
    if (!heard.ok()) return FinishOnce(ToGrpcStatus(heard));
    if (!finished_) Read(&received_);
  }

  void OnWritten(bool ok) override {
    NewsCall::OnWritten(ok);
    {
      absl::MutexLock lock(&mu_);
      if (listens_ || finished_ || !stream_->HasSentCopy()) return;
      listens_ = true;
    }
    Listen();
    // Something may have changed in between.
    OnNews();
  }

  void OnEnd() override {
    NewsCall::OnEnd();
    if (!name_.empty()) source_.feed->Leave(name_, "its stream has ended");
  }

 private:
  absl::Status Hear() {
    v1::FollowRequest request;
    RETURN_IF_ERROR(ParseRequest(caller(), received_, request));
    if (request.has_hello()) return Begin(request.hello());
    if (name_.empty()) {
      return absl::InvalidArgumentError(
          "a follower's first message must be a hello");
    }
    source_.feed->Acknowledge(name_, request.durable_index());
    return absl::OkStatus();
  }

  absl::Status Begin(const v1::FollowRequest::Hello& hello) {
    if (!name_.empty()) {
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
    name_ = hello.name();
    {
      ASSIGN_OR_RETURN(CopyStream stream, CopyStream::Begin(source_, hello));
      absl::MutexLock lock(&mu_);
      stream_.emplace(std::move(stream));
    }
    // Copying the log may take long, and must not hold up the news of other
    // followers. So do not listen until the copy is sent.
    OnNews();
    return absl::OkStatus();
  }

  std::optional<grpc::ByteBuffer> Next() override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!stream_.has_value()) return std::nullopt;
    absl::StatusOr<std::optional<grpc::ByteBuffer>> next = stream_->Next();
    if (!next.ok()) {
      FinishOnce(ToGrpcStatus(next.status()));
      return std::nullopt;
    }
    if (next->has_value()) source_.feed->CountSent(name_, (*next)->Length());
    return *std::move(next);
  }

  Engine* const engine_;
  const FollowedSource source_;
  // Empty before the hello.
  std::string name_;
  std::optional<CopyStream> stream_ ABSL_GUARDED_BY(mu_);
  bool listens_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

Call* NewFollowCall(BegunCall begun, Engine* engine) {
  return new FollowCall(std::move(begun), engine);
}

}  // namespace causeway
