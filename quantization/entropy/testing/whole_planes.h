// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The entropy coder by the reference alone
// (quantization/entropy/rans_reference.h), for tests.
#ifndef QUANTIZATION_ENTROPY_TESTING_WHOLE_PLANES_H_
#define QUANTIZATION_ENTROPY_TESTING_WHOLE_PLANES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/entropy/rans_table.h"

namespace causeway {

// Compress and decompress whole planes, which are not empty. Decompression
// finds the same faults as DecompressCodes
// (quantization/entropy/entropy_coder.h), which callers use instead.
std::string RansCompressReference(SymbolWidth width, absl::string_view codes);
absl::Status RansDecompressReference(SymbolWidth width,
                                     absl::string_view compressed,
                                     absl::Span<char> codes);

}  // namespace causeway

#endif  // QUANTIZATION_ENTROPY_TESTING_WHOLE_PLANES_H_
