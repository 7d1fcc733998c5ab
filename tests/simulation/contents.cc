// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/contents.h"

#include <cstring>

#include "glog/logging.h"
#include "tests/simulation/scenario.h"

namespace causeway::simulation {

// Floats hold these integers exactly: they are far below 2^24.
std::string EncodeInterval(const Interval& interval) {
  const float values[kFragmentSize] = {static_cast<float>(interval.process),
                                       static_cast<float>(interval.fragment),
                                       static_cast<float>(interval.begin),
                                       static_cast<float>(interval.end)};
  std::string encoded(sizeof(values), '\0');
  std::memcpy(encoded.data(), values, sizeof(values));
  return encoded;
}

Interval DecodeInterval(absl::string_view encoded) {
  float values[kFragmentSize];
  CHECK_EQ(encoded.size(), sizeof(values));
  std::memcpy(values, encoded.data(), sizeof(values));
  return {.process = static_cast<uint32_t>(values[0]),
          .fragment = static_cast<uint32_t>(values[1]),
          .begin = static_cast<uint64_t>(values[2]),
          .end = static_cast<uint64_t>(values[3])};
}

uint64_t StepsOf(const Contents& contents, uint32_t process) {
  const auto found = contents.find(process);
  return found == contents.end() ? 0 : found->second;
}

}  // namespace causeway::simulation
