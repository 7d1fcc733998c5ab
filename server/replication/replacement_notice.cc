// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/replacement_notice.h"

#include <utility>

#include "absl/time/time.h"
#include "common/transport/grpc_time.h"
#include "glog/logging.h"

namespace causeway {
namespace {

constexpr absl::Duration kPause = absl::Seconds(2);
constexpr absl::Duration kTimeout = absl::Seconds(2);

}  // namespace

ReplacementNotice::ReplacementNotice(
    const std::string& address,
    std::shared_ptr<grpc::ChannelCredentials> credentials,
    const std::string& run_id, uint64_t epoch)
    : stub_(v1::Replication::NewStub(
          grpc::CreateChannel(address, std::move(credentials)))) {
  v1::FollowRequest::Hello& hello = *request_.mutable_hello();
  hello.set_name("successor");
  hello.set_run_id(run_id);
  hello.set_epoch(epoch);
  thread_ = std::thread([this] { Loop(); });
}

ReplacementNotice::~ReplacementNotice() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

void ReplacementNotice::Loop() {
  while (true) {
    const grpc::Status told = Tell();
    VLOG(1) << "the coordinator before answers: " << told.error_message();
    absl::MutexLock lock(&mu_);
    if (mu_.AwaitWithTimeout(absl::Condition(&stopping_), kPause)) return;
  }
}

grpc::Status ReplacementNotice::Tell() {
  grpc::ClientContext context;
  context.set_deadline(FromNow(kTimeout));
  const auto stream = stub_->Follow(&context);
  v1::FollowResponse response;
  if (stream->Write(request_)) stream->Read(&response);
  // A coordinator that sends has not understood the notice.
  context.TryCancel();
  return stream->Finish();
}

}  // namespace causeway
