// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/nccl_library.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/shared_library.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

absl::StatusOr<NcclLibrary> LoadLibrary() {
  // Loads the release that this program was compiled for.
  ASSIGN_OR_RETURN(
      const SharedLibrary library,
      LoadCudaLibrary("libnccl", NCCL_MAJOR,
                      absl::StrCat("ranks on several GPUs need NVIDIA's NCCL ",
                                   NCCL_MAJOR, ": install it")));
  NcclLibrary functions = {};
  absl::Status status;
  const auto find = [&](const char* name, auto& function) {
    status.Update(library.Find(name, function));
  };
  find("ncclGetUniqueId", functions.get_unique_id);
  find("ncclCommInitRankConfig", functions.init_rank);
  find("ncclCommAbort", functions.abort);
  find("ncclCommGetAsyncError", functions.get_async_error);
  find("ncclGetErrorString", functions.error_string);
  find("ncclGetLastError", functions.last_error);
  find("ncclGroupStart", functions.group_start);
  find("ncclGroupEnd", functions.group_end);
  find("ncclReduceScatter", functions.reduce_scatter);
  find("ncclReduce", functions.reduce);
  find("ncclAllGather", functions.all_gather);
  find("ncclBroadcast", functions.broadcast);
  RETURN_IF_ERROR(status);
  return functions;
}

}  // namespace

absl::StatusOr<const NcclLibrary*> LoadNccl() {
  // Loaded once for the process, and never unloaded.
  static const auto& library = *new absl::StatusOr<NcclLibrary>(LoadLibrary());
  RETURN_IF_ERROR(library.status());
  return &*library;
}

}  // namespace causeway
