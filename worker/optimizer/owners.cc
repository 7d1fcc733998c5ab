// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/owners.h"

#include <algorithm>
#include <cstdint>

#include "worker/optimizer/muon.h"

namespace causeway {
namespace {

constexpr int64_t kGranularity = 16;
// The number of operations in the time in which AdamW moves one value's 28
// bytes.
constexpr double kValueCost = 512;

double MatrixCost(const TensorSpec& matrix) {
  const auto [least, most] = std::minmax(matrix.shape[0], matrix.shape[1]);
  const auto m = static_cast<double>(least);
  return 20 * m * m * static_cast<double>(most) + 10 * m * m * m;
}

// Gives each rank, in order, a slice that costs at most `limit`. If that is not
// enough for the whole model, the last slice ends early.
std::vector<Slice> Fill(const v1::TrainingConfig& config,
                        const ModelLayout& layout, int ranks, double limit) {
  std::vector<Slice> shards(ranks);
  int rank = 0;
  double left = limit;
  const auto next_rank = [&] {
    if (rank + 1 == ranks) return false;
    const int64_t begin = shards[rank].end;
    shards[++rank] = {begin, begin};
    left = limit;
    return true;
  };
  for (const TensorSpec& tensor : layout.tensors) {
    const int64_t end = tensor.offset + tensor.size;
    if (IsMuonMatrix(config, tensor)) {
      const double cost = MatrixCost(tensor);
      if (cost > limit || (cost > left && !next_rank())) return shards;
      left -= cost;
      shards[rank].end = end;
      continue;
    }
    while (shards[rank].end < end) {
      int64_t& to = shards[rank].end;
      const double values = left / kValueCost;
      if (values >= static_cast<double>(end - to)) {
        left -= kValueCost * static_cast<double>(end - to);
        to = end;
        break;
      }
      const int64_t most = to + static_cast<int64_t>(values);
      to = std::max(to, most / kGranularity * kGranularity);
      if (!next_rank()) return shards;
    }
  }
  while (next_rank()) {
  }
  return shards;
}

}  // namespace

std::vector<Slice> DivideAmongOwners(const v1::TrainingConfig& config,
                                     const ModelLayout& layout, int ranks) {
  double low = 0;
  double high = kValueCost * static_cast<double>(layout.size + kGranularity);
  for (const TensorSpec& tensor : layout.tensors) {
    if (IsMuonMatrix(config, tensor)) high += MatrixCost(tensor);
  }
  // Halves the interval until the limits are nearly equal.
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    const bool enough =
        Fill(config, layout, ranks, middle).back().end == layout.size;
    (enough ? high : low) = middle;
  }
  return Fill(config, layout, ranks, high);
}

}  // namespace causeway
