// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/channelz.h"

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"
#include "grpc/grpc.h"
#include "grpc/support/alloc.h"

namespace causeway {
namespace {

using google::protobuf::Message;

// Debian's library has the messages, but there are no headers for them.
std::unique_ptr<Message> NewMessage(absl::string_view name) {
  const google::protobuf::Descriptor* const type =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(
          absl::StrCat("grpc.channelz.v1.", name));
  return std::unique_ptr<Message>(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(type)
          ->New());
}

intptr_t Field(const Message& request, const char* name) {
  return request.GetReflection()->GetInt64(
      request, request.GetDescriptor()->FindFieldByName(name));
}

struct Query {
  absl::string_view method;
  // Returns JSON to be freed by gpr_free; null if there is no such thing.
  char* (*answer)(const Message& request);
};

constexpr Query kQueries[] = {
    {"GetTopChannels",
     [](const Message& request) {
       return grpc_channelz_get_top_channels(
           Field(request, "start_channel_id"));
     }},
    {"GetServers",
     [](const Message& request) {
       return grpc_channelz_get_servers(Field(request, "start_server_id"));
     }},
    {"GetServer",
     [](const Message& request) {
       return grpc_channelz_get_server(Field(request, "server_id"));
     }},
    {"GetServerSockets",
     [](const Message& request) {
       return grpc_channelz_get_server_sockets(
           Field(request, "server_id"), Field(request, "start_socket_id"),
           Field(request, "max_results"));
     }},
    {"GetChannel",
     [](const Message& request) {
       return grpc_channelz_get_channel(Field(request, "channel_id"));
     }},
    {"GetSubchannel",
     [](const Message& request) {
       return grpc_channelz_get_subchannel(Field(request, "subchannel_id"));
     }},
    {"GetSocket",
     [](const Message& request) {
       return grpc_channelz_get_socket(Field(request, "socket_id"));
     }},
};

absl::StatusOr<grpc::ByteBuffer> Answer(const Query& query,
                                        const Caller& caller,
                                        grpc::ByteBuffer& bytes) {
  const std::unique_ptr<Message> request =
      NewMessage(absl::StrCat(query.method, "Request"));
  RETURN_IF_ERROR(ParseRequest(caller, bytes, *request));
  const std::unique_ptr<char, void (*)(void*)> json(query.answer(*request),
                                                    &gpr_free);
  if (json == nullptr) return absl::NotFoundError("gRPC knows no such id");
  const std::unique_ptr<Message> response =
      NewMessage(absl::StrCat(query.method, "Response"));
  if (!google::protobuf::util::JsonStringToMessage(json.get(), response.get())
           .ok()) {
    return absl::InternalError("gRPC's answer is no channelz message");
  }
  return ToAnswer(*response);
}

}  // namespace

Methods ChannelzMethods() {
  Methods methods;
  for (const Query& query : kQueries) {
    methods[absl::StrCat("/grpc.channelz.v1.Channelz/", query.method)] =
        UnaryMethod([&query](const Caller& caller, grpc::ByteBuffer& bytes) {
          return Answer(query, caller, bytes);
        });
  }
  return methods;
}

}  // namespace causeway
