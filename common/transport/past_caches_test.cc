// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/past_caches.h"

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(PastCachesTest, CopiesAnyLengthFromAndToAnyPlaceAndNothingElse) {
  std::string source(512, '\0');
  for (size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<char>(i * 37 + 1);
  }
  for (size_t from = 0; from < 3; ++from) {
    for (size_t to = 0; to < 66; ++to) {
      for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 300}) {
        const absl::string_view copied =
            absl::string_view(source).substr(from, bytes);
        std::string target(512, 'x');
        CopyPastCaches(copied, target.data() + to);
        FlushPastCaches();
        EXPECT_EQ(target, std::string(to, 'x') + std::string(copied) +
                              std::string(512 - to - bytes, 'x'));
      }
    }
  }
}

}  // namespace
}  // namespace causeway
