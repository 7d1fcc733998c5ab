// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_AS_BYTES_H_
#define COMMON_AS_BYTES_H_

#include <type_traits>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

// Returns the memory of `values`, which must be trivially copyable, as bytes;
// the bytes are const if the values are.
template <typename T>
auto AsBytes(absl::Span<T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return absl::Span<Byte>(reinterpret_cast<Byte*>(values.data()),
                          values.size() * sizeof(T));
}

// Returns the same bytes, as a string_view.
template <typename T>
absl::string_view AsStringView(absl::Span<T> values) {
  const absl::Span<const char> bytes = AsBytes(values);
  return {bytes.data(), bytes.size()};
}

}  // namespace causeway

#endif  // COMMON_AS_BYTES_H_
