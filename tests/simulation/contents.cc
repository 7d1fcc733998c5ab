// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/contents.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "glog/logging.h"

namespace causeway::simulation {

// Floats hold these integers exactly, because they are far below 2^24.
std::string EncodeIntervals(const std::vector<Interval>& intervals) {
  CHECK_LE(intervals.size(), kMostIntervals);
  float values[kFragmentSize] = {};
  float* next = values;
  for (const Interval& interval : intervals) {
    CHECK_LT(interval.begin, interval.end);
    *next++ = static_cast<float>(interval.process);
    *next++ = static_cast<float>(interval.fragment);
    *next++ = static_cast<float>(interval.begin);
    *next++ = static_cast<float>(interval.end);
  }
  std::string encoded(sizeof(values), '\0');
  std::memcpy(encoded.data(), values, sizeof(values));
  return encoded;
}

std::vector<Interval> DecodeIntervals(absl::string_view encoded) {
  float values[kFragmentSize];
  CHECK_EQ(encoded.size(), sizeof(values));
  std::memcpy(values, encoded.data(), sizeof(values));
  std::vector<Interval> intervals;
  for (const float* next = values; next != values + kFragmentSize; next += 4) {
    if (next[3] == 0) break;
    intervals.push_back({.process = static_cast<uint32_t>(next[0]),
                         .fragment = static_cast<uint32_t>(next[1]),
                         .begin = static_cast<uint64_t>(next[2]),
                         .end = static_cast<uint64_t>(next[3])});
  }
  return intervals;
}

uint64_t StepsIn(const std::vector<Interval>& intervals) {
  uint64_t steps = 0;
  for (const Interval& interval : intervals) {
    steps += interval.end - interval.begin;
  }
  return steps;
}

uint64_t StepsOf(const Contents& contents, uint32_t process) {
  const auto found = contents.find(process);
  return found == contents.end() ? 0 : found->second;
}

Version InitialVersion(uint32_t fragment) {
  Version version;
  version.head.set_fragment(fragment);
  version.head.set_digest(Digest128(absl::StrCat("fragment ", fragment)));
  return version;
}

Version NextVersion(const Version& before,
                    const std::vector<std::vector<Interval>>& merged) {
  Version after = before;
  std::string digested = before.head.digest();
  for (const std::vector<Interval>& intervals : merged) {
    absl::StrAppend(&digested, EncodeIntervals(intervals));
    for (const Interval& interval : intervals) {
      after.contents[interval.process] = interval.end;
    }
  }
  after.head.set_version(before.head.version() + 1);
  after.head.set_digest(Digest128(digested));
  return after;
}

}  // namespace causeway::simulation
