// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A text table with aligned columns.
//
//   Table table({{"ISLAND"}, {"STEP", Table::kRight}});
//   table.AddRow({"north", "120"});
//   table.Print(out);
#ifndef CLI_TABLE_H_
#define CLI_TABLE_H_

#include <ostream>
#include <string>
#include <vector>

namespace causeway {

class Table {
 public:
  enum Alignment { kLeft, kRight };

  struct Column {
    std::string title;
    Alignment alignment = kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Adds a row with one cell (UTF-8, one line) for each column.
  void AddRow(std::vector<std::string> cells);

  // Prints titles and rows, with columns two spaces apart and no trailing
  // spaces.
  void Print(std::ostream& out) const;

 private:
  const std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace causeway

#endif  // CLI_TABLE_H_
