// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/screen.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/human.h"

namespace causeway {
namespace {

// The parameters of SGR.
const char* Sgr(Style style) {
  switch (style) {
    case Style::kPlain:
      break;
    case Style::kBold:
      return "1";
    case Style::kDim:
      return "2";
    case Style::kGood:
      return "32";
    case Style::kWarning:
      return "33";
    case Style::kBad:
      return "1;31";
    case Style::kTraining:
      return "36";
    case Style::kValidation:
      return "35";
  }
  return "";
}

}  // namespace

ScreenLine& ScreenLine::Add(std::string text, Style style) {
  if (!pieces_.empty() && pieces_.back().style == style) {
    pieces_.back().text += text;
  } else {
    pieces_.push_back({std::move(text), style});
  }
  return *this;
}

int ScreenLine::width() const {
  int width = 0;
  for (const Piece& piece : pieces_) width += Characters(piece.text);
  return width;
}

ScreenLine& ScreenLine::AddRight(std::string text, int columns, Style style) {
  const int gap = columns - width() - Characters(text);
  if (gap < 2) return *this;
  Add(std::string(static_cast<size_t>(gap), ' '));
  return Add(std::move(text), style);
}

std::string ScreenLine::Text(const ScreenFormat& format) const {
  const bool cut = width() > format.columns;
  int room = std::max(0, cut ? format.columns - 1 : format.columns);
  std::string out;
  for (const Piece& piece : pieces_) {
    const absl::string_view text = FirstCharacters(piece.text, room);
    if (text.empty()) continue;
    room -= Characters(text);
    if (format.colours && piece.style != Style::kPlain) {
      absl::StrAppend(&out, "\x1b[", Sgr(piece.style), "m", text, "\x1b[0m");
    } else {
      absl::StrAppend(&out, text);
    }
  }
  if (cut && format.columns > 0) out += format.unicode ? "\u2026" : ">";
  return out;
}

}  // namespace causeway
