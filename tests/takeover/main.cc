// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-takeover: kills the leader of a run with a real etcd, two followers
// and islands, again and again, and checks that nothing was lost or counted
// twice.
//
// Exit codes: 0 the checks passed; 1 they did not, or failure; 2 usage.
//
// The report, in JSON:
//   kills                how often the leader was killed
//   lost                 versions that were announced and are gone, and steps
//                        of islands that were not merged
//   double_counted       steps that were merged more than once
//   rounds               versions that were made
//   gap_seconds          from each kill to the next commit, and then from each
//                        stop and cut of a leader, in their order
//   longest_gap_seconds  the longest after a kill
//   lease_seconds        the lease of the leader
#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/os/daemon.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/testing/temporary_directory.h"
#include "nlohmann/json.hpp"
#include "tests/takeover/trial.h"

ABSL_FLAG(int, kills, 30, "How often the leader is killed.");
ABSL_FLAG(int, stops, 0,
          "How often, after that, the leader is stopped until another one has "
          "made a version.");
ABSL_FLAG(int, others, 0,
          "How often, after that, the leader and etcd are stopped, a follower "
          "loses its disk, and the leader is cut off from etcd, from followers "
          "and from islands.");
ABSL_FLAG(int, islands, 4, "Islands.");
ABSL_FLAG(int, lease_seconds, 5, "The leader's lease.");
ABSL_FLAG(uint64_t, seed, 1, "Decides the moments of the kills.");
ABSL_FLAG(std::string, json, "", "Where to write the report.");
ABSL_FLAG(std::string, directory, "",
          "Where to keep states and logs; by default they are removed.");
ABSL_FLAG(std::string, programs, "",
          "The directory that has server/causeway-coordinator and "
          "worker/causeway-worker.");
ABSL_FLAG(std::string, data, "/usr/share/common-licenses/GPL-3",
          "Text to train on.");

namespace causeway {
namespace {

absl::Status Run() {
  ASSIGN_OR_RETURN(TemporaryDirectory directory,
                   TemporaryDirectory::MakeUnless(
                       absl::GetFlag(FLAGS_directory), "causeway-takeover"));
  const int kills = absl::GetFlag(FLAGS_kills);
  std::vector<Disturbance> disturbances(static_cast<size_t>(kills),
                                        Disturbance::kKillLeader);
  disturbances.insert(disturbances.end(),
                      static_cast<size_t>(absl::GetFlag(FLAGS_stops)),
                      Disturbance::kStopLeader);
  for (int i = 0; i < absl::GetFlag(FLAGS_others); ++i) {
    for (const Disturbance other :
         {Disturbance::kStopLeader, Disturbance::kStopEtcd,
          Disturbance::kWipeFollower, Disturbance::kCutLeaderFromEtcd,
          Disturbance::kCutLeaderFromFollowers,
          Disturbance::kCutLeaderFromIslands}) {
      disturbances.push_back(other);
    }
  }
  const absl::StatusOr<TakeoverResult> result =
      RunTakeover({.programs = absl::GetFlag(FLAGS_programs),
                   .data = absl::GetFlag(FLAGS_data),
                   .directory = directory.path(),
                   .islands = absl::GetFlag(FLAGS_islands),
                   .lease = absl::Seconds(absl::GetFlag(FLAGS_lease_seconds)),
                   .disturbances = std::move(disturbances),
                   .seed = absl::GetFlag(FLAGS_seed),
                   .now = SteadyWallClock()});
  if (!result.ok()) directory.Keep();
  RETURN_IF_ERROR(result.status());
  std::vector<double> gaps;
  for (const absl::Duration gap : result->gaps) {
    gaps.push_back(absl::ToDoubleSeconds(gap));
  }
  const Accounts& accounts = result->accounts;
  const uint64_t lost = accounts.lost_commits + accounts.lost_steps;
  const nlohmann::json report = {
      {"kills", kills},
      {"lost", lost},
      {"double_counted", accounts.double_counted_steps},
      {"findings", accounts.findings},
      {"rounds", result->rounds},
      {"gap_seconds", gaps},
      {"longest_gap_seconds",
       kills == 0 ? 0.0
                  : *std::max_element(gaps.begin(), gaps.begin() + kills)},
      {"lease_seconds", absl::GetFlag(FLAGS_lease_seconds)}};
  const std::string text = report.dump(2) + "\n";
  std::cout << text;
  if (const std::string file = absl::GetFlag(FLAGS_json); !file.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(file, {text}));
  }
  if (lost + accounts.double_counted_steps == 0) return absl::OkStatus();
  return absl::DataLossError("something was lost or counted twice");
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  causeway::StartDaemon(argc, argv,
                        "Kills the leader of a run again and again. Exits with "
                        "0 if nothing was lost or counted twice.",
                        "tests/takeover/main.cc");
  return causeway::ExitCode("causeway-takeover", causeway::Run());
}
