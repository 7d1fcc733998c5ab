// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes text from other machines safe for terminals and logs.
#ifndef COMMON_PRINTABLE_H_
#define COMMON_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace causeway {

// Returns whether `text` is UTF-8 (RFC 3629): no surrogates, no overlong forms.
bool IsUtf8(absl::string_view text);

// Returns `text` as one harmless line: control characters, line separators,
// characters that change the direction of writing (Unicode's Bidi_Control) and
// bytes that are not UTF-8 become hexadecimal escapes: \x1b for a byte, \u202e
// for a character.
std::string Printable(absl::string_view text);

// Returns Printable() of the first `most` bytes of `text`, and "..." if there
// are more, for messages that quote a file or a peer.
std::string Excerpt(absl::string_view text, size_t most = 200);

// Returns at most 32 KiB of a message of several lines, each made printable.
std::string PrintableLines(absl::string_view text);

}  // namespace causeway

#endif  // COMMON_PRINTABLE_H_
