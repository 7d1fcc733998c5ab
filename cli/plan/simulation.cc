// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/simulation.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

constexpr uint64_t kMostPeriods = 10000;

absl::Status CheckPositive(double value, const char* what) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %g; it must be above 0", what, value));
}

absl::Status CheckNotNegative(double value, const char* what) {
  if (value >= 0 && value < kUnlimited) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s is %g; it must be finite and at least 0", what, value));
}

absl::Status CheckLink(const LinkRates& link) {
  RETURN_IF_ERROR(CheckPositive(link.up, "the rate of an uplink"));
  return CheckPositive(link.down, "the rate of a downlink");
}

}  // namespace

absl::Status CheckSimulation(const Simulation& simulation) {
  RETURN_IF_ERROR(CheckPositive(simulation.period_steps, "the period"));
  if (simulation.islands.empty()) {
    return absl::InvalidArgumentError("there are no islands");
  }
  RETURN_IF_ERROR(CheckLink(simulation.coordinator));
  for (const SimulatedIsland& island : simulation.islands) {
    RETURN_IF_ERROR(
        CheckPositive(island.step_seconds, "the time of an inner step"));
    RETURN_IF_ERROR(
        CheckNotNegative(island.step_seconds, "the time of an inner step"));
    RETURN_IF_ERROR(CheckLink(island.link));
    RETURN_IF_ERROR(
        CheckNotNegative(island.round_trip_seconds, "a round trip"));
    RETURN_IF_ERROR(CheckPositive(island.up_share, "a share of an upload"));
  }
  if (simulation.periods == 1 || simulation.periods > kMostPeriods) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the number of simulated rounds is %d; the first one is not measured, "
        "so that it takes 2 to %d, or 0 for the long run",
        simulation.periods, kMostPeriods));
  }
  for (const Exchange& exchange : simulation.exchanges) {
    RETURN_IF_ERROR(CheckNotNegative(exchange.ready_at, "ready_at"));
    RETURN_IF_ERROR(CheckNotNegative(exchange.needed_at - exchange.ready_at,
                                     "needed_at - ready_at"));
    RETURN_IF_ERROR(CheckNotNegative(exchange.up_bits, "up_bits"));
    RETURN_IF_ERROR(CheckNotNegative(exchange.down_bits, "down_bits"));
    RETURN_IF_ERROR(CheckNotNegative(exchange.merge_seconds, "merge_seconds"));
  }
  return absl::OkStatus();
}

PeriodTimes TimesOf(const Simulation& simulation) {
  double up_bits = 0;
  double down_bits = 0;
  PeriodTimes times;
  for (const Exchange& exchange : simulation.exchanges) {
    up_bits += exchange.up_bits;
    down_bits += exchange.down_bits;
    times.merge += exchange.merge_seconds;
  }
  for (const SimulatedIsland& island : simulation.islands) {
    times.training =
        std::max(times.training, simulation.period_steps * island.step_seconds);
    const double own_bits = up_bits * island.up_share;
    times.uplink = std::max(times.uplink, own_bits / island.link.up);
    times.downlink = std::max(times.downlink, down_bits / island.link.down);
    times.coordinator_in += own_bits / simulation.coordinator.up;
    times.coordinator_out += down_bits / simulation.coordinator.down;
  }
  return times;
}

double LongRunPeriod(const Simulation& simulation) {
  if (simulation.exchanges.empty()) return 0;
  const PeriodTimes times = TimesOf(simulation);
  return std::max({times.training, times.uplink, times.downlink,
                   times.coordinator_in, times.coordinator_out, times.merge});
}

}  // namespace causeway
