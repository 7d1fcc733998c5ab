// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The calls that the coordinator serves, each a pair of byte streams, one in
// each direction. A connection counts the bytes that its calls read and send,
// and a call checks bytes before protobuf parses them.
//
//   Methods methods;
//   methods["/causeway.v1.Status/GetRun"] = Unary(
//       [engine](const v1::GetRunRequest&) { return engine->GetRun(); });
//   builder.RegisterService(
//       NewService(std::move(methods), &connections, &access).get());
#ifndef SERVER_EDGE_CALL_H_
#define SERVER_EDGE_CALL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "common/transport/chunk_message.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "server/edge/access.h"
#include "server/edge/connections.h"
#include "server/edge/disk_threads.h"

namespace causeway {

// A call being served: its place on its connection, and its caller.
struct BegunCall {
  CallTicket ticket;
  Caller caller;
  // The threads for what may wait for the disk; null if nothing does.
  DiskThreads* threads = nullptr;
};

// Deletes itself when it is done. gRPC calls the virtual functions one at a
// time, except OnCancel. At most one read and one write are under way.
class Call
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Call(BegunCall begun) : begun_(std::move(begun)) {}

  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnDone() final;

 protected:
  // Reads the next message. The call must be done with the previous one.
  void Read(grpc::ByteBuffer* message);
  // Called when the message has arrived, or, if not `ok`, after the last one.
  virtual void OnRead(bool ok) = 0;

  // Sends a message. `lent` bytes of it are not this call's memory, or are
  // counted elsewhere (CompressedChunks).
  void Write(const grpc::ByteBuffer* message, uint64_t lent = 0);
  // Called when the message is sent, or, if not `ok`, when the call is over.
  virtual void OnWritten(bool ok) = 0;
  // Sends the last message and ends the call with OK.
  void WriteAndFinish(const grpc::ByteBuffer* message, uint64_t lent = 0);

  // Called when the call is over.
  virtual void OnEnd() {}
  const Caller& caller() const { return begun_.caller; }
  DiskThreads* threads() const { return begun_.threads; }

  // For OnEnd: notes that the peer may still be sending.
  void CountAsBrokenOff() { connection().CallBrokeOff(); }

 private:
  Connection& connection() const { return begun_.ticket.connection(); }
  void BeginSend(uint64_t bytes);

  const BegunCall begun_;
  grpc::ByteBuffer* reading_ = nullptr;
  // The size of the message in use; 0 if there is none.
  uint64_t read_ = 0;
  bool sends_ = false;
  uint64_t sending_ = 0;
};

// Makes the call that serves a method.
using Method = std::function<Call*(BegunCall)>;
// Methods by path: "/package.Service/Method".
using Methods = std::map<std::string, Method>;

// Returns the method with calls that do on `threads`, which must outlive them,
// what may wait for the disk.
Method On(DiskThreads* threads, Method method);
// Does the same with each of the methods.
Methods On(DiskThreads* threads, Methods methods);

// Returns the methods, which refuse calls while `check` returns an error.
// `check` is called from any thread and must not block.
Methods RefusedUnless(std::function<absl::Status()> check, Methods methods);

// Returns a service with these methods, all of one service. `access` checks
// each call before its method gets it.
std::unique_ptr<grpc::Service> NewService(Methods methods,
                                          Connections* connections,
                                          const Access* access);

// Reads a request that carries no chunk.
//   INVALID_ARGUMENT   The bytes are no such message, the message or one of
//                      its fields is too long
//                      (common/transport/field_limits.h), or a text is not
//                      UTF-8.
//   UNAUTHENTICATED, PERMISSION_DENIED  See Caller::Check.
absl::Status ParseRequest(const Caller& caller, grpc::ByteBuffer& bytes,
                          google::protobuf::Message& request);
// Does the same for a request that was parsed with the status `parsed`.
absl::Status CheckRequest(const Caller& caller,
                          const google::protobuf::Message& request,
                          const absl::Status& parsed);

// Returns a method that answers one message with one message.
Method UnaryMethod(std::function<absl::StatusOr<grpc::ByteBuffer>(
                       const Caller&, grpc::ByteBuffer&)>
                       answer);

inline absl::StatusOr<grpc::ByteBuffer> ToAnswer(
    const google::protobuf::Message& response) {
  return ToByteBuffer(response);
}
// An empty message has no bytes.
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

// Name the type of the request that a handler takes.
template <typename Handler, typename Result, typename Request>
Request RequestOf(Result (Handler::*)(const Request&) const);
template <typename Handler, typename Result, typename Request>
Request RequestOf(Result (Handler::*)(const Caller&, const Request&) const);

// Does the same for parsed messages: `handler` takes a request, optionally
// preceded by the Caller. It returns a response, an absl::StatusOr of one, or,
// for an empty response, an absl::Status.
template <typename Handler>
Method Unary(Handler handler) {
  using Request = decltype(RequestOf(&Handler::operator()));
  return UnaryMethod(
      [handler](const Caller& caller,
                grpc::ByteBuffer& bytes) -> absl::StatusOr<grpc::ByteBuffer> {
        Request request;
        RETURN_IF_ERROR(ParseRequest(caller, bytes, request));
        if constexpr (std::is_invocable_v<Handler, const Request&>) {
          return ToAnswer(handler(request));
        } else {
          return ToAnswer(handler(caller, request));
        }
      });
}
// Does the same with a member function of `server`, which also gets the
// caller's name if it takes one.
template <typename Server, typename Result, typename Request>
Method Unary(Server* server, Result (Server::*answer)(const Request&)) {
  return Unary(
      [=](const Request& request) { return (server->*answer)(request); });
}
template <typename Server, typename Result, typename Request>
Method Unary(Server* server,
             Result (Server::*answer)(const Request&, absl::string_view by)) {
  return Unary([=](const Caller& caller, const Request& request) {
    return (server->*answer)(request, caller.Name());
  });
}

}  // namespace causeway

#endif  // SERVER_EDGE_CALL_H_
