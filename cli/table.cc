// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// Returns the number of characters in UTF-8 text: all bytes but the
// continuations.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(),
      [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  CHECK_EQ(cells.size(), columns_.size());
  rows_.push_back(std::move(cells));
}

void Table::Print(std::ostream& out) const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns_) lines[0].push_back(column.title);
  lines.insert(lines.end(), rows_.begin(), rows_.end());
  std::vector<size_t> widths(columns_.size(), 0);
  for (const std::vector<std::string>& cells : lines) {
    for (size_t i = 0; i < cells.size(); ++i) {
      widths[i] = std::max(widths[i], Width(cells[i]));
    }
  }
  for (const std::vector<std::string>& cells : lines) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(widths[i] - Width(cells[i]), ' ');
      if (i > 0) line += "  ";
      line += columns_[i].alignment == kRight ? padding + cells[i]
                                              : cells[i] + padding;
    }
    out << absl::StripTrailingAsciiWhitespace(line) << "\n";
  }
}

}  // namespace causeway
