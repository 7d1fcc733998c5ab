// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Divides the work of quantization/formats/block_format.h among a GPU's
// threads: which thread has which values, and where their bytes go. The CUDA
// kernels are loops around these functions, and block_lanes_test.cc runs the
// same functions on the CPU, so that a wrong index shows without a GPU.
//
// A unit of 256 values (kLaneUnit) is the work of eight neighbouring threads,
// its lanes 0 .. 7. Each has 32 values: eight quads of four consecutive values,
// which are read and written in 16 bytes. The quads of a lane begin at values
//
//   8-bit formats   32 q + 4 lane, q = 0 .. 7: quads q of all lanes are 128
//                   consecutive bytes, and their codes 32
//   4-bit formats   128 (lane / 4) + 16 q + 4 (lane % 4): a lane has four whole
//                   words of a group of codes, without asking another lane;
//                   quads q of four lanes are 64 consecutive bytes
//
// Lanes exchange only the largest magnitude of a block, which the caller finds
// in a few exchanges.
//
// With kWhole false, for units that are not whole
// (quantization/cuda/block_units.h), functions work value by value and byte by
// byte. Bytes are little-endian on the host, too.
#ifndef QUANTIZATION_CUDA_BLOCK_LANES_H_
#define QUANTIZATION_CUDA_BLOCK_LANES_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "quantization/cuda/block_arithmetic.h"
#include "quantization/cuda/block_units.h"
#include "quantization/formats/block_format.h"

namespace causeway {

inline constexpr uint32_t kLanes = 8;
inline constexpr uint32_t kQuads = 8;

static_assert(std::endian::native == std::endian::little);

// Four values, which one instruction moves.
struct alignas(16) Quad {
  float values[4];
};
struct alignas(16) CodeWords {
  uint32_t words[4];
};

// One lane's share of the units of a format.
template <BlockFormat kFormat, uint32_t kBlockSize>
class Lane {
  static constexpr uint32_t kBits = CodeBits(kFormat);
  static constexpr bool kBytes = kBits == 8;

 public:
  // The number of blocks in which the lane has values, of its quads in each,
  // and of neighbouring lanes that share each.
  static constexpr uint32_t kBlocks = kBytes             ? 256 / kBlockSize
                                      : kBlockSize == 64 ? 2
                                                         : 1;
  static constexpr uint32_t kQuadsOfBlock = kQuads / kBlocks;
  static constexpr uint32_t kSharers = kBytes || kBlockSize == 256 ? 8 : 4;
  // The number of 32-bit words of the lane's codes.
  static constexpr uint32_t kWords = kBytes ? 8 : 4;

  // `lane` is less than kLanes.
  CAUSEWAY_HOST_DEVICE explicit Lane(uint32_t lane) : lane_(lane) {}

  // The distance from one quad's first value to the next quad's, in values.
  static constexpr uint32_t kQuadStride = kBytes ? 32 : 16;

  // Returns the place of a quad's first value in the unit.
  CAUSEWAY_HOST_DEVICE uint32_t QuadAt(uint32_t quad) const {
    return (kBytes ? 0 : 128 * (lane_ / 4)) + 4 * (kBytes ? lane_ : lane_ % 4) +
           kQuadStride * quad;
  }

  // Returns how many of a unit's `values` values remain from a quad's first one
  // on.
  CAUSEWAY_HOST_DEVICE uint32_t LeftAt(uint32_t quad, uint32_t values) const {
    const uint32_t at = QuadAt(quad);
    return at < values ? values - at : 0;
  }

  // Returns the index in the unit, from 0, of the lane's block `block`.
  CAUSEWAY_HOST_DEVICE uint32_t BlockAt(uint32_t block) const {
    return kBytes ? block : QuadAt(kQuadsOfBlock * block) / kBlockSize;
  }

  // Returns the largest magnitude of the lane's values in its block `block`.
  CAUSEWAY_HOST_DEVICE static float LargestMagnitude(
      const Quad (&quads)[kQuads], uint32_t block) {
    float largest = 0;
    CAUSEWAY_UNROLL
    for (uint32_t quad = 0; quad < kQuadsOfBlock; ++quad) {
      CAUSEWAY_UNROLL
      for (const float value : quads[kQuadsOfBlock * block + quad].values) {
        largest = MaxMagnitude(largest, value);
      }
    }
    return largest;
  }

  // Adds the codes of the lane's block `block` to `words`, which begin as 0.
  CAUSEWAY_HOST_DEVICE void Encode(uint32_t block, uint16_t scale,
                                   const Quad (&quads)[kQuads],
                                   uint32_t (&words)[kWords]) const {
    if (!HasCodes(scale)) return;
    const BlockQuantizer<kFormat> quantizer(ScaleValue(scale));
    const float top = TopValue<kFormat>(scale);
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < kQuadsOfBlock; ++i) {
      const uint32_t quad = kQuadsOfBlock * block + i;
      CAUSEWAY_UNROLL
      for (uint32_t value = 0; value < 4; ++value) {
        const float number = fmaxf(-top, fminf(quads[quad].values[value], top));
        AddCode(quantizer.Code(number), quad, value, words);
      }
    }
  }

