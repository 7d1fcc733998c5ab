// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/human.h"

#include <sstream>

#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(HumanTest, DurationsUseTwoUnits) {
  EXPECT_EQ(HumanDuration(absl::ZeroDuration()), "0 s");
  EXPECT_EQ(HumanDuration(absl::Milliseconds(250)), "0.25 s");
  EXPECT_EQ(HumanDuration(absl::Milliseconds(1234)), "1.2 s");
  EXPECT_EQ(HumanDuration(absl::Milliseconds(59400)), "59 s");
  EXPECT_EQ(HumanDuration(absl::Milliseconds(59600)), "1 min 0 s");
  EXPECT_EQ(HumanDuration(absl::Seconds(200)), "3 min 20 s");
  EXPECT_EQ(HumanDuration(absl::Minutes(125)), "2 h 5 min");
  EXPECT_EQ(HumanDuration(absl::Hours(76)), "3 d 4 h");
  EXPECT_EQ(HumanDuration(absl::InfiniteDuration()), "-");
  // Two clocks may differ.
  EXPECT_EQ(HumanDuration(-absl::Hours(1)), "0 s");
}

// A value is rounded before its digits are counted.
TEST(HumanTest, ValuesThatRoundUpToTheNextUnitAreShownInIt) {
  EXPECT_EQ(HumanDuration(absl::Milliseconds(9940)), "9.9 s");
  EXPECT_EQ(HumanDuration(absl::Milliseconds(9960)), "10 s");
  EXPECT_EQ(HumanDuration(absl::Seconds(3599)), "59 min 59 s");
  EXPECT_EQ(HumanDuration(absl::Seconds(3600)), "1 h 0 min");
  EXPECT_EQ(HumanDuration(absl::Minutes(24 * 60 - 1)), "23 h 59 min");
  EXPECT_EQ(HumanDuration(absl::Hours(24)), "1 d 0 h");
  // A share is shown as 100 % only once it is complete.
  EXPECT_EQ(HumanPercent(0.99999), "99.99 %");
  EXPECT_EQ(HumanPercent(1), "100.00 %");
  EXPECT_EQ(HumanPercent(0.29), "29.00 %");
}

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
