// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/rank_connection.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "proto/island.pb.h"
#include "worker/collective/culprit.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rank_stamps.h"
#include "worker/collective/tcp_transport.h"
#include "worker/collective/time_limit.h"

namespace causeway {
namespace {

// The value is kEncrypted or kPlain, and the JoinResponse; or kNone, and the
// RankFailure.
constexpr char kRunKey[] = "run";
constexpr char kEncrypted = 'E';
constexpr char kPlain = 'P';
constexpr char kNone = 'N';

// A waiting rank checks at this interval whether it must stop.
constexpr absl::Duration kLook = absl::Seconds(1);

std::string Key(Milestone milestone, int rank) {
  return absl::StrCat(
      milestone == Milestone::kAttached ? "attached/" : "begun/", rank);
}

// Returns `status` as a rank tells it to the others.
std::string Said(int rank, const absl::Status& status) {
  v1::RankFailure said;
  said.set_rank(rank);
  said.set_code(static_cast<int>(status.code()));
  said.set_message(std::string(status.message()));
  return said.SerializeAsString();
}

// Returns the status that the others derive from `text`; see AwaitRank.
absl::Status Heard(int rank, const std::string& text) {
  v1::RankFailure said;
  if (!said.ParseFromString(text)) {
    return absl::DataLossError(
        absl::StrCat("the message from rank ", rank, " is damaged"));
  }
  const auto code = static_cast<absl::StatusCode>(said.code());
  if (code == absl::StatusCode::kOk || code == absl::StatusCode::kCancelled) {
    return absl::Status(code, said.message());
  }
  return absl::AbortedError(
      absl::StrCat("rank ", rank, " has given up: ", said.message()));
}

void Tell(int rank, absl::string_view key, absl::string_view text,
          Rendezvous* rendezvous) {
  const absl::Status told = rendezvous->Put(key, text);
  LOG_IF(WARNING, !told.ok() && !absl::IsAlreadyExists(told))
      << "rank " << rank
      << " could not tell the others how far it is: " << told.message();
}

absl::StatusOr<std::unique_ptr<Communicator>> Connect(
    const EmbeddedIslandOptions& options, const char* name,
    absl::Duration timeout, std::optional<RankLane> lane,
    Rendezvous* rendezvous) {
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
  return MakeMessageCommunicator({.timeout = timeout, .now = now, .lane = lane},
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

void ShareNoRun(const absl::Status& status, Rendezvous* rendezvous) {
  Tell(0, kRunKey, absl::StrCat(std::string(1, kNone), Said(0, status)),
       rendezvous);
}

absl::StatusOr<v1::JoinResponse> AwaitSharedRun(Rendezvous* rendezvous,
                                                absl::Duration timeout,
                                                bool& encrypt) {
  ASSIGN_OR_RETURN(const std::string text, rendezvous->Get(kRunKey, timeout));
  if (!text.empty() && text[0] == kNone) {
    RETURN_IF_ERROR(Heard(0, text.substr(1)));
  }
  v1::JoinResponse joined;
  if (text.empty() || !joined.ParseFromString(text.substr(1))) {
    return absl::DataLossError("rank 0's description of the run is damaged");
  }
  encrypt = text[0] == kEncrypted;
  return joined;
}

void TellRanks(Milestone milestone, int rank, const absl::Status& status,
               Rendezvous* rendezvous) {
  Tell(rank, Key(milestone, rank), Said(rank, status), rendezvous);
}

absl::Status AwaitRank(Milestone milestone, int rank, absl::Duration timeout,
                       Rendezvous* rendezvous) {
  ASSIGN_OR_RETURN(const std::string text,
                   rendezvous->Get(Key(milestone, rank), timeout));
  return Heard(rank, text);
}

absl::Status AwaitBegin(const EmbeddedIslandOptions& options,
                        const std::function<bool()>& stop,
                        Rendezvous* rendezvous) {
  TimeLimit limit(options.rank_timeout, &options.connection.now);
  Milestone awaited = Milestone::kAttached;
  while (!stop()) {
    // Loading has no time limit, because it depends on the link.
    const absl::Duration left = awaited == Milestone::kAttached
                                    ? limit.Left()
                                    : absl::InfiniteDuration();
    if (left == absl::ZeroDuration()) {
      return NotAttached(0, options.rank_timeout);
    }
    const absl::Status said =
        AwaitRank(awaited, 0, std::min(left, kLook), rendezvous);
    if (absl::IsUnavailable(said)) {
      return BlameRank(0, said.code(),
                       absl::StrCat("rank ", options.rank,
                                    " has lost its connection to it before "
                                    "the start: ",
                                    said.message()));
    }
    if (absl::IsDeadlineExceeded(said)) continue;
    if (!said.ok() || awaited == Milestone::kBegun) return said;
    awaited = Milestone::kBegun;
  }
  return absl::CancelledError("closed");
}

absl::Status NotAttached(int rank, absl::Duration timeout) {
  return BlameRank(
      rank, absl::StatusCode::kDeadlineExceeded,
      absl::StrCat("it has joined, but has not attached its tensors within ",
                   absl::FormatDuration(timeout), " of another rank"));
}

absl::StatusOr<RankCommunicators> ConnectRanks(
    const EmbeddedIslandOptions& options, Rendezvous* rendezvous) {
  RankCommunicators ranks;
  ASSIGN_OR_RETURN(ranks.orders,
                   Connect(options, "orders", options.rank_timeout,
                           std::nullopt, rendezvous));
  ASSIGN_OR_RETURN(ranks.replica,
                   Connect(options, "replica", kNoLimit,
                           RankLane::kReplicaCollective, rendezvous));
  ASSIGN_OR_RETURN(ranks.training,
                   Connect(options, "training", options.rank_timeout,
                           RankLane::kTrainingCollective, rendezvous));
  return ranks;
}

absl::Duration Pulse(const EmbeddedIslandOptions& options) {
  // The other ranks notice a missing pulse in time.
  return options.rank_timeout / 4;
}

}  // namespace causeway
