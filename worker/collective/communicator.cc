// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/communicator.h"

#include <utility>

namespace causeway {

absl::string_view CollectiveName(Collective collective) {
  switch (collective) {
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kAllReduce:
      return "all-reduce";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllToAll:
      return "all-to-all";
  }
  return "unknown collective";
}

absl::Status GatherShards(Communicator* communicator,
                          absl::Span<float> values) {
  const int size = communicator->size();
  const auto shard = [&](int rank) {
    const Slice slice =
        communicator->shard(static_cast<int64_t>(values.size()), rank);
    return absl::MakeSpan(reinterpret_cast<char*>(values.data() + slice.begin),
                          slice.size() * sizeof(float));
  };
  std::vector<absl::Span<const char>> to(size);
  std::vector<absl::Span<char>> from(size);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == communicator->rank()) continue;
    to[rank] = shard(communicator->rank());
    from[rank] = shard(rank);
  }
  return communicator->AllToAll(std::move(to), std::move(from));
}

}  // namespace causeway
