# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Each line of a sample has the mutants that stand beside it, and no others."""

import re
import unittest

from mutants import mutants_of
from run import changed_lines

# After //: what the line becomes, one mutant after the other.
SAMPLE = """\
#include <a>  // 1 < 2
using Row = std::array<float, 4>;
virtual int Size() const = 0;
constexpr int kMost = 20;  // constexpr int kMost = 21;
absl::Status Table::Set(int64_t row, int64_t column, double value) {
  if (auto found = Find(row)) return *found;
  if (row < rows_) {  // if (!(row < rows_)) { | if (row <= rows_) {
    Note(row, column, value);  // ; | Note(column, row, value);
  }
  if (value == most_) return error_;  // if (value != most_) return error_;
  LOG(INFO) << "a " << 1 + row;
  std::vector<int> copies(row);
  size_ = row * 0.5f;  // ; | size_ = row / 0.5f; | size_ = row * 1.5f;
  for (int i = 2; i < row; ++i) ++seen_[i];
  // for (int i = 3; i < row; ++i) ++seen_[i]; | for (int i = 2; i < row; ++i) ;
  const auto name = "a" + text_ + R"(1 < 2)";
  RETURN_IF_ERROR(Write(row));  // (Write(row)).IgnoreError();
  size_ = std::min(row, size_);  // ; | size_ = std::max(row, size_);
  return absl::InternalError(absl::StrCat("row ", row + 1));
  // return absl::OkStatus();
}
"""


class MutantsTest(unittest.TestCase):

    def test_each_line_has_its_mutants(self):
        # A comment of its own is about the line before.
        sample = re.sub(r"\n *(// (?:for|return))", r"  \1", SAMPLE)
        lines = sample.splitlines()
        made = {line: [] for line in range(1, len(lines) + 1)}
        for mutant in mutants_of(sample):
            changed = mutant.apply(sample).splitlines()
            self.assertEqual(len(changed), len(lines))
            different = [i for i, line in enumerate(lines)
                         if changed[i] != line]
            self.assertEqual(different, [mutant.line - 1])
            made[mutant.line].append(
                re.sub(" *//.*", "", changed[different[0]]).strip())
        for number, line in enumerate(lines, 1):
            comment = line.partition("//")[2]
            wanted = comment.split(" | ") if "include" not in line else [""]
            self.assertEqual(made[number],
                             [w.strip() for w in wanted if w.strip()], line)

    def test_a_diff_names_the_new_lines_of_product_sources(self):
        self.assertEqual(
            changed_lines("+++ b/a/b.cc\n@@ -3 +3,2 @@ f() {\n+x\n+y\n"
                          "@@ -9,2 +10 @@\n+z\n@@ -20,3 +20,0 @@\n"
                          "+++ b/a/b_test.cc\n@@ -1 +1 @@\n"),
            {"a/b.cc": {3, 4, 10}})


if __name__ == "__main__":
    unittest.main()
