// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Random numbers as a function of their place: Philox4x32-10 (Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). So any thread on any
// machine rounds any piece of a vector to the same bits.
//
// Pure functions.
#ifndef QUANTIZATION_FORMATS_PHILOX_H_
#define QUANTIZATION_FORMATS_PHILOX_H_

#include <array>
#include <cstdint>

namespace causeway {

// These are not arrays: device code cannot take the address of the host's
// constants.
inline constexpr uint32_t kPhiloxMultiplier0 = 0xd2511f53;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xcd9e8d57;
// The numbers added to the key after each round.
inline constexpr uint32_t kPhiloxKeyStep0 = 0x9e3779b9;
inline constexpr uint32_t kPhiloxKeyStep1 = 0xbb67ae85;
inline constexpr int kPhiloxRounds = 10;

// Returns one block of four numbers.
constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t first = uint64_t{kPhiloxMultiplier0} * counter[0];
    const uint64_t second = uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {
        static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0],
        static_cast<uint32_t>(second),
        static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1],
        static_cast<uint32_t>(first),
    };
    key[0] += kPhiloxKeyStep0;
    key[1] += kPhiloxKeyStep1;
  }
  return counter;
}

// Returns the random numbers that round values `index`, index + 16, index + 32
// and index + 48 of a vector, where index % 64 < 16. The key is the seed, lower
// half first. 64 consecutive values share 16 blocks: sixteen consecutive random
// numbers are one word of each of the 16 blocks, which is how vector machines
// compute them.
constexpr std::array<uint32_t, 4> RoundingRandoms(uint64_t seed,
                                                  uint64_t index) {
  const uint64_t block = index / 64 * 16 + index % 16;
  return Philox4x32(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

// Returns the random number that rounds value `index` of a vector.
constexpr uint32_t RoundingRandom(uint64_t seed, uint64_t index) {
  const uint64_t row = index % 64 / 16;
  return RoundingRandoms(seed, index - 16 * row)[row];
}

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_PHILOX_H_
