// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A call whose messages are byte buffers, for a thread that blocks. Meanwhile
// gRPC's threads carry one message each way: Write returns as soon as the
// previous message has gone, and gRPC already reads the message after the one
// that Read returned.
//
//   BulkStream stream(stub, "/package.Service/Method", &context);
//   if (!stream.Write(request) || !stream.Read(&response)) {
//     return stream.Finish();  // the reason
//   }
#ifndef WORKER_SYNC_BULK_STREAM_H_
#define WORKER_SYNC_BULK_STREAM_H_

#include <memory>
#include <string>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace causeway {

// Not thread-safe, but any thread may call context.TryCancel().
class BulkStream {
 public:
  // Starts the call. `context` outlives the stream.
  BulkStream(grpc::GenericStub& stub, const std::string& method,
             grpc::ClientContext* context);
  // Cancels the call unless Finish was called.
  ~BulkStream();

  // Returns false if the stream is broken; later writes fail, too.
  bool Write(grpc::ByteBuffer message);
  // Tells the other side that no more messages will be written.
  void WritesDone();
  // Returns false after the last message, or if the stream is broken.
  bool Read(grpc::ByteBuffer* message);
  // Returns whether Read would return without waiting.
  bool CanRead() const;
  // Waits until the other side ends the call, and drops the messages until
  // then. Call once, as the last operation.
  grpc::Status Finish();

 private:
  class Reactor;

  grpc::ClientContext* const context_;
  const std::unique_ptr<Reactor> reactor_;
  bool finished_ = false;
};

}  // namespace causeway

#endif  // WORKER_SYNC_BULK_STREAM_H_
