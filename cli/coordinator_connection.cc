// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/coordinator_connection.h"

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"

namespace causeway {

void AddConnectionFlags(ConnectionFlags& flags, FlagSet& set) {
  set.Add("coordinator", "ADDRESS", "The coordinator to ask, as HOST:PORT.",
          &flags.coordinator);
  set.Add("tls_ca", "FILE",
          "PEM file with the authorities that sign the coordinator's "
          "certificate. Turns TLS on.",
          &flags.tls.tls_ca);
  set.Add("tls_cert", "FILE",
          "PEM file with a certificate, if the coordinator demands one.",
          &flags.tls.tls_cert);
  set.Add("tls_key", "FILE", "PEM file with the key of --tls_cert.",
          &flags.tls.tls_key);
}

std::shared_ptr<grpc::Channel> ConnectToCoordinator(
    const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

absl::Status ExplainAnswer(const grpc::Status& status,
                           const std::string& address) {
  const absl::Status explained = FromGrpcStatus(status);
  if (!absl::IsUnavailable(explained) && !absl::IsDeadlineExceeded(explained)) {
    return explained;
  }
  return absl::Status(
      explained.code(),
      absl::StrCat("no coordinator answers at ", address, " (",
                   explained.message(),
                   "); is it running, and is this its address?"));
}

}  // namespace causeway
