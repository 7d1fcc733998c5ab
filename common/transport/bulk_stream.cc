// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/bulk_stream.h"

#include <cstddef>
#include <utility>

namespace causeway {
namespace {

// With this number of arrived messages no further one is read. With one, the
// end that follows a last message would be read only after that message.
constexpr size_t kMostArrived = 2;

}  // namespace

BulkStream::BulkStream(grpc::GenericStub& stub, const std::string& method,
                       grpc::ClientContext* context)
    : context_(context) {
  // The call begins with its first message, in the same packet.
  context->set_initial_metadata_corked(true);
  stub.PrepareBidiStreamingCall(context, method, {}, this);
  // The hold allows operations to start outside of gRPC's callbacks.
  AddHold();
  StartRead(&incoming_);
  StartCall();
}

BulkStream::~BulkStream() {
  if (finished_) return;
  context_->TryCancel();
  Finish();
}

bool BulkStream::Write(grpc::ByteBuffer message) {
  absl::MutexLock lock(&mu_);
  if (!AwaitWritable()) return false;
  outgoing_ = std::move(message);
  StartWrite(&outgoing_);
  return true;
}

void BulkStream::WriteLast(grpc::ByteBuffer message) {
  absl::MutexLock lock(&mu_);
  if (!AwaitWritable()) return;
  outgoing_ = std::move(message);
  StartWriteLast(&outgoing_, {});
}

void BulkStream::WritesDone() {
  absl::MutexLock lock(&mu_);
  if (AwaitWritable()) StartWritesDone();
}

bool BulkStream::Read(grpc::ByteBuffer* message, absl::Duration patience) {
  absl::MutexLock lock(&mu_);
  const auto can_read = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return over_ || !arrived_.empty();
  };
  if (!mu_.AwaitWithTimeout(absl::Condition(&can_read), patience)) {
    impatient_ = true;
    context_->TryCancel();
    mu_.Await(absl::Condition(&can_read));
  }
  if (arrived_.empty()) return false;
  message->Swap(&arrived_.front());
  arrived_.pop_front();
  ReadOn();
  return true;
}

grpc::Status BulkStream::Finish() {
  finished_ = true;
  absl::MutexLock lock(&mu_);
  const auto has_news = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return done_ || !arrived_.empty();
  };
  // The status comes after the messages.
  while (true) {
    mu_.Await(absl::Condition(&has_news));
    if (done_) break;
    arrived_.clear();
    ReadOn();
  }
  if (impatient_ && status_.error_code() == grpc::StatusCode::CANCELLED) {
    return {grpc::StatusCode::DEADLINE_EXCEEDED, "no message has come in time"};
  }
  return status_;
}

void BulkStream::OnReadDone(bool ok) {
  absl::MutexLock lock(&mu_);
  reading_ = false;
  if (ok) {
    arrived_.emplace_back().Swap(&incoming_);
    return ReadOn();
  }
  over_ = true;
  // Without the hold, gRPC ends the call on this thread, and wakes no other.
  RemoveHold();
}

void BulkStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mu_);
  written_ = true;
  writable_ = ok;
}

void BulkStream::OnDone(const grpc::Status& status) {
  absl::MutexLock lock(&mu_);
  status_ = status;
  done_ = true;
}

void BulkStream::ReadOn() {
  if (reading_ || over_ || arrived_.size() >= kMostArrived) return;
  reading_ = true;
  StartRead(&incoming_);
}

bool BulkStream::AwaitWritable() {
  const auto is_settled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return written_ || over_;
  };
  mu_.Await(absl::Condition(&is_settled));
  if (over_ || !writable_) return false;
  written_ = false;
  return true;
}

}  // namespace causeway
