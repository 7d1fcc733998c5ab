// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/human.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/printable.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// Returns whether a byte of UTF-8 is not the continuation of a character.
bool BeginsCharacter(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

}  // namespace

std::string HumanDuration(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return "-";
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(duration));
  if (seconds < 9.95) return absl::StrFormat("%.2g s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 60) return absl::StrCat(whole, " s");
  if (whole < 3600) {
    return absl::StrCat(whole / 60, " min ", whole % 60, " s");
  }
  const int64_t minutes = std::llround(seconds / 60);
  if (minutes < 24 * 60) {
    return absl::StrCat(minutes / 60, " h ", minutes % 60, " min");
  }
  const int64_t hours = std::llround(seconds / 3600);
  return absl::StrCat(hours / 24, " d ", hours % 24, " h");
}

std::string HumanPercent(double share) {
  return absl::StrFormat("%.2f %%", std::floor(share * 10000 + 1e-6) / 100);
}

int Characters(absl::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), BeginsCharacter));
}

absl::string_view FirstCharacters(absl::string_view text, int count) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    if (BeginsCharacter(text[end]) && count-- == 0) break;
  }
  return text.substr(0, end);
}

std::string Padded(const std::string& text, int width,
                   Table::Alignment alignment) {
  const std::string padding(
      static_cast<size_t>(std::max(0, width - Characters(text))), ' ');
  return alignment == Table::kRight ? padding + text : text + padding;
}

Table::Table(std::vector<std::string> titles) {
  for (std::string& title : titles) {
    const bool right = absl::StartsWith(title, ">");
    alignments_.push_back(right ? kRight : kLeft);
    if (right) title.erase(0, 1);
  }
  rows_.push_back(std::move(titles));
}

void Table::AddRow(std::vector<std::string> cells) {
  CHECK_EQ(cells.size(), alignments_.size());
  for (std::string& cell : cells) cell = Printable(cell);
  rows_.push_back(std::move(cells));
}

void Table::Print(std::ostream& out) const {
  std::vector<int> widths(alignments_.size(), 0);
  for (const std::vector<std::string>& cells : rows_) {
    for (size_t i = 0; i < cells.size(); ++i) {
      widths[i] = std::max(widths[i], Characters(cells[i]));
    }
  }
  for (const std::vector<std::string>& cells : rows_) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      absl::StrAppend(&line, i > 0 ? "  " : "",
                      Padded(cells[i], widths[i], alignments_[i]));
    }
    out << absl::StripTrailingAsciiWhitespace(line) << "\n";
  }
}

}  // namespace causeway
