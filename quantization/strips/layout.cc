// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/layout.h"

#include <bit>
#include <cstring>

#include "glog/logging.h"

namespace causeway {
namespace {

static_assert(std::endian::native == std::endian::little,
              "headers are copied as they lie in memory");

constexpr uint32_t kLengthMask = (1u << 24) - 1;
constexpr uint32_t kParameterMask = (1u << 7) - 1;

}  // namespace

void WriteStripHeader(const StripHeader& header, char* bytes) {
  CHECK_LE(header.bytes, kLengthMask);
  CHECK_LE(header.parameter, kParameterMask);
  const uint32_t word = header.bytes | uint32_t{header.parameter} << 24 |
                        uint32_t{header.compressed} << 31;
  std::memcpy(bytes, &word, sizeof(word));
}

StripHeader ReadStripHeader(const char* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return {.bytes = word & kLengthMask,
          .parameter = static_cast<uint8_t>(word >> 24 & kParameterMask),
          .compressed = word >> 31 != 0};
}

}  // namespace causeway
