// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/communicator.h"

#include <utility>

#include "common/as_bytes.h"

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

absl::Status GatherShards(Communicator* communicator, int64_t size,
                          std::vector<float>& values) {
  if (communicator->rank() != 0) {
    return communicator->AllToAll({AsBytes(absl::MakeConstSpan(values))}, {});
  }
  // Rank 0's shard comes first.
  values.resize(static_cast<size_t>(size));
  std::vector<absl::Span<char>> from;
  for (int rank = 0; rank < communicator->size(); ++rank) {
    const Slice shard = communicator->shard(size, rank);
    from.push_back(
        AsBytes(absl::MakeSpan(values).subspan(shard.begin, shard.size())));
  }
  return communicator->AllToAll({}, std::move(from));
}

}  // namespace causeway
