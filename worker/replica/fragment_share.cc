// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/fragment_share.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "quantization/strips/layout.h"

namespace causeway {
namespace {

// Returns the first beginning of a strip at or after `value`.
int64_t NextStrip(int64_t value, int64_t fragment_size) {
  const auto strips = static_cast<int64_t>(StripCount(value));
  return std::min(strips * static_cast<int64_t>(kStripValues), fragment_size);
}

}  // namespace

int64_t FragmentShare::edge_out() const {
  return std::min(NextStrip(held.begin, fragment_size), held.end) - held.begin;
}

int64_t FragmentShare::edge_in() const {
  return encoded.size() > 0 ? encoded.end - held.end : 0;
}

absl::StatusOr<std::vector<FragmentShare>> ShareFragment(
    const FragmentMap& map, uint32_t fragment, absl::Span<const Slice> shards) {
  std::vector<FragmentShare> shares;
  // The values that the ranks so far hold.
  int64_t held = 0;
  for (const Slice& shard : shards) {
    FragmentShare& share = shares.emplace_back();
    share.fragment_size = static_cast<int64_t>(map.size(fragment));
    share.shard_size = shard.size();
    share.held = {held, held};
    for (const FragmentMap::Segment& segment : map.segments(fragment)) {
      const auto model = static_cast<int64_t>(segment.model_offset);
      const auto size = static_cast<int64_t>(segment.size);
      const int64_t begin = std::max(model, shard.begin);
      const int64_t end = std::min(model + size, shard.end);
      if (begin >= end) continue;
      const auto at =
          static_cast<int64_t>(segment.fragment_offset) + begin - model;
      if (at != share.held.end) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the tensors of fragment ", fragment,
            " are not in the model's order, as several ranks need it"));
      }
      share.segments.push_back(
          {.model_offset = static_cast<uint64_t>(begin - shard.begin),
           .fragment_offset = static_cast<uint64_t>(at - share.held.begin),
           .size = static_cast<uint64_t>(end - begin)});
      share.held.end = at + end - begin;
    }
    held = share.held.end;
    share.encoded = {NextStrip(share.held.begin, share.fragment_size),
                     NextStrip(share.held.end, share.fragment_size)};
  }
  CHECK_EQ(held, static_cast<int64_t>(map.size(fragment)));
  return shares;
}

int EncoderOf(absl::Span<const FragmentShare> shares, int64_t value) {
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    const Slice& encoded = shares[rank].encoded;
    if (encoded.begin <= value && value < encoded.end) {
      return static_cast<int>(rank);
    }
  }
  LOG(FATAL) << "no rank encodes value " << value;
}

}  // namespace causeway
