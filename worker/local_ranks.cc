// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/local_ranks.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/transport/socket_address.h"
#include "glog/logging.h"
#include "worker/collective/rank_secret.h"
#include "worker/flags.h"

namespace causeway {
namespace {

// Returns this process's address in --island_leader, or the first if it has
// none.
std::string OwnLeaderAddress() {
  const std::vector<LeaderAddress> leaders = IslandLeaders();
  const int place =
      PlaceInSuccession(leaders, absl::GetFlag(FLAGS_island_rank));
  return leaders[std::max(place, 0)].address;
}

}  // namespace

absl::StatusOr<LocalRanks> FindLocalRanks() {
  ASSIGN_OR_RETURN(const DeviceChoice choice,
                   ParseDevices(absl::GetFlag(FLAGS_device)));
  LocalRanks ranks;
  ASSIGN_OR_RETURN(ranks.devices, FindDevices(choice));
  ranks.count = absl::GetFlag(FLAGS_ranks);
  const int devices = static_cast<int>(ranks.devices.size());
  if (ranks.count == 0) ranks.count = devices;
  const std::string problem = RanksProblem(ranks.count);
  if (!problem.empty()) return absl::InvalidArgumentError(problem);
  // Devices without a rank stay free.
  ranks.devices.resize(std::min(ranks.count, devices));
  ranks.threads = std::max(1, ThreadsOfAll() / ranks.count);
  return ranks;
}

IslandRanksOptions TrainerOptions(const LocalRanks& local) {
  return {.data = absl::GetFlag(FLAGS_data),
          .data_weights = DataWeights(),
          .devices = local.devices,
          .threads = local.threads,
          .anchors_on_device = absl::GetFlag(FLAGS_anchors_on_device),
          .timeout = absl::Seconds(absl::GetFlag(FLAGS_rank_timeout)),
          .now = SteadyWallClock()};
}

ProcessRankOptions RankOptions(const LocalRanks& local, int rank, int size,
                               Rendezvous* rendezvous) {
  std::string host = absl::GetFlag(FLAGS_rank_host);
  if (host.empty() && LeaderIsOnLoopback()) {
    host = std::string(HostOf(OwnLeaderAddress()));
  }
  return {.rank = rank,
          .size = size,
          .threads = local.count,
          .host = host,
          .encrypt = absl::GetFlag(FLAGS_rank_encryption),
          .rendezvous = rendezvous,
          .connect_timeout = kAwaitProcess};
}

absl::StatusOr<RendezvousOptions> IslandRendezvousOptions() {
  RendezvousOptions options{.address = OwnLeaderAddress(),
                            .now = SteadyWallClock()};
  const std::string path = absl::GetFlag(FLAGS_rank_secret_file);
  if (!path.empty()) {
    ASSIGN_OR_RETURN(options.secret, ReadRankSecret(path));
  } else if (!LeaderIsOnLoopback()) {
    LOG_FIRST_N(WARNING, 1) << "--insecure_ranks: anyone who can reach "
                            << options.address << " can join the island";
  }
  return options;
}

absl::StatusOr<Succession> IslandSuccession() {
  ASSIGN_OR_RETURN(RendezvousOptions rendezvous, IslandRendezvousOptions());
  return Succession{.leaders = IslandLeaders(),
                    .process = absl::GetFlag(FLAGS_island_rank),
                    .patience = IslandCrewRules().shrink_after,
                    .rendezvous = std::move(rendezvous)};
}

}  // namespace causeway
