// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds mistakes in scenarios, which otherwise show only after hours.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process.h"
#include "tests/wan/scenario.h"

namespace causeway {
namespace {

TEST(ScenariosTest, AreRight) {
  const std::string directory = ProgramPath("tests/wan/scenarios");
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> names,
                       ListDirectory(directory));
  EXPECT_GE(names.size(), 4);
  for (const std::string& name : names) {
    EXPECT_OK(LoadScenario(absl::StrCat(directory, "/", name)).status());
  }
}

}  // namespace
}  // namespace causeway
