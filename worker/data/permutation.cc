// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/permutation.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "glog/logging.h"

namespace causeway {

uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

Permutation::Permutation(int64_t size, uint64_t key) : size_(size) {
  CHECK_GE(size, 1);
  CHECK_LE(size, int64_t{1} << 62);
  const int bits =
      static_cast<int>(std::bit_width(static_cast<uint64_t>(size - 1)));
  // Halves of two bits have too few values to mix: positions were measurably
  // uneven over keys (PositionsAreUniformOverKeys).
  half_bits_ = std::max(4, (bits + 1) / 2);
  for (uint64_t round = 0; round < kRounds; ++round) {
    round_keys_[round] = MixBits(key + (round + 1) * 0x9e3779b97f4a7c15);
  }
}

int64_t Permutation::operator()(int64_t index) const {
  DCHECK_GE(index, 0);
  DCHECK_LT(index, size_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t word = static_cast<uint64_t>(index);
  do {
    uint64_t left = word >> half_bits_;
    uint64_t right = word & mask;
    for (const uint64_t key : round_keys_) {
      const uint64_t mixed = left ^ (MixBits(right ^ key) & mask);
      left = right;
      right = mixed;
    }
    word = left << half_bits_ | right;
  } while (word >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(word);
}

}  // namespace causeway
