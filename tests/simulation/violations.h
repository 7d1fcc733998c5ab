// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a history has done wrong: the first thing, which the others follow from.
#ifndef TESTS_SIMULATION_VIOLATIONS_H_
#define TESTS_SIMULATION_VIOLATIONS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {

class Violations {
 public:
  // `world` outlives the object.
  explicit Violations(World* world) : world_(world) {}

  // Empty if there is none.
  const std::string& first() const { return first_; }

  // Does nothing if there was one.
  template <typename... Parts>
  void Note(const Parts&... parts) {
    if (!first_.empty()) return;
    first_ = absl::StrCat(parts...);
    world_->Trace("VIOLATION  ", first_);
  }

 private:
  World* const world_;
  std::string first_;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_VIOLATIONS_H_
