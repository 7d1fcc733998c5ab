// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A keyed permutation of 0 .. size - 1 in constant memory: an order in which to
// visit any number of things once each, starting at any point.
//
// It is a balanced Feistel network over the next power of four (at least 256),
// restricted to the range by cycle walking (Black and Rogaway, "Ciphers with
// arbitrary finite domains", 2002): an image outside the range is permuted
// again until it falls inside, fewer than four times on average for sizes above
// 64. It is statistically even, but not cryptographic. Immutable, thread-safe.
//
// The mapping never changes, so a newer build continues a run in the same
// order.
#ifndef WORKER_DATA_PERMUTATION_H_
#define WORKER_DATA_PERMUTATION_H_

#include <array>
#include <cstdint>

namespace causeway {

class Permutation {
 public:
  // `size` is 1 to 2^62.
  Permutation(int64_t size, uint64_t key);

  int64_t size() const { return size_; }

  // Returns the place of `index` (0 .. size - 1).
  int64_t operator()(int64_t index) const;

 private:
  static constexpr int kRounds = 6;

  int64_t size_;
  // The number of bits of each half of the network.
  int half_bits_;
  std::array<uint64_t, kRounds> round_keys_;
};

// Returns SplitMix64's output function: a bijection of 64-bit words in which
// every input bit flips each output bit with a probability close to one half.
// The round function, and keys made from several numbers, use it.
uint64_t MixBits(uint64_t x);

}  // namespace causeway

#endif  // WORKER_DATA_PERMUTATION_H_
