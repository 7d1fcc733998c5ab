// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island that joins, downloads every fragment and leaves: what it receives
// it verifies and forgets, so that many of them fit into one process.
#ifndef TESTS_LOAD_JOINER_H_
#define TESTS_LOAD_JOINER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace causeway {

struct JoinerOptions {
  // host:port of the coordinator.
  std::string address;
  std::string name;
  uint64_t instance_id = 0;
  // Bytes per second that the coordinator is asked to send; 0 asks for no
  // limit.
  double limit = 0;
};

// Blocks until it has left; the bytes that it downloaded.
//   DATA_LOSS  a fragment is not what the coordinator said it is.
//   else       as the calls of proto/coordinator.proto.
absl::StatusOr<uint64_t> JoinAndLeave(const JoinerOptions& options);

}  // namespace causeway

#endif  // TESTS_LOAD_JOINER_H_
