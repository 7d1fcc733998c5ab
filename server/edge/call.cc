// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/call.h"

#include "common/grpc_status.h"
#include "common/transport/field_limits.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/codegen/service_type.h"

namespace causeway {
namespace {

class UnaryCall : public Call {
 public:
  using Answer =
      std::function<absl::StatusOr<grpc::ByteBuffer>(grpc::ByteBuffer&)>;

  UnaryCall(CallTicket ticket, Answer answer)
      : Call(std::move(ticket)), answer_(std::move(answer)) {
    Read(&message_);
  }

 private:
  void OnRead(bool ok) override {
    if (!ok) {
      return Finish(
          ToGrpcStatus(absl::InvalidArgumentError("the call has no request")));
    }
    absl::StatusOr<grpc::ByteBuffer> answer = answer_(message_);
    if (!answer.ok()) return Finish(ToGrpcStatus(answer.status()));
    message_ = *std::move(answer);
    WriteAndFinish(&message_);
  }
  void OnWritten(bool) override {}

  const Answer answer_;
  // Holds the request, then the response.
  grpc::ByteBuffer message_;
};

// Generated code has a class for each service, with a virtual function for each
// method. This class treats all methods alike.
class TableService : public grpc::Service {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
  using Handler =
      grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>;

  TableService(Methods methods, Connections* connections)
      : methods_(std::move(methods)) {
    int index = 0;
    for (const auto& [path, method] : methods_) {
      AddMethod(new grpc::internal::RpcServiceMethod(
          path.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
      MarkMethodRawCallback(
          index++,
          new Handler([connections, &method](
                          grpc::CallbackServerContext* context) -> Reactor* {
            return method(connections->BeginCall(context->peer()), *context);
          }));
    }
  }

 private:
  const Methods methods_;
};

}  // namespace

void Call::Read(grpc::ByteBuffer* message) {
  ticket_.connection().Took(read_);
  read_ = 0;
  reading_ = message;
  StartRead(message);
}

void Call::OnReadDone(bool ok) {
  if (ok) read_ = reading_->Length();
  OnRead(ok);
}

void Call::BeginSend(uint64_t bytes) {
  sends_ = true;
  sending_ = bytes;
  ticket_.connection().SendBegan(bytes);
}

void Call::Write(const grpc::ByteBuffer* message, uint64_t lent) {
  BeginSend(message->Length() - lent);
  StartWrite(message);
}

void Call::WriteAndFinish(const grpc::ByteBuffer* message) {
  BeginSend(message->Length());
  StartWriteAndFinish(message, {}, grpc::Status::OK);
}

void Call::OnWriteDone(bool ok) {
  sends_ = false;
  ticket_.connection().SendEnded(sending_);
  OnWritten(ok);
}

void Call::OnDone() {
  ticket_.connection().Took(read_);
  if (sends_) ticket_.connection().SendEnded(sending_);
  OnEnd();
  delete this;
}

std::unique_ptr<grpc::Service> NewService(Methods methods,
                                          Connections* connections) {
  return std::make_unique<TableService>(std::move(methods), connections);
}

absl::Status ParseRequest(grpc::ByteBuffer& bytes,
                          google::protobuf::Message& request) {
  const absl::Status parsed = ParseByteBuffer(bytes, request);
  // Protobuf does not say which text is not UTF-8, but it keeps the text.
  RETURN_IF_ERROR(CheckFieldLimits(request));
  return parsed;
}

Method UnaryMethod(
    std::function<absl::StatusOr<grpc::ByteBuffer>(grpc::ByteBuffer&)> answer) {
  return [answer = std::move(answer)](CallTicket ticket,
                                      grpc::CallbackServerContext&) {
    return new UnaryCall(std::move(ticket), answer);
  };
}

}  // namespace causeway