  // Returns the decoded values of quad `quad`.
  CAUSEWAY_HOST_DEVICE static Quad Decode(const DecodeTable<kFormat>& table,
                                          uint32_t quad,
                                          const uint16_t (&scales)[kBlocks],
                                          const uint32_t (&words)[kWords]) {
    const float scale = ScaleValue(scales[quad / kQuadsOfBlock]);
    Quad decoded;
    CAUSEWAY_UNROLL
    for (uint32_t value = 0; value < 4; ++value) {
      decoded.values[value] =
          LevelOf<kFormat>(table, CodeAt(words, quad, value)) * scale;
    }
    return decoded;
  }

  // Writes the scales of the lane's blocks that the unit has, if the lane is
  // the first of those that share them.
  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE void StoreScales(const uint16_t (&scales)[kBlocks],
                                        const UnitPlace& place,
                                        char* encoded) const {
    if (lane_ % kSharers != 0) return;
    auto* const destination =
        reinterpret_cast<uint16_t*>(encoded + place.scales);
    CAUSEWAY_UNROLL
    for (uint32_t block = 0; block < kBlocks; ++block) {
      const uint32_t at = BlockAt(block);
      if (kWhole || at * kBlockSize < place.values) {
        destination[at] = scales[block];
      }
    }
  }

  // Reads the scales of the lane's blocks; those of blocks beyond the end are
  // 0.
  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE void LoadScales(const char* encoded,
                                       const UnitPlace& place,
                                       uint16_t (&scales)[kBlocks]) const {
    const auto* const source =
        reinterpret_cast<const uint16_t*>(encoded + place.scales);
    CAUSEWAY_UNROLL
    for (uint32_t block = 0; block < kBlocks; ++block) {
      const uint32_t at = BlockAt(block);
      scales[block] = kWhole || at * kBlockSize < place.values ? source[at] : 0;
    }
  }

  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE void StoreCodes(const uint32_t (&words)[kWords],
                                       const UnitPlace& place,
                                       char* encoded) const {
    char* const codes = encoded + place.codes;
    if constexpr (!kWhole) {
      CAUSEWAY_UNROLL
      for (uint32_t byte = 0; byte < 4 * kWords; ++byte) {
        const uint32_t at = ByteAt(byte);
        if (at >= CodePlaneBytes(kFormat, place.values)) continue;
        codes[at] = static_cast<char>(words[byte / 4] >> (8 * (byte % 4)));
      }
    } else if constexpr (kBytes) {
      CAUSEWAY_UNROLL
      for (uint32_t quad = 0; quad < kQuads; ++quad) {
        *reinterpret_cast<uint32_t*>(codes + QuadAt(quad)) = words[quad];
      }
    } else {
      *reinterpret_cast<CodeWords*>(codes + ByteAt(0)) = {
          {words[0], words[1], words[2], words[3]}};
    }
  }

  // Reads the lane's codes; those beyond the end are 0.
  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE void LoadCodes(const char* encoded,
                                      const UnitPlace& place,
                                      uint32_t (&words)[kWords]) const {
    const char* const codes = encoded + place.codes;
    if constexpr (!kWhole) {
      for (uint32_t& word : words) word = 0;
      CAUSEWAY_UNROLL
      for (uint32_t byte = 0; byte < 4 * kWords; ++byte) {
        const uint32_t at = ByteAt(byte);
        if (at >= CodePlaneBytes(kFormat, place.values)) continue;
        words[byte / 4] |= uint32_t{static_cast<uint8_t>(codes[at])}
                           << (8 * (byte % 4));
      }
    } else if constexpr (kBytes) {
      CAUSEWAY_UNROLL
      for (uint32_t quad = 0; quad < kQuads; ++quad) {
        words[quad] = *reinterpret_cast<const uint32_t*>(codes + QuadAt(quad));
      }
    } else {
      const auto read = *reinterpret_cast<const CodeWords*>(codes + ByteAt(0));
      CAUSEWAY_UNROLL
      for (uint32_t word = 0; word < kWords; ++word) {
        words[word] = read.words[word];
      }
    }
  }

 private:
  CAUSEWAY_HOST_DEVICE static void AddCode(uint32_t code, uint32_t quad,
                                           uint32_t value,
                                           uint32_t (&words)[kWords]) {
    if constexpr (kBytes) {
      words[quad] |= code << (8 * value);
    } else {
      words[value] |= code << (kBits * quad);
    }
  }

  // Returns the code of value `value` of quad `quad`; inverts AddCode().
  CAUSEWAY_HOST_DEVICE static uint32_t CodeAt(const uint32_t (&words)[kWords],
                                              uint32_t quad, uint32_t value) {
    if constexpr (kBytes) {
      return words[quad] >> (8 * value) & 0xff;
    } else {
      return words[value] >> (kBits * quad) & ((1 << kBits) - 1);
    }
  }

  // Returns the place of byte `byte` of the lane's words among the unit's
  // codes.
  CAUSEWAY_HOST_DEVICE uint32_t ByteAt(uint32_t byte) const {
    if constexpr (kBytes) {
      return QuadAt(byte / 4) + byte % 4;
    } else {
      return 64 * (lane_ / 4) + 16 * (lane_ % 4) + byte;
    }
  }

  uint32_t lane_;
};

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_BLOCK_LANES_H_
