// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The calls that the coordinator serves, of whatever kind: streams of bytes in
// both directions. What a call reads and sends is counted for its connection,
// and what it reads is checked before protobuf parses it.
//
//   Methods methods;
//   methods["/causeway.v1.Status/GetRun"] = Unary<v1::GetRunRequest>(
//       [engine](const v1::GetRunRequest&) { return engine->GetRun(); });
//   builder.RegisterService(NewService(std::move(methods),
//   &connections).get());
#ifndef SERVER_EDGE_CALL_H_
#define SERVER_EDGE_CALL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/status_macros.h"
#include "common/transport/chunk_message.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "server/edge/connections.h"

namespace causeway {

// Deletes itself when it is done. gRPC calls one of the virtual functions at a
// time, but for OnCancel; one read and one write are under way at most.
class Call
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Call(CallTicket ticket) : ticket_(std::move(ticket)) {}

  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnDone() final;

 protected:
  // Reads the next message; the one before is not needed any more.
  void Read(grpc::ByteBuffer* message);
  // The message has come, or no more will.
  virtual void OnRead(bool ok) = 0;

  // Sends a message; `lent` bytes of it are not memory of this call's.
  void Write(const grpc::ByteBuffer* message, uint64_t lent = 0);
  // It is sent, or the call is over.
  virtual void OnWritten(bool ok) = 0;
  // Sends the last message, and that all is well.
  void WriteAndFinish(const grpc::ByteBuffer* message);

  // The call is over.
  virtual void OnEnd() {}

 private:
  void BeginSend(uint64_t bytes);

  const CallTicket ticket_;
  grpc::ByteBuffer* reading_ = nullptr;
  // Bytes of the message that was read last and is still needed.
  uint64_t read_ = 0;
  bool sends_ = false;
  uint64_t sending_ = 0;
};

// What serves a method.
using Method = std::function<Call*(CallTicket, grpc::CallbackServerContext&)>;
// By path: "/package.Service/Method".
using Methods = std::map<std::string, Method>;

// The service that has these methods, which are of one service. It serves no
// others.
std::unique_ptr<grpc::Service> NewService(Methods methods,
                                          Connections* connections);

// Reads a request that carries no chunk.
//   INVALID_ARGUMENT  it is no such message, or longer than it may be, or a
//                     field of it is (common/transport/field_limits.h).
absl::Status ParseRequest(grpc::ByteBuffer& bytes,
                          google::protobuf::Message& request);

// Answers one message with one message.
Method UnaryMethod(
    std::function<absl::StatusOr<grpc::ByteBuffer>(grpc::ByteBuffer&)> answer);

inline absl::StatusOr<grpc::ByteBuffer> ToAnswer(
    const google::protobuf::Message& response) {
  return ToByteBuffer(response);
}
// An empty message is no bytes.
inline absl::StatusOr<grpc::ByteBuffer> ToAnswer(const absl::Status& status) {
  if (!status.ok()) return status;
  const grpc::Slice empty;
  return grpc::ByteBuffer(&empty, 1);
}
template <typename Response>
absl::StatusOr<grpc::ByteBuffer> ToAnswer(
    const absl::StatusOr<Response>& response) {
  if (!response.ok()) return response.status();
  return ToByteBuffer(*response);
}

// The same with messages: `handler` takes a Request and returns a response, an
// absl::StatusOr of one, or, for an empty response, an absl::Status.
template <typename Request, typename Handler>
Method Unary(Handler handler) {
  return UnaryMethod(
      [handler](grpc::ByteBuffer& bytes) -> absl::StatusOr<grpc::ByteBuffer> {
        Request request;
        RETURN_IF_ERROR(ParseRequest(bytes, request));
        return ToAnswer(handler(request));
      });
}

}  // namespace causeway

#endif  // SERVER_EDGE_CALL_H_
