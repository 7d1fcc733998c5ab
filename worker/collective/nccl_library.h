// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's NCCL, loaded when it is first needed: the host provides the version
// that fits its driver and network, and programs also run on hosts without it.
#ifndef WORKER_COLLECTIVE_NCCL_LIBRARY_H_
#define WORKER_COLLECTIVE_NCCL_LIBRARY_H_

#include <nccl.h>

#include "absl/status/statusor.h"

namespace causeway {

// The functions of NCCL that we call.
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

// Returns the library; the same object for all callers, which is never
// destroyed. FAILED_PRECONDITION: NCCL cannot be loaded; the message says why.
// Thread-safe.
absl::StatusOr<const NcclLibrary*> LoadNccl();

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_NCCL_LIBRARY_H_
