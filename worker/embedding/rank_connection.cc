// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/rank_connection.h"

#include <string>
#include <utility>

#include "common/status_macros.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/tcp_transport.h"

namespace causeway {
namespace {

// The value is kEncrypted or kPlain, and the JoinResponse.
constexpr char kRunKey[] = "run";
constexpr char kEncrypted = 'E';
constexpr char kPlain = 'P';

// The time until ranks come to the replica's operations has no bound.
constexpr absl::Duration kNoLimit = absl::Hours(24 * 365);

absl::StatusOr<std::unique_ptr<Communicator>> Connect(
    const EmbeddedIslandOptions& options, const char* name,
    absl::Duration timeout, Rendezvous* rendezvous) {
  const Clock& now = options.connection.now;
  std::unique_ptr<Transport> transport;
  if (options.ranks == 1) {
    transport = std::move(MakeLocalTransports(1)[0]);
  } else {
    ASSIGN_OR_RETURN(transport,
                     ConnectTcp({.rank = options.rank,
                                 .size = options.ranks,
                                 .name = name,
                                 .host = options.host,
                                 .encrypt = options.encrypt,
                                 .connect_timeout = options.rank_timeout,
                                 .now = now},
                                rendezvous));
  }
  return MakeMessageCommunicator({.timeout = timeout, .now = now},
                                 std::move(transport), rendezvous);
}

RendezvousOptions OptionsOf(const EmbeddedIslandOptions& options) {
  return {.address = options.leader,
          .secret = options.secret,
          .now = options.connection.now};
}

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousServer>> ServeRendezvous(
    const EmbeddedIslandOptions& options) {
  return RendezvousServer::Start(OptionsOf(options));
}

absl::StatusOr<std::unique_ptr<Rendezvous>> FindRendezvous(
    const EmbeddedIslandOptions& options) {
  return ConnectRendezvous(OptionsOf(options), options.rank_timeout);
}

absl::Status ShareRun(const v1::JoinResponse& joined, bool encrypt,
                      Rendezvous* rendezvous) {
  return rendezvous->Put(kRunKey,
                         std::string(1, encrypt ? kEncrypted : kPlain) +
                             joined.SerializeAsString());
}

absl::StatusOr<v1::JoinResponse> AwaitSharedRun(Rendezvous* rendezvous,
                                                absl::Duration timeout,
                                                bool& encrypt) {
  ASSIGN_OR_RETURN(const std::string text, rendezvous->Get(kRunKey, timeout));
  v1::JoinResponse joined;
  if (text.empty() || !joined.ParseFromString(text.substr(1))) {
    return absl::DataLossError("what rank 0 says of the run is damaged");
  }
  encrypt = text[0] == kEncrypted;
  return joined;
}

absl::StatusOr<RankCommunicators> ConnectRanks(
    const EmbeddedIslandOptions& options, Rendezvous* rendezvous) {
  RankCommunicators ranks;
  ASSIGN_OR_RETURN(ranks.orders, Connect(options, "orders",
                                         options.rank_timeout, rendezvous));
  ASSIGN_OR_RETURN(ranks.replica,
                   Connect(options, "replica", kNoLimit, rendezvous));
  ASSIGN_OR_RETURN(ranks.training, Connect(options, "training",
                                           options.rank_timeout, rendezvous));
  return ranks;
}

absl::Duration Pulse(const EmbeddedIslandOptions& options) {
  // Often enough for the other ranks to hear of it in time.
  return options.rank_timeout / 4;
}

}  // namespace causeway
