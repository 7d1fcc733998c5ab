// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The network of one run: a namespace for each island, joined to the
// coordinator's by a link. Island i has 10.77.i.2 and sees the coordinator as
// 10.77.i.1. There are no other routes.
#ifndef TESTS_WAN_NETWORK_H_
#define TESTS_WAN_NETWORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/wan/link.h"
#include "tests/wan/link_check.h"
#include "tests/wan/network_namespace.h"
#include "tests/wan/scenario.pb.h"

namespace causeway {

class Network {
 public:
  struct Island {
    std::string name;
    NetworkNamespace inside;
    // The address of the coordinator's end of the link.
    std::string coordinator_address;
    std::unique_ptr<Link> link;
    LinkSettings settings;
  };

  // Makes the links of `network` as they are before any event. The
  // coordinator's namespace is the calling thread's. `scenario` and `network`
  // must outlive the object; `seed` decides losses and jitter.
  //   PERMISSION_DENIED  this process may not make namespaces.
  static absl::StatusOr<Network> Create(const wan::Scenario& scenario,
                                        const wan::Network& network,
                                        uint64_t seed, const Clock& now);

  // Calls MeasureAndCheckLink for every link, one after the other, in the order
  // of islands(). An error names the island.
  absl::StatusOr<std::vector<LinkMeasurement>> Check() const;

  // Sets the links to their state `elapsed` after the start of the run.
  void Advance(absl::Duration elapsed);

  void ResetCounters();

  // Returns the islands in the scenario's order.
  const std::vector<Island>& islands() const { return islands_; }

 private:
  Network(const wan::Scenario& scenario, const wan::Network& network)
      : scenario_(&scenario), network_(&network) {}

  // Sets up the namespace of the calling thread.
  absl::Status PrepareNamespace() const;
  absl::StatusOr<Island> MakeIsland(int index, uint64_t seed,
                                    const Clock& now) const;

  const wan::Scenario* scenario_;
  const wan::Network* network_;
  std::vector<Island> islands_;
};

}  // namespace causeway

#endif  // TESTS_WAN_NETWORK_H_
