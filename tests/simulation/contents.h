// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The simulation's arithmetic: instead of numbers that training might have
// produced, parameters say which training they contain.
//
// The inner steps of an island's process are counted from 0, for each fragment.
// A pseudo-gradient is an interval [begin, end) of them, preceded by those of
// earlier processes that a checkpoint has brought; each interval travels as
// four fp32 values. Global parameters are the intervals that were merged into
// them. A process sends consecutive intervals, so parameters must always
// contain [0, n) of it: an interval that is merged twice begins below n, and a
// lost one leaves a gap. So each merge is checked for "exactly once" to the
// step, and parameters are as short as a number n for each process.
#ifndef TESTS_SIMULATION_CONTENTS_H_
#define TESTS_SIMULATION_CONTENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/coordinator.pb.h"
#include "tests/simulation/scenario.h"

namespace causeway::simulation {

// Steps [begin, end) of a process, as learnt by one fragment.
struct Interval {
  uint32_t process = 0;
  uint32_t fragment = 0;
  uint64_t begin = 0;
  uint64_t end = 0;

  friend bool operator==(const Interval&, const Interval&) = default;
};

// The most intervals in a pseudo-gradient.
inline constexpr size_t kMostIntervals = kFragmentSize / 4;

// Convert between intervals, none of them empty, and an FP32 encoding of
// kFragmentSize values.
std::string EncodeIntervals(const std::vector<Interval>& intervals);
std::vector<Interval> DecodeIntervals(absl::string_view encoded);

// Returns the number of inner steps in the intervals.
uint64_t StepsIn(const std::vector<Interval>& intervals);

// The number of steps contained of each process. Absent means none.
using Contents = std::map<uint32_t, uint64_t>;

// Returns the number of steps of `process` in `contents`.
uint64_t StepsOf(const Contents& contents, uint32_t process);

// A fragment at one version. The digest depends on the version before and on
// what was merged, in its order.
struct Version {
  v1::FragmentHead head;
  Contents contents;
};
Version InitialVersion(uint32_t fragment);

// Returns the version after `before` that merges `merged` into it.
Version NextVersion(const Version& before,
                    const std::vector<std::vector<Interval>>& merged);

// The record of a merge: who was merged, and what each contained.
struct MergeRecord {
  // The result.
  Version version;
  // Contributions and their intervals, in the order of summation.
  std::vector<v1::ContributionHeader> contributions;
  std::vector<std::vector<Interval>> intervals;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_CONTENTS_H_
