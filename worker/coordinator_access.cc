// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator_access.h"

#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/transport/enrolment.h"
#include "common/transport/identity.h"
#include "glog/logging.h"
#include "worker/flags.h"
#include "worker/sync/coordinator_channel.h"
#include "worker/sync/grpc_coordinator_client.h"
#include "worker/terminator.h"

namespace causeway {
namespace {

// A process that begins to lead makes its key within this time.
constexpr absl::Duration kLeaderEnrols = absl::Seconds(5);

absl::StatusOr<std::string> Token() {
  const std::string path = absl::GetFlag(FLAGS_join_file);
  if (path.empty()) return absl::GetFlag(FLAGS_join);
  ASSIGN_OR_RETURN(std::string token, ReadFile(path));
  absl::StripAsciiWhitespace(&token);
  return token;
}

// Calls EnrolOnce, unless there is no token, or its file was removed after use.
absl::Status EnrolUnlessDone(const Clock& wall_clock, uint64_t seed,
                             const std::function<bool(absl::Duration)>& pause) {
  const std::string folder = absl::GetFlag(FLAGS_tls);
  const std::string token_file = absl::GetFlag(FLAGS_join_file);
  const absl::StatusOr<std::string> token = Token();
  if (token.ok() && !token->empty()) {
    return EnrolOnce(absl::GetFlag(FLAGS_coordinator), *token,
                     absl::GetFlag(FLAGS_island), folder, wall_clock, seed,
                     pause);
  }
  if (!token.ok() && !absl::IsNotFound(token.status())) return token.status();
  if (token.ok() && folder.empty()) return absl::OkStatus();
  const absl::Status own = FolderIdentity(folder, wall_clock()).status();
  if (own.ok()) return own;
  if (!token_file.empty()) {
    return absl::NotFoundError(
        absl::StrCat("--join_file: ",
                     token.ok() ? absl::StrCat(token_file, " is empty")
                                : std::string(token.status().message()),
                     ", and a token is needed, because ", folder,
                     " has no valid certificate (", own.message(),
                     "); an operator makes a token (causeway token create)"));
  }
  return absl::IsNotFound(own) ? own : absl::OkStatus();
}

}  // namespace

ClientTlsFiles IslandTlsFiles() {
  return {.tls_ca = absl::GetFlag(FLAGS_tls_ca),
          .tls_cert = absl::GetFlag(FLAGS_tls_cert),
          .tls_key = absl::GetFlag(FLAGS_tls_key),
          .tls = absl::GetFlag(FLAGS_tls)};
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> PrepareAccess(
    const Clock& wall_clock, const std::function<uint64_t()>& random_seed) {
  const ClientTlsFiles files = IslandTlsFiles();
  const absl::Status enrolled =
      EnrolUnlessDone(wall_clock, random_seed(), PauseUnlessInterrupted);
  if (IsInterrupted()) return absl::CancelledError("stopped before the start");
  RETURN_IF_ERROR(enrolled);
  if (!files.tls.empty() && absl::GetFlag(FLAGS_island).empty()) {
    ASSIGN_OR_RETURN(const Identity identity,
                     FolderIdentity(files.tls, wall_clock()));
    absl::SetFlag(&FLAGS_island, identity.name);
  }
  return MakeChannelCredentials(files, wall_clock());
}

AccessKeeper::AccessKeeper(Clock wall_clock, uint64_t seed) {
  if (absl::GetFlag(FLAGS_tls).empty()) return;
  thread_ = std::thread([this, wall_clock = std::move(wall_clock), seed] {
    Run(wall_clock, seed);
  });
}

AccessKeeper::~AccessKeeper() {
  stop_.Notify();
  if (thread_.joinable()) thread_.join();
}

void AccessKeeper::Run(const Clock& wall_clock, uint64_t seed) {
  // The leader may use the same folder, and two processes must not make keys
  // there at the same time.
  if (stop_.WaitForNotificationWithTimeout(kLeaderEnrols)) return;
  const absl::Status enrolled =
      EnrolUnlessDone(wall_clock, seed, [this](absl::Duration pause) {
        return !stop_.WaitForNotificationWithTimeout(pause);
      });
  LOG_IF(WARNING, !enrolled.ok() && !stop_.HasBeenNotified())
      << "this process cannot lead the island: " << enrolled.message();
  const CertificateRenewer renewer(absl::GetFlag(FLAGS_coordinator),
                                   absl::GetFlag(FLAGS_tls), wall_clock, seed);
  stop_.WaitForNotification();
}

std::unique_ptr<CoordinatorClient> ConnectToCoordinator(
    std::shared_ptr<grpc::ChannelCredentials> credentials, const Clock& now) {
  return NewGrpcCoordinatorClient(
      {.address = absl::GetFlag(FLAGS_coordinator),
       .region = absl::GetFlag(FLAGS_region),
       .credentials = std::move(credentials),
       .tls = !absl::GetFlag(FLAGS_tls).empty() ||
              !absl::GetFlag(FLAGS_tls_ca).empty(),
       .bulk_connections = absl::GetFlag(FLAGS_bulk_connections),
       .uplink_bytes_per_second =
           absl::GetFlag(FLAGS_uplink_mbit_s) * kBytesPerMbit,
       .downlink_bytes_per_second =
           absl::GetFlag(FLAGS_downlink_mbit_s) * kBytesPerMbit,
       .now = now});
}

}  // namespace causeway
