// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/anchor_digest.h"

#include <vector>

#include "absl/types/span.h"
#include "common/checksum.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(AnchorDigestTest, IsTheDigestOfAllPartsWhoeverAddsThem) {
  for (const size_t size : {0u, 1u, 3u, 59u, 60u, 61u, 64u, 1000u, 100'003u}) {
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i) values[i] = 0.5f * static_cast<float>(i);
    const absl::Span<const float> all = values;
    for (const size_t parts : {1u, 2u, 3u, 7u}) {
      std::string state = AnchorDigest().Save();
      std::string digest;
      for (size_t part = 0; part < parts; ++part) {
        AnchorDigest next;
        // Restore replaces any earlier state.
        next.Update({1.0f, 2.0f});
        next.Restore(state);
        const size_t begin = size * part / parts;
        next.Update(all.subspan(begin, size * (part + 1) / parts - begin));
        state = next.Save();
        digest = next.Finish();
      }
      EXPECT_EQ(state.size(), AnchorDigest::kStateBytes);
      EXPECT_EQ(digest, Digest128(all)) << size << " in " << parts;
    }
  }
}

}  // namespace
}  // namespace causeway
