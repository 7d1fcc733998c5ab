// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/coordinator_channel.h"

#include "absl/strings/str_cat.h"
#include "common/transport/grpc_status.h"
#include "common/transport/keepalive.h"
#include "common/transport/reachability.h"

namespace causeway {

grpc::ChannelArguments ChannelArgumentsOfIsland() {
  // Between exchanges the bulk connections have no calls, but a dead one should
  // be replaced before the next exchange.
  grpc::ChannelArguments arguments = LastingChannelArguments();
  arguments.SetMaxReceiveMessageSize(16 << 20);
  return arguments;
}

std::vector<std::shared_ptr<grpc::Channel>> NewChannels(
    const GrpcCoordinatorClientOptions& options,
    const CoordinatorTarget& target, int count) {
  const grpc::ChannelArguments arguments = ChannelArgumentsOfIsland();
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < count; ++i) {
    channels.push_back(target.Connect(options.credentials, arguments));
  }
  return channels;
}

absl::Duration CallTimeout(const GrpcCoordinatorClientOptions& options,
                           uint64_t bulk_bytes) {
  return options.call_deadline +
         absl::Seconds(static_cast<double>(bulk_bytes) /
                       options.slowest_bytes_per_second);
}

std::string CoordinatorName(const GrpcCoordinatorClientOptions& options) {
  return absl::StrCat("the coordinator at ", options.address);
}

absl::Status CallStatus(absl::string_view peer, const grpc::Status& status) {
  const std::string error = status.error_message();
  if (SaysDiskFails(error)) {
    return absl::Status(
        FromGrpcStatus(status).code(),
        absl::StrCat(peer, " answers, but its disk fails: ", error));
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(
        absl::StrCat("cannot reach ", peer, ": ", error));
  }
  return FromGrpcStatus(status);
}

}  // namespace causeway
