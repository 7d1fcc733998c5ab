// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/printable.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace causeway {
namespace {

struct Character {
  uint32_t code = 0;
  // 0 if the text does not begin with a character in UTF-8.
  size_t bytes = 0;
};

// Reads the first character of `text`, which is not empty.
Character First(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return {.code = byte(0), .bytes = 1};
  const size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc0 || byte(0) > 0xf7 || text.size() < bytes) return {};
  uint32_t code = byte(0) & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {};
  return {.code = code, .bytes = bytes};
}

bool IsPrintable(uint32_t code) {
  const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool separator = code == 0x2028 || code == 0x2029;
  const bool bidi = code == 0x061c || code == 0x200e || code == 0x200f ||
                    (code >= 0x202a && code <= 0x202e) ||
                    (code >= 0x2066 && code <= 0x2069);
  return !control && !separator && !bidi;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = First(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string Printable(absl::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const Character first = First(text);
    if (first.bytes == 0) {
      absl::StrAppendFormat(&printable, "\\x%02x",
                            static_cast<uint8_t>(text[0]));
      text.remove_prefix(1);
      continue;
    }
    if (IsPrintable(first.code)) {
      printable.append(text.data(), first.bytes);
    } else if (first.code < 0x100) {
      absl::StrAppendFormat(&printable, "\\x%02x", first.code);
    } else {
      absl::StrAppendFormat(&printable, "\\u%04x", first.code);
    }
    text.remove_prefix(first.bytes);
  }
  return printable;
}

std::string Excerpt(absl::string_view text, size_t most) {
  if (text.size() <= most) return Printable(text);
  // Do not cut within a character.
  while (most > 0 && (static_cast<uint8_t>(text[most]) & 0xc0) == 0x80) --most;
  return Printable(text.substr(0, most)) + "...";
}

std::string PrintableLines(absl::string_view text) {
  constexpr size_t kMostBytes = 32 << 10;
  std::vector<std::string> lines;
  for (const absl::string_view line :
       absl::StrSplit(text.substr(0, kMostBytes), '\n')) {
    lines.push_back(Printable(line));
  }
  if (text.size() > kMostBytes) lines.back() += "...";
  return absl::StrJoin(lines, "\n");
}

}  // namespace causeway
