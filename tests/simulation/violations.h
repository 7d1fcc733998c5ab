// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Keeps the first violation of a history; later ones follow from it.
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

  // Returns the first violation, or an empty string.
  const std::string& first() const { return first_; }

  // Records the violation, unless there was one.
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
