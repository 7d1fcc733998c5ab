// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/communicator.h"

#include <utility>

#include "common/as_bytes.h"
#include "glog/logging.h"

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

absl::Status ScatterShards(Communicator* communicator, int64_t size,
                           std::vector<float>& values) {
  if (communicator->rank() != 0) {
    values.resize(static_cast<size_t>(
        communicator->shard(size, communicator->rank()).size()));
    return communicator->AllToAll({}, {AsBytes(absl::MakeSpan(values))});
  }
  CHECK_EQ(values.size(), static_cast<size_t>(size));
  std::vector<absl::Span<const char>> to;
  for (int rank = 0; rank < communicator->size(); ++rank) {
    const Slice shard = communicator->shard(size, rank);
    to.push_back(AsBytes(
        absl::MakeConstSpan(values).subspan(shard.begin, shard.size())));
  }
  return communicator->AllToAll(std::move(to), {});
}

}  // namespace causeway
