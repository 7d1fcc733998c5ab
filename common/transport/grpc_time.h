// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_TRANSPORT_GRPC_TIME_H_
#define COMMON_TRANSPORT_GRPC_TIME_H_

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace causeway {

// Returns `duration` from now, as a deadline or an alarm of gRPC. It is a time
// of the monotonic clock, so setting the system's clock does not move it.
inline gpr_timespec FromNow(absl::Duration duration) {
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_micros(absl::ToInt64Microseconds(duration), GPR_TIMESPAN));
}

}  // namespace causeway

#endif  // COMMON_TRANSPORT_GRPC_TIME_H_
