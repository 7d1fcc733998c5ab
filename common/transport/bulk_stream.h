// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A call whose messages are byte buffers, for blocking threads. gRPC's threads
// carry messages meanwhile: Write returns once the previous message is sent,
// and gRPC already reads the two messages after the one that Read returned.
//
//   BulkStream stream(stub, "/package.Service/Method", &context);
//   if (!stream.Write(request) || !stream.Read(&response)) {
//     return stream.Finish();  // the reason
//   }
#ifndef COMMON_TRANSPORT_BULK_STREAM_H_
#define COMMON_TRANSPORT_BULK_STREAM_H_

#include <deque>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace causeway {

// One thread may read while another writes; both are done before Finish. Any
// thread may call context.TryCancel().
class BulkStream
    : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Starts the call. `context` outlives the stream.
  BulkStream(grpc::GenericStub& stub, const std::string& method,
             grpc::ClientContext* context);
  // Cancels the call unless Finish was called.
  ~BulkStream() override;

  // Returns false if the stream is broken; later writes fail, too.
  bool Write(grpc::ByteBuffer message);
  // Writes the last message.
  void WriteLast(grpc::ByteBuffer message);
  // Tells the other side that no more messages will be written.
  void WritesDone();
  // Returns false after the last message, or if the stream is broken. A stream
  // is broken if no message comes for `patience`.
  bool Read(grpc::ByteBuffer* message,
            absl::Duration patience = absl::InfiniteDuration());
  // Returns whether Read would return without waiting.
  bool CanRead() const {
    absl::MutexLock lock(&mu_);
    return over_ || !arrived_.empty();
  }
  // Waits until the other side ends the call, dropping messages. Call once, as
  // the last operation.
  grpc::Status Finish();

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnWritesDoneDone(bool) override { OnWriteDone(false); }
  void OnDone(const grpc::Status& status) override;
  // Starts to read if there is room for a message.
  void ReadOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits for the current write; returns whether another one may follow.
  bool AwaitWritable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  grpc::ClientContext* const context_;
  bool finished_ = false;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;

  mutable absl::Mutex mu_;
  // The messages that Read will return.
  std::deque<grpc::ByteBuffer> arrived_ ABSL_GUARDED_BY(mu_);
  bool reading_ ABSL_GUARDED_BY(mu_) = true;
  // Says that no further message will arrive. The call has then lost its hold,
  // and no operation may begin.
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  // The first says that the last write has ended, the second that it succeeded.
  bool written_ ABSL_GUARDED_BY(mu_) = true;
  bool writable_ ABSL_GUARDED_BY(mu_) = true;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  // Says whether a reader has waited too long.
  bool impatient_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // COMMON_TRANSPORT_BULK_STREAM_H_
