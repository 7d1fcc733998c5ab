// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The arguments of the block formats' GPU kernels, and the cut of a vector into
// units of 256 values (kLaneUnit). Eight threads work on a unit together
// (quantization/cuda/block_lanes.h). For the device and the host.
//
// Four units, the work of a warp, are whole if they have all their values and
// their codes are aligned; only a vector's last strip has others.
#ifndef QUANTIZATION_CUDA_BLOCK_UNITS_H_
#define QUANTIZATION_CUDA_BLOCK_UNITS_H_

#include <cstdint>

#include "quantization/cuda/block_arithmetic.h"
#include "quantization/formats/block_format.h"
#include "quantization/strips/layout.h"

namespace causeway {

inline constexpr uint32_t kLaneUnit = 256;
inline constexpr uint32_t kUnitsOfWarp = 4;

static_assert(kStripValues % (kUnitsOfWarp * kLaneUnit) == 0);

struct BlockSpec {
  BlockFormat format;
  // The values of a block: 64, 128 or 256.
  uint32_t block_size;
};

// Calls function.operator()<format, block size>(). Returns false for unknown
// formats and block sizes.
template <typename Function>
bool VisitBlockSpec(const BlockSpec& spec, const Function& function) {
  const auto with_format = [&]<BlockFormat kFormat>() {
    switch (spec.block_size) {
      case 64:
        function.template operator()<kFormat, 64>();
        return true;
      case 128:
        function.template operator()<kFormat, 128>();
        return true;
      case 256:
        function.template operator()<kFormat, 256>();
        return true;
      default:
        return false;
    }
  };
  switch (spec.format) {
    case BlockFormat::kInt8:
      return with_format.template operator()<BlockFormat::kInt8>();
    case BlockFormat::kInt4:
      return with_format.template operator()<BlockFormat::kInt4>();
    case BlockFormat::kE3m0:
      return with_format.template operator()<BlockFormat::kE3m0>();
  }
  return false;
}

// Returns the number of units of a vector; the last one may be shorter.
constexpr uint64_t LaneUnits(uint64_t values) {
  return values / kLaneUnit + (values % kLaneUnit != 0);
}

// The place of one unit of a vector.
struct UnitPlace {
  // The unit's values; fewer than kLaneUnit only in the vector's last unit.
  uint32_t values;
  // The offsets, in bytes from the start of the encoding, of the unit's scales
  // and codes.
  uint64_t scales;
  uint64_t codes;
};

// Returns the place of unit `unit` of a vector of `values` values. Units beyond
// the end have no values.
template <BlockFormat kFormat, uint32_t kBlockSize>
CAUSEWAY_HOST_DEVICE inline UnitPlace PlaceOfUnit(uint64_t values,
                                                  uint64_t unit) {
  constexpr uint64_t kStripBytes = ScalePlaneBytes(kStripValues, kBlockSize) +
                                   CodePlaneBytes(kFormat, kStripValues);
  const uint64_t begin = unit * kLaneUnit;
  if (begin >= values) return {0, 0, 0};
  const uint64_t strip = begin / kStripValues;
  const uint64_t in_strip = begin % kStripValues;
  const uint64_t left = values - begin;
  // ValuesOfStrip() cannot be used: std::min takes the address of a constant,
  // which has none on the device, and nvcc then omits all that follows.
  const uint64_t left_in_strip = values - strip * kStripValues;
  const uint64_t strip_values =
      left_in_strip < kStripValues ? left_in_strip : kStripValues;
  const uint64_t codes =
      strip * kStripBytes + ScalePlaneBytes(strip_values, kBlockSize);
  return {static_cast<uint32_t>(left < kLaneUnit ? left : kLaneUnit),
          strip * kStripBytes + ScalePlaneBytes(in_strip, kBlockSize),
          codes + in_strip * CodeBits(kFormat) / 8};
}

// Returns whether the units of a warp, from `first_unit` on, are whole.
template <BlockFormat kFormat, uint32_t kBlockSize>
CAUSEWAY_HOST_DEVICE inline bool AreWhole(uint64_t values,
                                          uint64_t first_unit) {
  return (first_unit + kUnitsOfWarp) * kLaneUnit <= values &&
         PlaceOfUnit<kFormat, kBlockSize>(values, first_unit).codes % 16 == 0;
}

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_BLOCK_UNITS_H_
