// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic of the simulation: instead of numbers that training might have
// made, parameters say which training they contain.
//
// The inner steps of an island's process are counted from 0, for each fragment.
// A pseudo-gradient is an interval [begin, end) of them, and before it those of
// earlier processes that a checkpoint has brought; it travels as four fp32
// values for each. Global parameters are the intervals that were merged into
// them. A process sends consecutive intervals, so what parameters contain of it
// must always be [0, n): an interval that is merged twice begins below n, one
// that got lost leaves a gap. So "exactly once" is checked to the step, at each
// merge, and parameters are as short as a number n for each process.
#ifndef TESTS_SIMULATION_CONTENTS_H_
#define TESTS_SIMULATION_CONTENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
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

// At most so many make a pseudo-gradient.
inline constexpr size_t kMostIntervals = kFragmentSize / 4;

// Intervals, none of them empty, as an FP32 encoding of kFragmentSize values,
// and back.
std::string EncodeIntervals(const std::vector<Interval>& intervals);
std::vector<Interval> DecodeIntervals(absl::string_view encoded);

// Inner steps in them.
uint64_t StepsIn(const std::vector<Interval>& intervals);

// Of each process, how many steps are contained. Absent means none.
using Contents = std::map<uint32_t, uint64_t>;

// Steps of `process` in `contents`.
uint64_t StepsOf(const Contents& contents, uint32_t process);

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_CONTENTS_H_
