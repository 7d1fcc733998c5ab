// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic of the simulation: instead of numbers that training might have
// made, parameters say which training they contain.
//
// The inner steps of an island's process are counted from 0. A pseudo-gradient
// is an interval [begin, end) of them, and travels as four fp32 values. Global
// parameters are the intervals that were merged into them. A process sends
// consecutive intervals, so what parameters contain of it must always be
// [0, n): an interval that is merged twice begins below n, one that got lost
// leaves a gap. So "exactly once" is checked to the step, at each merge, and
// parameters are as short as a number n for each process.
#ifndef TESTS_SIMULATION_CONTENTS_H_
#define TESTS_SIMULATION_CONTENTS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace causeway::simulation {

// Steps [begin, end) of a process, as learnt by one fragment.
struct Interval {
  uint32_t process = 0;
  uint32_t fragment = 0;
  uint64_t begin = 0;
  uint64_t end = 0;

  friend bool operator==(const Interval&, const Interval&) = default;
};

// The interval as an FP32 encoding of kFragmentSize values, and back.
std::string EncodeInterval(const Interval& interval);
Interval DecodeInterval(absl::string_view encoded);

// Of each process, how many steps are contained. Absent means none.
using Contents = std::map<uint32_t, uint64_t>;

// Steps of `process` in `contents`.
uint64_t StepsOf(const Contents& contents, uint32_t process);

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_CONTENTS_H_
