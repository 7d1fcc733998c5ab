// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-wan-sites: a star of emulated long links, for programs other than
// Causeway's. Each site has a network namespace with the address 10.77.SITE.2
// and a link to a router, over which it reaches every other site. The last
// site, for servers, has a link without a limit, with the same delay. Prints
// the namespaces in the order of the sites, one a line, for
// `nsenter --net=LINE`, and then lasts until it is ended. Sites have no route
// to the router's other links: `ip route add default via 10.77.SITE.1` makes
// it.
//
// Exit codes: 0 ended by a signal; 1 failure; 2 usage; 77 this system does not
// permit network namespaces.
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/os/daemon.h"
#include "common/status_macros.h"
#include "tests/wan/network.h"
#include "tests/wan/network_namespace.h"
#include "tests/wan/scenario.pb.h"

ABSL_FLAG(int, sites, 3, "The number of sites, with that for servers.");
ABSL_FLAG(double, rate_mbit_s, 100, "The rate of each link, each way.");
ABSL_FLAG(double, round_trip_ms, 50,
          "The round trip from any site to another.");

namespace causeway {
namespace {

constexpr char kProgram[] = "causeway-wan-sites";

absl::Status Run() {
  wan::Scenario scenario;
  wan::Network shape;
  wan::DirectionShape& both = *shape.mutable_link()->mutable_both();
  both.set_rate_mbit_s(absl::GetFlag(FLAGS_rate_mbit_s));
  // A round trip crosses two links, each of them twice.
  both.set_delay_ms(absl::GetFlag(FLAGS_round_trip_ms) / 4);
  const int sites = absl::GetFlag(FLAGS_sites);
  for (int i = 0; i < sites; ++i) {
    scenario.add_islands()->set_name(absl::StrCat("site", i));
  }
  wan::IslandLink& server = *shape.add_exceptions();
  server.set_island(absl::StrCat("site", sites - 1));
  server.mutable_link()->mutable_both()->set_rate_mbit_s(
      wan::DirectionShape().rate_mbit_s());

  ASSIGN_OR_RETURN(const NetworkNamespace router, NetworkNamespace::Create());
  ASSIGN_OR_RETURN(const NetworkNamespace::Scope inside, router.Enter());
  ASSIGN_OR_RETURN(const Network network,
                   Network::Create(scenario, shape, 1, SteadyWallClock()));
  RETURN_IF_ERROR(ForwardPackets());
  RETURN_IF_ERROR(network.Check().status());
  for (const Network::Island& site : network.islands()) {
    std::cout << site.inside.path() << "\n";
  }
  std::cout << std::flush;
  while (AwaitTerminationSignal(absl::Minutes(1)) == 0) {
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  causeway::StartDaemon(argc, argv,
                        "Joins network namespaces by emulated long links.",
                        "tests/wan/sites.cc");
  return causeway::RunIfPermitted(causeway::kProgram, causeway::Run);
}
