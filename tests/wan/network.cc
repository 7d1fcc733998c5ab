// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/network.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tests/wan/scenario.h"

namespace causeway {
absl::StatusOr<Network> Network::Create(const wan::Scenario& scenario,
                                        const wan::Network& network,
                                        uint64_t seed, const Clock& now) {
  Network made(scenario, network);
  RETURN_IF_ERROR(made.PrepareNamespace());
  for (int i = 0; i < scenario.islands_size(); ++i) {
    ASSIGN_OR_RETURN(Island island, made.MakeIsland(i, seed, now));
    made.islands_.push_back(std::move(island));
  }
  return made;
}

absl::Status Network::PrepareNamespace() const {
  if (network_->congestion_control().empty()) return absl::OkStatus();
  return SetCongestionControl(network_->congestion_control());
}

absl::StatusOr<Network::Island> Network::MakeIsland(int index, uint64_t seed,
                                                    const Clock& now) const {
  const std::string& name = scenario_->islands(index).name();
  const std::string subnet = absl::StrCat("10.77.", index, ".");
  const int mtu = static_cast<int>(network_->mtu());
  Link::Options options;
  options.settings = LinkAt(*scenario_, *network_, name, kBeforeTheRun);
  // Each link has two generators, seeded with this and the next number.
  options.seed = seed * 1'000'003 + 2 * static_cast<uint64_t>(index);
  options.now = now;
  ASSIGN_OR_RETURN(
      options.coordinator,
      OpenTap(absl::StrCat("island", index), absl::StrCat(subnet, "1"), mtu));
  ASSIGN_OR_RETURN(NetworkNamespace inside, NetworkNamespace::Create());
  {
    ASSIGN_OR_RETURN(const NetworkNamespace::Scope scope, inside.Enter());
    RETURN_IF_ERROR(PrepareNamespace());
    ASSIGN_OR_RETURN(options.island,
                     OpenTap("wan0", absl::StrCat(subnet, "2"), mtu));
  }
  const LinkSettings settings = options.settings;
  ASSIGN_OR_RETURN(std::unique_ptr<Link> link, Link::Start(std::move(options)));
  return Island{.name = name,
                .inside = std::move(inside),
                .coordinator_address = absl::StrCat(subnet, "1"),
                .link = std::move(link),
                .settings = settings};
}

absl::StatusOr<std::vector<LinkMeasurement>> Network::Check() const {
  std::vector<LinkMeasurement> measurements;
  for (const Island& island : islands_) {
    const absl::StatusOr<LinkMeasurement> measured =
        MeasureAndCheckLink(island.inside, island.coordinator_address,
                            static_cast<int>(network_->mtu()), island.settings);
    if (!measured.ok()) {
      return absl::Status(
          measured.status().code(),
          absl::StrCat("the link of island ", island.name, " on network \"",
                       network_->name(), "\": ", measured.status().message()));
    }
    measurements.push_back(*measured);
  }
  return measurements;
}

void Network::Advance(absl::Duration elapsed) {
  for (Island& island : islands_) {
    const LinkSettings settings =
        LinkAt(*scenario_, *network_, island.name, elapsed);
    if (settings == island.settings) continue;
    island.link->Configure(settings);
    island.settings = settings;
  }
}

void Network::ResetCounters() {
  for (const Island& island : islands_) island.link->ResetCounters();
}

}  // namespace causeway
