// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Copies that bypass the caches, for memory that will not be read soon: the
// destination's lines are not read first, and other data stay cached.
//
//   for (...) CopyPastCaches(piece, to);
//   FlushPastCaches();  // before telling other threads
#ifndef COMMON_TRANSPORT_PAST_CACHES_H_
#define COMMON_TRANSPORT_PAST_CACHES_H_

#include "absl/strings/string_view.h"

namespace causeway {

// Copies like memcpy, but other threads see the bytes only after
// FlushPastCaches. On machines without such instructions it is memcpy.
void CopyPastCaches(absl::string_view from, char* to);
void FlushPastCaches();

}  // namespace causeway

#endif  // COMMON_TRANSPORT_PAST_CACHES_H_
