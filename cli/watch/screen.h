// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Text on a terminal, line by line, in colours. Pure functions.
#ifndef CLI_WATCH_SCREEN_H_
#define CLI_WATCH_SCREEN_H_

#include <string>
#include <utility>
#include <vector>

namespace causeway {

enum class Style {
  kPlain,
  kBold,
  kDim,
  kGood,
  kWarning,
  kBad,
  // The two curves.
  kTraining,
  kValidation,
};

// Describes what a terminal can show.
struct ScreenFormat {
  int rows = 24;
  int columns = 80;
  bool colours = false;
  // If true, text may contain characters other than ASCII.
  bool unicode = false;
};

// One line: pieces of text in one style each. A piece is printable UTF-8
// (common/printable.h) whose characters are each one column wide.
class ScreenLine {
 public:
  ScreenLine() = default;
  // The implicit conversion makes `{"text", {"text", kBold}}` a line.
  ScreenLine(std::string text, Style style = Style::kPlain) {  // NOLINT
    Add(std::move(text), style);
  }

  ScreenLine& Add(std::string text, Style style = Style::kPlain);

  // Adds `text` so that it ends in column `columns`, if there is room.
  ScreenLine& AddRight(std::string text, int columns, Style style);

  // Returns the number of columns.
  int width() const;

  // Returns the line's first columns, with escape sequences for its styles
  // (ECMA-48, SGR) if the format has colours. The last column marks a line that
  // was cut.
  std::string Text(const ScreenFormat& format) const;

 private:
  struct Piece {
    std::string text;
    Style style;
  };

  std::vector<Piece> pieces_;
};

}  // namespace causeway

#endif  // CLI_WATCH_SCREEN_H_
