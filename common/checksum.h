// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Checksums: CRC-32C guards each chunk in transit, XXH3-128 identifies a whole
// object or the state of a fragment. Both detect accidents, not forgery.
//
//   chunk->set_crc32c(Crc32c(data));
//   if (Digest128(values) != head.digest()) ...  // the anchors differ
//
// Functions are pure and thread-safe; a Digest128Stream belongs to one thread.
#ifndef COMMON_CHECKSUM_H_
#define COMMON_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

inline constexpr size_t kDigestBytes = 16;

// Returns the CRC-32C (Castagnoli; RFC 3720 B.4) of `data`: reflected
// polynomial 0x82f63b78, initial value and final inversion all ones. No data
// give 0.
uint32_t Crc32c(absl::string_view data);

// Returns the CRC-32C of `prefix + data`, where `crc` is the CRC-32C of
// `prefix`.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data);

// Returns XXH3-128 with seed 0 as kDigestBytes bytes in the canonical,
// big-endian order.
std::string Digest128(absl::string_view data);

// Returns the digest of fp32 values as they travel: binary32, little-endian.
std::string Digest128(absl::Span<const float> values);

// Returns a digest as 32 hexadecimal digits, for people.
std::string DigestToHex(absl::string_view digest);

// Computes the Digest128 of data in pieces. Copies are independent, so wrong
// data can be taken back.
class Digest128Stream {
 public:
  Digest128Stream();
  ~Digest128Stream();
  Digest128Stream(const Digest128Stream& other);
  Digest128Stream& operator=(const Digest128Stream& other);

  void Update(absl::string_view data);
  void Update(absl::Span<const float> values);

  // Returns the digest of everything so far; more data may follow.
  std::string Finish() const;

  // Save returns the state, kStateBytes bytes, from which another process of
  // this program on the same kind of machine can continue. Restore takes only
  // bytes that Save returned.
  static constexpr size_t kStateBytes = 576;
  std::string Save() const;
  void Restore(absl::string_view state);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace causeway

#endif  // COMMON_CHECKSUM_H_
