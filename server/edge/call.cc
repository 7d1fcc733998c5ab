// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/call.h"

#include "common/transport/field_limits.h"
#include "common/transport/grpc_status.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/codegen/service_type.h"

namespace causeway {
namespace {

// Tells a client that was refused for load when to retry (gRPC's proposal A6).
constexpr char kRetryAfter[] = "grpc-retry-pushback-ms";
constexpr char kRetryMilliseconds[] = "5000";

class UnaryCall : public Call {
 public:
  using Handler = std::function<absl::StatusOr<grpc::ByteBuffer>(
      const Caller&, grpc::ByteBuffer&)>;

  UnaryCall(BegunCall begun, Handler answer)
      : Call(std::move(begun)), answer_(std::move(answer)) {
    Read(&message_);
  }

 private:
  void OnRead(bool ok) override {
    if (!ok) {
      return Finish(
          ToGrpcStatus(absl::InvalidArgumentError("the call has no request")));
    }
    if (threads() == nullptr) return Answer();
    threads()->Run([this] { Answer(); });
  }
  void OnWritten(bool) override {}

  void Answer() {
    absl::StatusOr<grpc::ByteBuffer> answer = answer_(caller(), message_);
    if (!answer.ok()) return Finish(ToGrpcStatus(answer.status()));
    message_ = *std::move(answer);
    WriteAndFinish(&message_);
  }

  const Handler answer_;
  // Holds the request, then the response.
  grpc::ByteBuffer message_;
};

class RefusedCall : public Call {
 public:
  RefusedCall(BegunCall begun, const absl::Status& why)
      : Call(std::move(begun)) {
    Finish(ToGrpcStatus(why));
  }

 private:
  void OnRead(bool) override {}
  void OnWritten(bool) override {}
  void OnEnd() override { CountAsBrokenOff(); }
};

// Generated code has a class for each service, with a virtual function for each
// method. This class treats all methods alike.
class TableService : public grpc::Service {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
  using Handler =
      grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>;

  TableService(Methods methods, Connections* connections, const Access* access)
      : methods_(std::move(methods)) {
    int index = 0;
    for (const auto& [path, method] : methods_) {
      AddMethod(new grpc::internal::RpcServiceMethod(
          path.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
      MarkMethodRawCallback(
          index++,
          new Handler([connections, access, &path = path, &method = method](
                          grpc::CallbackServerContext* context) -> Reactor* {
            Caller caller = access->Identify(path, *context);
            absl::Status allowed = caller.Check();
            const bool is_known = allowed.ok() && caller.identity().ok();
            BegunCall begun = {
                connections->BeginCall(context->peer(),
                                       is_known ? caller.Name() : ""),
                std::move(caller)};
            Connection& connection = begun.ticket.connection();
            // TLS asks for a certificate only once in a connection.
            if (absl::IsUnavailable(allowed)) connection.End();
            if (allowed.ok()) {
              allowed = connection.CheckLoad(begun.caller.precedence());
              if (!allowed.ok()) {
                context->AddTrailingMetadata(kRetryAfter, kRetryMilliseconds);
              }
            }
            if (allowed.ok()) return method(std::move(begun));
            connection.CallRefused();
            return new RefusedCall(std::move(begun), allowed);
          }));
    }
  }

 private:
  const Methods methods_;
};

}  // namespace

void Call::Read(grpc::ByteBuffer* message) {
  if (read_ > 0) connection().Took(read_);
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
  connection().SendBegan(bytes);
}

void Call::Write(const grpc::ByteBuffer* message, uint64_t lent) {
  BeginSend(message->Length() - lent);
  StartWrite(message);
}

void Call::WriteAndFinish(const grpc::ByteBuffer* message, uint64_t lent) {
  BeginSend(message->Length() - lent);
  StartWriteAndFinish(message, {}, grpc::Status::OK);
}

void Call::OnWriteDone(bool ok) {
  sends_ = false;
  connection().SendEnded(sending_);
  OnWritten(ok);
}

void Call::OnDone() {
  if (read_ > 0) connection().Took(read_);
  if (sends_) connection().SendEnded(sending_);
  OnEnd();
  delete this;
}

Method On(DiskThreads* threads, Method method) {
  return [threads, method = std::move(method)](BegunCall begun) {
    begun.threads = threads;
    return method(std::move(begun));
  };
}

Methods On(DiskThreads* threads, Methods methods) {
  for (auto& [path, method] : methods) method = On(threads, std::move(method));
  return methods;
}

Methods RefusedUnless(std::function<absl::Status()> check, Methods methods) {
  for (auto& [path, method] : methods) {
    method = [check, method = std::move(method)](BegunCall begun) -> Call* {
      const absl::Status checked = check();
      if (checked.ok()) return method(std::move(begun));
      return new RefusedCall(std::move(begun), checked);
    };
  }
  return methods;
}

std::unique_ptr<grpc::Service> NewService(Methods methods,
                                          Connections* connections,
                                          const Access* access) {
  return std::make_unique<TableService>(std::move(methods), connections,
                                        access);
}

absl::Status ParseRequest(const Caller& caller, grpc::ByteBuffer& bytes,
                          google::protobuf::Message& request) {
  return CheckRequest(caller, request, ParseByteBuffer(bytes, request));
}

absl::Status CheckRequest(const Caller& caller,
                          const google::protobuf::Message& request,
                          const absl::Status& parsed) {
  // Check first: protobuf's error does not say which text is not UTF-8.
  RETURN_IF_ERROR(CheckFieldLimits(request));
  RETURN_IF_ERROR(parsed);
  return caller.Check(request);
}

Method UnaryMethod(std::function<absl::StatusOr<grpc::ByteBuffer>(
                       const Caller&, grpc::ByteBuffer&)>
                       answer) {
  return [answer = std::move(answer)](BegunCall begun) {
    return new UnaryCall(std::move(begun), answer);
  };
}

}  // namespace causeway
