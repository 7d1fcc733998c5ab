// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/checksum.h"

#include <isa-l/crc.h>
// Declares the members of XXH3_state_t.
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#if defined(__x86_64__)
// Replaces the functions used below by versions that choose AVX2 or AVX-512 at
// run time; xxhash.h alone has SSE2, at a tenth of the speed.
#include <xxh_x86dispatch.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "absl/strings/escaping.h"
#include "common/as_bytes.h"
#include "glog/logging.h"

namespace causeway {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are hashed and sent as they lie in memory");

std::string Canonical(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  static_assert(sizeof(canonical.digest) == kDigestBytes);
  XXH128_canonicalFromHash(&canonical, hash);
  return std::string(reinterpret_cast<const char*>(canonical.digest),
                     kDigestBytes);
}

}  // namespace

uint32_t Crc32c(absl::string_view data) { return ExtendCrc32c(0, data); }

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data) {
  // ISA-L works on the register itself, without the inversions. It takes the
  // length as an int and a pointer to non-const, which it only reads.
  unsigned int state = ~crc;
  while (!data.empty()) {
    const size_t length =
        std::min<size_t>(data.size(), std::numeric_limits<int>::max());
    state = crc32_iscsi(
        reinterpret_cast<unsigned char*>(const_cast<char*>(data.data())),
        static_cast<int>(length), state);
    data.remove_prefix(length);
  }
  return ~state;
}

std::string Digest128(absl::string_view data) {
  return Canonical(XXH3_128bits(data.data(), data.size()));
}

std::string Digest128(absl::Span<const float> values) {
  return Digest128(AsStringView(values));
}

std::string DigestToHex(absl::string_view digest) {
  return absl::BytesToHexString(digest);
}

struct Digest128Stream::State {
  XXH3_state_t xxh3;
};

static_assert(sizeof(XXH3_state_t) == Digest128Stream::kStateBytes);

Digest128Stream::Digest128Stream() : state_(std::make_unique<State>()) {
  CHECK_EQ(XXH3_128bits_reset(&state_->xxh3), XXH_OK);
}

Digest128Stream::~Digest128Stream() = default;

Digest128Stream::Digest128Stream(const Digest128Stream& other)
    : state_(std::make_unique<State>(*other.state_)) {}

Digest128Stream& Digest128Stream::operator=(const Digest128Stream& other) {
  *state_ = *other.state_;
  return *this;
}

void Digest128Stream::Update(absl::string_view data) {
  CHECK_EQ(XXH3_128bits_update(&state_->xxh3, data.data(), data.size()),
           XXH_OK);
}

void Digest128Stream::Update(absl::Span<const float> values) {
  Update(AsStringView(values));
}

std::string Digest128Stream::Finish() const {
  return Canonical(XXH3_128bits_digest(&state_->xxh3));
}

std::string Digest128Stream::Save() const {
  XXH3_state_t state = state_->xxh3;
  // This address has no meaning in another process.
  state.extSecret = nullptr;
  return std::string(reinterpret_cast<const char*>(&state), sizeof(state));
}

void Digest128Stream::Restore(absl::string_view state) {
  CHECK_EQ(state.size(), kStateBytes);
  const unsigned char* const secret = state_->xxh3.extSecret;
  std::memcpy(&state_->xxh3, state.data(), state.size());
  state_->xxh3.extSecret = secret;
}

}  // namespace causeway
