// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decompresses foreign bytes as byte planes; compresses what comes out and
// decompresses it again. Input:
//
//   byte 0       width, modulo 3 (1, 2, 4); from 253 on there may be several
//                blocks, which are slow
//   bytes 1-3    bytes that were compressed, little-endian, modulo 2^12 + 9, or
//                2^21 + 9 with several blocks
//   the rest     the compressed bytes
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/tensors/byte_planes.h"
#include "glog/logging.h"

// libFuzzer's own mutator; null where the corpus is only replayed.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data,
                                                         size_t size,
                                                         size_t most);

// Lets one mutant in 64 have several blocks, which take most of the time.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t most, unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (size > 0 && seed % 64 != 0) data[0] %= 3;
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway;  // NOLINT(build/namespaces): the entry is C.
  if (size < 4) return 0;
  const size_t width = size_t{1} << (data[0] % 3);
  const size_t modulus = (data[0] >= 253 ? 1 << 21 : 1 << 12) + 9;
  const size_t bytes =
      (data[1] | size_t{data[2]} << 8 | size_t{data[3]} << 16) % modulus;
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
