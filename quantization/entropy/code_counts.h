// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Counts how often each code occurs in a plane. One source in Highway is
// compiled for several instruction sets. Thread-safe.
#ifndef QUANTIZATION_ENTROPY_CODE_COUNTS_H_
#define QUANTIZATION_ENTROPY_CODE_COUNTS_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "quantization/entropy/rans_table.h"

namespace causeway {

// The counts by code; nibbles use the first 16.
using CodeCounts = std::array<uint32_t, 256>;

// Counts the codes in `codes`, at most 2^31 bytes.
CodeCounts CountCodes(SymbolWidth width, absl::string_view codes);

}  // namespace causeway

#endif  // QUANTIZATION_ENTROPY_CODE_COUNTS_H_
