// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/planted_bug.h"

#include <string>

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, bug, "", "The bug of mutations.txt to have.");

namespace causeway::simulation {

bool IsPlanted(absl::string_view bug) {
  return absl::GetFlag(FLAGS_bug) == bug;
}

}  // namespace causeway::simulation
