// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A call whose messages are byte buffers, for a thread that blocks. gRPC's
// threads carry one message each way meanwhile: Write returns as soon as the
// message before has gone, and the message after the one that Read returned is
// already on its way.
//
//   BulkStream stream(stub, "/package.Service/Method", &context);
//   if (!stream.Write(request) || !stream.Read(&response)) {
//     return stream.Finish();  // says why
//   }
#ifndef WORKER_SYNC_BULK_STREAM_H_
#define WORKER_SYNC_BULK_STREAM_H_

#include <memory>
#include <string>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace causeway {

// For one thread; context.TryCancel() may come from any.
class BulkStream {
 public:
  // Starts the call. `context` outlives the stream.
  BulkStream(grpc::GenericStub& stub, const std::string& method,
             grpc::ClientContext* context);
  // Cancels the call unless it was finished.
  ~BulkStream();

  // False if the stream is broken: nothing can be written any more.
  bool Write(grpc::ByteBuffer message);
  // Says that nothing more will be written.
  void WritesDone();
  // False after the last message, or if the stream is broken.
  bool Read(grpc::ByteBuffer* message);
  // Whether Read would not have to wait.
  bool CanRead() const;
  // Waits for the end of the call, which the other side has to bring about, and
  // drops the messages until then. Once, and last.
  grpc::Status Finish();

 private:
  class Reactor;

  grpc::ClientContext* const context_;
  const std::unique_ptr<Reactor> reactor_;
  bool finished_ = false;
};

}  // namespace causeway

#endif  // WORKER_SYNC_BULK_STREAM_H_
