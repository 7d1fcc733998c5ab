// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/bulk_stream.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace causeway {

class BulkStream::Reactor
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // The hold allows operations to start outside of gRPC's callbacks.
  void Start() {
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  bool Write(grpc::ByteBuffer message) {
    if (!AwaitWritable()) return false;
    outgoing_ = std::move(message);
    StartWrite(&outgoing_);
    return true;
  }

  void WritesDone() {
    if (AwaitWritable()) StartWritesDone();
  }

  bool CanRead() const {
    absl::MutexLock lock(&mu_);
    return read_;
  }

  bool Read(grpc::ByteBuffer* message) {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&read_));
    if (!readable_) return false;
    message->Swap(&incoming_);
    incoming_.Clear();
    read_ = false;
    StartRead(&incoming_);
    return true;
  }

  grpc::Status Finish() {
    RemoveHold();
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&done_));
    return status_;
  }

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    read_ = true;
    readable_ = ok;
  }
  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    written_ = true;
    writable_ = ok;
  }
  void OnWritesDoneDone(bool) override { OnWriteDone(false); }
  void OnDone(const grpc::Status& status) override {
    absl::MutexLock lock(&mu_);
    status_ = status;
    done_ = true;
  }

 private:
  // Waits for the current write; returns whether another one may follow.
  bool AwaitWritable() {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&written_));
    if (!writable_) return false;
    written_ = false;
    return true;
  }

  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;

  mutable absl::Mutex mu_;
  // Whether the last operation has ended.
  bool read_ ABSL_GUARDED_BY(mu_) = false;
  bool written_ ABSL_GUARDED_BY(mu_) = true;
  // Whether the last operation succeeded.
  bool readable_ ABSL_GUARDED_BY(mu_) = false;
  bool writable_ ABSL_GUARDED_BY(mu_) = true;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

BulkStream::BulkStream(grpc::GenericStub& stub, const std::string& method,
                       grpc::ClientContext* context)
    : context_(context), reactor_(std::make_unique<Reactor>()) {
  stub.PrepareBidiStreamingCall(context, method, {}, reactor_.get());
  reactor_->Start();
}

BulkStream::~BulkStream() {
  if (finished_) return;
  context_->TryCancel();
  reactor_->Finish();
}

bool BulkStream::Write(grpc::ByteBuffer message) {
  return reactor_->Write(std::move(message));
}

void BulkStream::WritesDone() { reactor_->WritesDone(); }

bool BulkStream::Read(grpc::ByteBuffer* message) {
  return reactor_->Read(message);
}

bool BulkStream::CanRead() const { return reactor_->CanRead(); }

grpc::Status BulkStream::Finish() {
  finished_ = true;
  // The status comes after the messages.
  grpc::ByteBuffer dropped;
  while (Read(&dropped)) {
  }
  return reactor_->Finish();
}

}  // namespace causeway
