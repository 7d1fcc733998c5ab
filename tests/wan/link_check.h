// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures an emulated link with TCP and holds the result against what the link
// was told to be, so that no figure rests on an emulator that did not keep up.
#ifndef TESTS_WAN_LINK_CHECK_H_
#define TESTS_WAN_LINK_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/wan/link.h"
#include "tests/wan/network_namespace.h"

namespace causeway {

struct LinkMeasurement {
  // Shortest of a few round trips of one byte on the idle link.
  absl::Duration round_trip;
  // What one TCP connection got through each way, one after the other, with the
  // headers of its frames, in bits per second.
  double up = 0;
  double down = 0;
};

// Measures the link between `island` and the namespace of the calling thread,
// where `address` is the coordinator's end of the link, whose frames carry
// `mtu` bytes. Blocks for 2 s and 30 round trips, about, and `tries` times as
// long with more than one: TCP has that much more time to open its window. What
// is left in the link's queues then is gone when this returns.
//   DEADLINE_EXCEEDED  nothing came through for ten seconds.
absl::StatusOr<LinkMeasurement> MeasureLink(const NetworkNamespace& island,
                                            const std::string& address, int mtu,
                                            const LinkSettings& settings,
                                            int tries);

// FAILED_PRECONDITION, with both figures, if a round trip is not that of the
// settings (3 ms more and the jitter are allowed), or a rate is more than 3 %
// above the settings' or 15 % below. TCP need not reach the rate with losses,
// and nothing reaches kUnlimitedBitsPerSecond.
absl::Status CheckLink(const LinkMeasurement& measured,
                       const LinkSettings& settings);

// MeasureLink until CheckLink agrees, eight times at most, each taking longer:
// other programs may keep the processors for a part of a measurement.
absl::StatusOr<LinkMeasurement> MeasureAndCheckLink(
    const NetworkNamespace& island, const std::string& address, int mtu,
    const LinkSettings& settings);

}  // namespace causeway

#endif  // TESTS_WAN_LINK_CHECK_H_
