// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/coordinator_client.h"

#include <utility>

#include "common/history_pages.h"
#include "common/status_macros.h"
#include "common/transport/coordinator_target.h"
#include "common/transport/enrolment.h"
#include "common/transport/keepalive.h"
#include "common/transport/reachability.h"
#include "grpc/support/time.h"

namespace causeway {
namespace {

using Stub = v1::Status::Stub;

// The fragments of a run of thousands of islands take more than gRPC's default
// of 4 MiB.
constexpr int kMostResponseBytes = 64 << 20;

std::shared_ptr<grpc::Channel> Connect(
    const std::string& addresses,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  AddKeepalive(arguments);
  arguments.SetMaxReceiveMessageSize(kMostResponseBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  // Despite its name, this also limits each connection attempt, which takes
  // several round trips because of HTTP/2 settings and TLS.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(
                       CoordinatorClient::kCallTimeout)));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return CoordinatorTarget(addresses).Connect(credentials, arguments);
}

}  // namespace

void AddConnectionFlags(ConnectionFlags& flags, FlagSet& set) {
  set.Add("coordinator", "ADDRESS",
          "The coordinator to ask, as HOST:PORT; or, separated by commas, its "
          "address and those of its followers.",
          &flags.coordinator, CheckCoordinators);
  AddTlsFlags(flags.tls, set);
}

void AddTlsFlags(ClientTlsFiles& flags, FlagSet& set) {
  set.Add("tls", "DIR",
          "Folder with a certificate of the coordinator's own authority, as "
          "`causeway enrol` makes it. Turns TLS on. On the coordinator's "
          "machine: STATE_DIR/tls/operator.",
          &flags.tls);
  set.Add("tls_ca", "FILE",
          "PEM file with the authorities that sign the coordinator's "
          "certificate. Turns TLS on.",
          &flags.tls_ca);
  set.Add("tls_cert", "FILE",
          "PEM file with a certificate, if the coordinator demands one.",
          &flags.tls_cert);
  set.Add("tls_key", "FILE", "PEM file with the key of --tls_cert.",
          &flags.tls_key);
}

absl::StatusOr<std::unique_ptr<CoordinatorClient>> CoordinatorClient::Create(
    const ConnectionFlags& flags, absl::Time now) {
  RETURN_IF_ERROR(CheckCoordinators(flags.coordinator));
  if (const std::string& folder = flags.tls.tls; !folder.empty()) {
    const absl::StatusOr<absl::Time> due = FolderRenewalTime(folder);
    // If this fails, the old certificate may still be valid.
    if (due.ok() && now >= *due) {
      Renew(flags.coordinator, folder, now).IgnoreError();
    }
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                   MakeChannelCredentials(flags.tls, now));
  return std::make_unique<CoordinatorClient>(flags.coordinator, credentials,
                                             flags.tls.UsesTls());
}

CoordinatorClient::CoordinatorClient(
    std::string address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials, bool tls)
    : address_(std::move(address)),
      tls_(tls),
      channel_(Connect(address_, credentials)) {}

absl::StatusOr<StatusSnapshot> CoordinatorClient::Fetch(bool departed) {
  StatusSnapshot snapshot;
  ASSIGN_OR_RETURN(snapshot.run, Call(&Stub::GetRun, v1::GetRunRequest()));
  ASSIGN_OR_RETURN(snapshot.islands, FetchIslands(departed));
  ASSIGN_OR_RETURN(snapshot.fragments,
                   Call(&Stub::ListFragments, v1::ListFragmentsRequest()));
  return snapshot;
}

absl::StatusOr<v1::ListIslandsResponse> CoordinatorClient::FetchIslands(
    bool departed) {
  v1::ListIslandsRequest request;
  request.set_include_departed(departed);
  v1::ListIslandsResponse islands;
  v1::ListIslandsResponse page;
  do {
    ASSIGN_OR_RETURN(page, Call(&Stub::ListIslands, request));
    if (page.islands().empty()) break;
    request.set_after(page.islands().rbegin()->island_id());
    for (v1::IslandStatus& island : *page.mutable_islands()) {
      *islands.add_islands() = std::move(island);
    }
  } while (page.more());
  return islands;
}

absl::Status CoordinatorClient::FetchHistory(v1::GetHistoryResponse& history) {
  return AppendHistoryPages(
      [this](const v1::GetHistoryRequest& request) {
        return Call(&Stub::GetHistory, request);
      },
      history);
}

absl::Status CoordinatorClient::WatchEvents(
    const v1::WatchEventsRequest& request,
    const std::function<bool(const v1::Event&)>& consume, bool limit_time) {
  grpc::ClientContext context;
  if (limit_time) LimitTime(context, kCallTimeout);
  const std::unique_ptr<grpc::ClientReader<v1::Event>> reader =
      Stub(channel_).WatchEvents(&context, request);
  v1::Event event;
  while (reader->Read(&event)) {
    if (consume(event)) continue;
    context.TryCancel();
    // The status reports our own cancellation.
    reader->Finish();
    return absl::OkStatus();
  }
  return Explain(reader->Finish());
}

void CoordinatorClient::LimitTime(grpc::ClientContext& context,
                                  absl::Duration timeout) {
  context.set_deadline(
      gpr_time_from_millis(absl::ToInt64Milliseconds(timeout), GPR_TIMESPAN));
}

absl::Status CoordinatorClient::Explain(const grpc::Status& status) const {
  return ExplainCall(address_, tls_, status);
}

}  // namespace causeway
