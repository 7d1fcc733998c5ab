// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy_coder.h"

#include <cstring>
#include <string>

#include "glog/logging.h"
#include "quantization/block_format.h"
#include "quantization/rans_reference.h"

namespace causeway {
namespace {

void CheckPlane(SymbolWidth width, size_t bytes) {
  CHECK_LE(bytes, kMaxCodePlaneBytes);
  if (width == SymbolWidth::kNibble) CHECK_EQ(bytes % kNibbleGroupBytes, 0u);
}

}  // namespace

size_t CompressCodes(SymbolWidth width, absl::string_view codes,
                     absl::Span<char> compressed) {
  CheckPlane(width, codes.size());
  CHECK_GE(compressed.size(), codes.size());
  if (codes.empty()) return 0;
  const std::string bytes = RansCompressReference(width, codes);
  if (bytes.size() >= codes.size()) return 0;
  std::memcpy(compressed.data(), bytes.data(), bytes.size());
  return bytes.size();
}

absl::Status DecompressCodes(SymbolWidth width, absl::string_view compressed,
                             absl::Span<char> codes) {
  CheckPlane(width, codes.size());
  return RansDecompressReference(width, compressed, codes);
}

}  // namespace causeway
