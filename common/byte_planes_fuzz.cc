// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decompresses foreign bytes as byte planes; compresses what comes out and
// decompresses it again. Input:
//
//   byte 0       bits 0-1 width (1, 2, 4)
//   bytes 1-3    bytes that were compressed, little-endian, modulo 2^21 + 9
//   the rest     the compressed bytes
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/byte_planes.h"
#include "glog/logging.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway;  // NOLINT(build/namespaces): the entry is C.
  if (size < 4) return 0;
  const size_t width = size_t{1} << (data[0] % 3);
  const size_t bytes =
      (data[1] | size_t{data[2]} << 8 | size_t{data[3]} << 16) %
      ((1 << 21) + 9);
  const absl::string_view compressed(reinterpret_cast<const char*>(data) + 4,
                                     size - 4);
  std::string raw(bytes, 'x');
  if (!DecompressPlanes(compressed, width, absl::MakeSpan(raw)).ok()) return 0;
  const std::string again = CompressPlanes(raw, width);
  if (again.empty()) return 0;
  CHECK_LT(again.size(), raw.size());
  std::string back(bytes, 'y');
  CHECK(DecompressPlanes(again, width, absl::MakeSpan(back)).ok());
  CHECK(back == raw);
  return 0;
}
