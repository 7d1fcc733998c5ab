// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures an emulated link with TCP and compares the result with its settings,
// so that no figure depends on an emulator that was too slow.
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
  // The shortest of a few round trips of one byte on the idle link.
  absl::Duration round_trip;
  // The rates of one TCP connection each way, one after the other, with the
  // headers of its frames, in bits per second.
  double up = 0;
  double down = 0;
};

// Measures the link between `island` and the namespace of the calling thread,
// where `address` is the coordinator's end of the link, whose frames carry
// `mtu` bytes. Blocks for about 2 s and 30 round trips, times `tries`, so that
// TCP has more time to open its window. The link's queues are empty again when
// this returns.
//   DEADLINE_EXCEEDED  nothing came through for ten seconds.
absl::StatusOr<LinkMeasurement> MeasureLink(const NetworkNamespace& island,
                                            const std::string& address, int mtu,
                                            const LinkSettings& settings,
                                            int tries);

// Compares a measurement with the settings. FAILED_PRECONDITION, with both
// figures, if a round trip differs from the settings' (3 ms and the jitter may
// be added), or a rate is more than 3 % above the settings' or 15 % below. TCP
// need not reach the rate with losses, and nothing reaches
// kUnlimitedBitsPerSecond.
absl::Status CheckLink(const LinkMeasurement& measured,
                       const LinkSettings& settings);

// Repeats MeasureLink until CheckLink agrees, eight times at most and each time
// longer: other programs may keep the processors busy for a part of a
// measurement.
absl::StatusOr<LinkMeasurement> MeasureAndCheckLink(
    const NetworkNamespace& island, const std::string& address, int mtu,
    const LinkSettings& settings);

}  // namespace causeway

#endif  // TESTS_WAN_LINK_CHECK_H_
