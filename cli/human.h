// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Text for people: quantities with three significant digits and a unit (also
// those of common/human_units.h), and tables with aligned columns.
//
//   Table table({"ISLAND", ">STEP"});
//   table.AddRow({"north", HumanCount(1234)});
//   table.Print(out);
#ifndef CLI_HUMAN_H_
#define CLI_HUMAN_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/human_units.h"

namespace causeway {

// Returns "0.25 s", "59 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"; "-" if
// infinite, and "0 s" if negative, as between two clocks.
std::string HumanDuration(absl::Duration duration);

// Returns a share of 1 as "99.35 %", rounded down, so that 99.999 % never looks
// like 100 %.
std::string HumanPercent(double share);

// Returns the number of characters of UTF-8 text.
int Characters(absl::string_view text);

// Returns the first characters of UTF-8 text, at most `count`.
absl::string_view FirstCharacters(absl::string_view text, int count);

class Table {
 public:
  enum Alignment { kLeft, kRight };

  // A ">" before a title, which is not shown, aligns the column to the right.
  explicit Table(std::vector<std::string> titles);

  // Adds a row with one cell for each column. Makes cells, which may come from
  // a peer, printable (common/printable.h).
  void AddRow(std::vector<std::string> cells);

  // Prints titles and rows, with columns two spaces apart and no trailing
  // spaces.
  void Print(std::ostream& out) const;

 private:
  std::vector<Alignment> alignments_;
  // The titles come first.
  std::vector<std::vector<std::string>> rows_;
};

// Returns the text with spaces up to `width` characters.
std::string Padded(const std::string& text, int width,
                   Table::Alignment alignment);

}  // namespace causeway

#endif  // CLI_HUMAN_H_
