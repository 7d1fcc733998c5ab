// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_LEAD_H_
#define WORKER_LEAD_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace causeway {

// Runs rank 0's process of the island, as the flags of causeway-worker say,
// until the island has left the run. Returns CANCELLED if it was asked to
// leave; ALREADY_EXISTS if another process leads the island; an audit's status
// (IsFoundByAudit) if a process computes wrong numbers and the island cannot
// continue without it; or errors of Island::Run and of the flags' files and
// devices.
absl::Status LeadIsland(const std::function<uint64_t()>& random_seed);

}  // namespace causeway

#endif  // WORKER_LEAD_H_
