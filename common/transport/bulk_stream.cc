// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/bulk_stream.h"

#include <utility>

namespace causeway {

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
  AwaitDone();
}

bool BulkStream::Write(grpc::ByteBuffer message) {
  if (!AwaitWritable()) return false;
  outgoing_ = std::move(message);
  StartWrite(&outgoing_);
  return true;
}

void BulkStream::WriteLast(grpc::ByteBuffer message) {
  if (!AwaitWritable()) return;
  outgoing_ = std::move(message);
  StartWriteLast(&outgoing_, {});
}

void BulkStream::WritesDone() {
  if (AwaitWritable()) StartWritesDone();
}

bool BulkStream::Read(grpc::ByteBuffer* message, absl::Duration patience) {
  absl::MutexLock lock(&mu_);
  if (!mu_.AwaitWithTimeout(absl::Condition(&read_), patience)) {
    impatient_ = true;
    context_->TryCancel();
    mu_.Await(absl::Condition(&read_));
  }
  if (!readable_) return false;
  message->Swap(&incoming_);
  incoming_.Clear();
  read_ = false;
  StartRead(&incoming_);
  return true;
}

bool BulkStream::CanRead() const {
  absl::MutexLock lock(&mu_);
  return read_;
}

grpc::Status BulkStream::Finish() {
  finished_ = true;
  // The status comes after the messages.
  grpc::ByteBuffer dropped;
  while (Read(&dropped)) {
  }
  return AwaitDone();
}

void BulkStream::OnReadDone(bool ok) {
  absl::MutexLock lock(&mu_);
  read_ = true;
  readable_ = ok;
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

bool BulkStream::AwaitWritable() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&written_));
  if (!writable_) return false;
  written_ = false;
  return true;
}

grpc::Status BulkStream::AwaitDone() {
  RemoveHold();
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&done_));
  if (impatient_ && status_.error_code() == grpc::StatusCode::CANCELLED) {
    return {grpc::StatusCode::DEADLINE_EXCEEDED, "no message has come in time"};
  }
  return status_;
}

}  // namespace causeway
