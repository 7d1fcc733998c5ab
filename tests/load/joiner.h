// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island that joins, downloads every fragment and leaves. It verifies the
// data and drops them, so that many joiners fit into one process.
#ifndef TESTS_LOAD_JOINER_H_
#define TESTS_LOAD_JOINER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace causeway {

struct JoinerOptions {
  // The coordinator's host:port.
  std::string address;
  std::string name;
  uint64_t instance_id = 0;
  // The rate in bytes per second that it asks the coordinator to keep; 0 asks
  // for no limit.
  double limit = 0;
  // See --region of causeway-worker; it must have a follower, or be empty.
  std::string region = "";
};

// Blocks until the joiner has left. Returns the number of bytes that it
// downloaded.
//   DATA_LOSS  a fragment is not what the coordinator announced.
//   else       as the calls of proto/coordinator.proto.
absl::StatusOr<uint64_t> JoinAndLeave(const JoinerOptions& options);

}  // namespace causeway

#endif  // TESTS_LOAD_JOINER_H_
