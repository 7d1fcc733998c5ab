// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The operations of a whole warp: shuffles and matrix products, as the PTX ISA
// manual defines them.
#include <cstdint>
#include <cstring>

#include "tests/cuda_emulator/bf16.h"
#include "tests/cuda_emulator/ptx_operations.h"

namespace causeway::ptx {
namespace {

enum class Shuffle { kButterfly, kIndex, kUp, kDown };
template <Shuffle kShuffle>
void ShuffleLanes(Warp& warp, const Instruction& i, uint32_t mask) {
  uint64_t values[kLanes];
  std::memcpy(values, warp.Slot(i.from[0]), sizeof(values));
  if (Read<uint32_t>(warp.Slot(i.from[3]), 0) != mask) {
    return warp.Fail(i, "a shuffle among other lanes than come to it");
  }
  ForLanes(mask, [&](int lane) {
    const uint32_t by = Read<uint32_t>(warp.Slot(i.from[1]), lane) & 31;
    const uint32_t clamp = Read<uint32_t>(warp.Slot(i.from[2]), lane);
    const uint32_t segment = clamp >> 8 & 31;
    const uint32_t bound = clamp & 31;
    const uint32_t self = static_cast<uint32_t>(lane);
    const uint32_t last = (self & segment) | (bound & ~segment);
    const uint32_t first = self & segment;
    uint32_t source = self;
    bool is_inside = false;
    switch (kShuffle) {
      case Shuffle::kButterfly:
        source = self ^ by;
        is_inside = source <= last;
        break;
      case Shuffle::kIndex:
        source = first | (by & ~segment);
        is_inside = source <= last;
        break;
      case Shuffle::kUp:
        source = self - by;
        is_inside = static_cast<int>(source) >= static_cast<int>(last);
        break;
      case Shuffle::kDown:
        source = self + by;
        is_inside = source <= last;
        break;
    }
    warp.Slot(i.to[0])[lane] = values[is_inside ? source : self];
    if (i.to_count > 1) warp.Slot(i.to[1])[lane] = is_inside ? 1 : 0;
  });
}

// mma.m16n8k16: with g = lane / 4 and t = lane % 4, a0 is row g, columns 2t and
// 2t + 1 of A, a1 row g + 8, a2 and a3 the columns 8 further; b0 is rows 2t and
// 2t + 1 of column g of B, b1 8 further; c0 and c1 are row g, columns 2t and 2t
// + 1, c2 and c3 row g + 8.
void MatrixMultiply(Warp& warp, const Instruction& i, uint32_t mask) {
  float a[16][16];
  float b[16][8];
  const auto half = [](uint64_t pair, int upper) {
    return FromBf16(static_cast<uint16_t>(pair >> 16 * upper));
  };
  ForLanes(mask, [&](int lane) {
    const int g = lane / 4;
    const int t = lane % 4 * 2;
    for (int n = 0; n < 2; ++n) {
      a[g][t + n] = half(warp.Slot(i.from[0])[lane], n);
      a[g + 8][t + n] = half(warp.Slot(i.from[1])[lane], n);
      a[g][t + 8 + n] = half(warp.Slot(i.from[2])[lane], n);
      a[g + 8][t + 8 + n] = half(warp.Slot(i.from[3])[lane], n);
      b[t + n][g] = half(warp.Slot(i.from[4])[lane], n);
      b[t + 8 + n][g] = half(warp.Slot(i.from[5])[lane], n);
    }
  });
  float sums[16][8] = {};
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) {
        sums[row][column] += a[row][k] * b[k][column];
      }
    }
  }
  ForLanes(mask, [&](int lane) {
    for (int n = 0; n < 4; ++n) {
      const float before = Read<float>(warp.Slot(i.from[6 + n]), lane);
      Write<float>(warp.Slot(i.to[n]), lane,
                   before + sums[lane / 4 + n / 2 * 8][lane % 4 * 2 + n % 2]);
    }
  });
}

// ldmatrix.x4: lanes 8 m to 8 m + 7 have the addresses of the rows of matrix m.
// The mode says whether they are transposed.
void LoadMatrices(Warp& warp, const Instruction& i, uint32_t mask) {
  uint16_t matrices[4][8][8];
  bool is_whole = true;
  ForLanes(mask, [&](int lane) {
    const char* const row =
        warp.Shared(i,
                    Read<uint32_t>(warp.Slot(i.from[0]), lane) +
                        static_cast<uint64_t>(i.offset),
                    16, Use::kRead);
    if (row == nullptr) {
      is_whole = false;
    } else {
      std::memcpy(matrices[lane / 8][lane % 8], row, 16);
    }
  });
  if (!is_whole) return;
  ForLanes(mask, [&](int lane) {
    for (int m = 0; m < 4; ++m) {
      const int g = lane / 4;
      const int t = lane % 4 * 2;
      const uint32_t low = i.mode ? matrices[m][t][g] : matrices[m][g][t];
      const uint32_t high =
          i.mode ? matrices[m][t + 1][g] : matrices[m][g][t + 1];
      Write<uint32_t>(warp.Slot(i.to[m]), lane, low | high << 16);
    }
  });
}

}  // namespace

void AddWarpOperations(OperationTable& table) {
  table["shfl.sync.bfly.b32"] = ShuffleLanes<Shuffle::kButterfly>;
  table["shfl.sync.idx.b32"] = ShuffleLanes<Shuffle::kIndex>;
  table["shfl.sync.up.b32"] = ShuffleLanes<Shuffle::kUp>;
  table["shfl.sync.down.b32"] = ShuffleLanes<Shuffle::kDown>;
  table["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = MatrixMultiply;
  table["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] = LoadMatrices;
}

}  // namespace causeway::ptx
