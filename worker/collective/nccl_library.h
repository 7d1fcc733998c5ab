// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's NCCL, loaded when it is first needed: it is the host's, whose driver
// and network decide which one fits, and a program which may use it also runs
// where there is none.
#ifndef WORKER_COLLECTIVE_NCCL_LIBRARY_H_
#define WORKER_COLLECTIVE_NCCL_LIBRARY_H_

#include <nccl.h>

#include "absl/status/statusor.h"

namespace causeway {

// Its functions that we call.
struct NcclLibrary {
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init_rank;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) get_async_error;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclReduce) reduce;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclBroadcast) broadcast;
};

// The same object for all, which stays. FAILED_PRECONDITION: it cannot be
// loaded; says why. Thread-safe.
absl::StatusOr<const NcclLibrary*> LoadNccl();

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_NCCL_LIBRARY_H_
