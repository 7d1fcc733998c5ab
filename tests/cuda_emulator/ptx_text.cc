// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulator/ptx_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace causeway::ptx {

std::string WithoutComments(absl::string_view text) {
  std::string code;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = line.substr(0, line.find("//"));
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (absl::StartsWith(stripped, ".loc\t") ||
        absl::StartsWith(stripped, ".loc ") ||
        absl::StartsWith(stripped, ".file") ||
        absl::StartsWith(stripped, ".version") ||
        absl::StartsWith(stripped, ".target") ||
        absl::StartsWith(stripped, ".address_size")) {
      continue;
    }
    absl::StrAppend(&code, stripped, "\n");
  }
  return code;
}

std::vector<std::string> SplitOperands(absl::string_view text) {
  std::vector<std::string> operands;
  std::string current;
  int depth = 0;
  for (const char c : text) {
    if (c == '{' || c == '[' || c == '(') ++depth;
    if (c == '}' || c == ']' || c == ')') --depth;
    if (c == ',' && depth == 0) {
      operands.emplace_back(absl::StripAsciiWhitespace(current));
      current.clear();
    } else {
      current += c;
    }
  }
  const absl::string_view last = absl::StripAsciiWhitespace(current);
  if (!last.empty()) operands.emplace_back(last);
  return operands;
}

absl::StatusOr<Declaration> ParseDeclaration(absl::string_view text) {
  Declaration declaration;
  uint64_t bytes = 0;
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  for (size_t i = 0; i < words.size(); ++i) {
    absl::string_view word = words[i];
    if (word == ".align" && i + 1 < words.size()) {
      (void)absl::SimpleAtoi(words[++i], &declaration.align);
    } else if (absl::ConsumePrefix(&word, ".")) {
      const size_t digits = word.find_first_of("0123456789");
      uint64_t bits = 0;
      if (digits != absl::string_view::npos &&
          absl::SimpleAtoi(word.substr(digits), &bits)) {
        bytes = bits / 8;
      }
    } else {
      const size_t bracket = word.find('[');
      declaration.name = std::string(word.substr(0, bracket));
      uint64_t count = 1;
      if (bracket != absl::string_view::npos) {
        count = 0;
        (void)absl::SimpleAtoi(
            word.substr(bracket + 1, word.find(']') - bracket - 1), &count);
      }
      declaration.size = count * bytes;
    }
  }
  if (declaration.name.empty() || bytes == 0) {
    return absl::UnimplementedError(absl::StrCat("declaration: ", text));
  }
  declaration.align = std::max(declaration.align, bytes);
  return declaration;
}

uint64_t AlignUp(uint64_t value, uint64_t align) {
  return (value + align - 1) / align * align;
}

size_t EndOfBraces(absl::string_view text, size_t begin) {
  int depth = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return text.size();
}

}  // namespace causeway::ptx
