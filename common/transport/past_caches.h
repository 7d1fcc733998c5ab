// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Copies that do not go through the caches, for memory that is not going to be
// read before much else is: it is not read from memory first, as lines of a
// cache are, and what others have in the caches stays there.
//
//   for (...) CopyPastCaches(piece, to);
//   FlushPastCaches();  // before others are told
#ifndef COMMON_TRANSPORT_PAST_CACHES_H_
#define COMMON_TRANSPORT_PAST_CACHES_H_

#include "absl/strings/string_view.h"

namespace causeway {

// As memcpy, but that other threads see it only after FlushPastCaches. Where
// there are no such instructions, it is memcpy.
void CopyPastCaches(absl::string_view from, char* to);
void FlushPastCaches();

}  // namespace causeway

#endif  // COMMON_TRANSPORT_PAST_CACHES_H_
