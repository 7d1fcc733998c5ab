// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_LEAD_H_
#define WORKER_LEAD_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace causeway {

// Runs the process of the island that has rank 0, as the flags of
// causeway-worker say, until the island has left the run. CANCELLED if it was
// asked to; ALREADY_EXISTS if another process leads the island; a status of an
// audit (IsFoundByAudit) if the island computes wrong numbers, and cannot go on
// without the process that does; errors of Island::Run and of the flags' files
// and devices.
absl::Status LeadIsland(const std::function<uint64_t()>& random_seed);

}  // namespace causeway

#endif  // WORKER_LEAD_H_
