// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/past_caches.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace causeway {

#if defined(__x86_64__)

void CopyPastCaches(absl::string_view from, char* to) {
  constexpr size_t kLineBytes = 64;
  constexpr size_t kVectorBytes = sizeof(__m128i);
  // A line that is not written as a whole costs a read of memory.
  const size_t before_line = -reinterpret_cast<uintptr_t>(to) % kLineBytes;
  const size_t head = std::min(before_line, from.size());
  std::memcpy(to, from.data(), head);
  from.remove_prefix(head);
  to += head;
  for (; from.size() >= kLineBytes; from.remove_prefix(kLineBytes)) {
    __m128i line[kLineBytes / kVectorBytes];
    std::memcpy(line, from.data(), kLineBytes);
    for (const __m128i& vector : line) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to), vector);
      to += kVectorBytes;
    }
  }
  std::memcpy(to, from.data(), from.size());
}

void FlushPastCaches() { _mm_sfence(); }

#else

void CopyPastCaches(absl::string_view from, char* to) {
  std::memcpy(to, from.data(), from.size());
}

void FlushPastCaches() {}

#endif

}  // namespace causeway
