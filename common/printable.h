// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Text from other machines, which goes to terminals and logs only after
// Printable().
#ifndef COMMON_PRINTABLE_H_
#define COMMON_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace causeway {

// Returns whether `text` is UTF-8 (RFC 3629): no surrogates, no overlong forms.
bool IsUtf8(absl::string_view text);

// Returns `text` as one line that changes nothing but what it shows: control
// characters, line separators, characters that turn the direction of writing
// (Unicode's Bidi_Control) and bytes that are not UTF-8 become escapes of
// hexadecimal digits: \x1b for a byte, \u202e for a character.
std::string Printable(absl::string_view text);

// Returns Printable() of the first `most` bytes of `text`, and "..." if there
// are more: what a message quotes of a file or a peer.
std::string Excerpt(absl::string_view text, size_t most = 200);

// Returns a message of several lines with each made printable, and cut where it
// is longer than a person reads.
std::string PrintableLines(absl::string_view text);

}  // namespace causeway

#endif  // COMMON_PRINTABLE_H_
