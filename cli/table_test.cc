// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include "cli/human.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(TableTest, AlignsColumnsAndCountsCharacters) {
  Table table({"NAME", ">STEP", "NOTE"});
  table.AddRow({"z\xc3\xbcrich", "7", ""});
  table.AddRow({"a", "12345", "late"});
  std::ostringstream out;
  table.Print(out);
  EXPECT_EQ(out.str(),
            "NAME     STEP  NOTE\n"
            "z\xc3\xbcrich      7\n"
            "a       12345  late\n");
}

TEST(TableTest, ACellForgesNoRow) {
  std::ostringstream out;
  Table table({"REASON", ">ID"});
  table.AddRow({"done\nadmitted", "1"});
  table.AddRow({"\x1b[2J\u202e", "2"});
  table.Print(out);
  EXPECT_EQ(out.str(),
            "REASON            ID\n"
            "done\\x0aadmitted   1\n"
            "\\x1b[2J\\u202e      2\n");
}

TEST(TableTest, ATableWithoutRowsIsItsTitles) {
  std::ostringstream out;
  Table({"A", "B"}).Print(out);
  EXPECT_EQ(out.str(), "A  B\n");
}

}  // namespace
}  // namespace causeway
