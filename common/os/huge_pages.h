// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Large arrays are faster in huge pages: they need fewer page faults and fewer
// entries of the processor's page tables.
#ifndef COMMON_OS_HUGE_PAGES_H_
#define COMMON_OS_HUGE_PAGES_H_

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace causeway {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Asks the kernel for huge pages in `bytes` bytes at `memory`, a multiple of
// kHugePageBytes. Call it before they are touched. Without huge pages
// everything works, only slower. No huge page reaches beyond the bytes.
inline void AdviseHugePages(void* memory, size_t bytes) {
  const size_t whole = bytes / kHugePageBytes * kHugePageBytes;
  if (whole > 0) madvise(memory, whole, MADV_HUGEPAGE);
}

// Allocates arrays that begin at multiples of a cache line, and large ones in
// huge pages. Values that no argument initializes are unspecified, so that the
// thread that fills a resized vector touches its memory first.
template <typename T>
class LargeAllocator {
 public:
  using value_type = T;

  LargeAllocator() = default;
  template <typename U>
  explicit LargeAllocator(const LargeAllocator<U>&) {}

  T* allocate(size_t count) {
    void* const memory = ::operator new(count * sizeof(T), Alignment(count));
    if (Alignment(count) == kHugePage) {
      AdviseHugePages(memory, count * sizeof(T));
    }
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    ::operator delete(memory, Alignment(count));
  }

  template <typename U>
  void construct(U* value) {
    ::new (static_cast<void*>(value)) U;
  }
  template <typename U, typename... Arguments>
  void construct(U* value, Arguments&&... arguments) {
    ::new (static_cast<void*>(value)) U(std::forward<Arguments>(arguments)...);
  }

  friend bool operator==(const LargeAllocator&, const LargeAllocator&) {
    return true;
  }

 private:
  static constexpr std::align_val_t kCacheLine{64};
  static constexpr std::align_val_t kHugePage{kHugePageBytes};

  static std::align_val_t Alignment(size_t count) {
    return count * sizeof(T) < kHugePageBytes ? kCacheLine : kHugePage;
  }
};

template <typename T>
using LargeVector = std::vector<T, LargeAllocator<T>>;

}  // namespace causeway

#endif  // COMMON_OS_HUGE_PAGES_H_
