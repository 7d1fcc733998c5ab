// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/anchor_digest.h"

// Declares the members of XXH3_state_t.
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#if defined(__x86_64__)
// See common/checksum.cc.
#include <xxh_x86dispatch.h>
#endif

#include <cstring>

#include "common/checksum.h"
#include "glog/logging.h"

namespace causeway {

struct AnchorDigest::State {
  XXH3_state_t xxh3;
};

static_assert(sizeof(XXH3_state_t) == AnchorDigest::kStateBytes);

AnchorDigest::AnchorDigest() : state_(std::make_unique<State>()) {
  CHECK_EQ(XXH3_128bits_reset(&state_->xxh3), XXH_OK);
}

AnchorDigest::~AnchorDigest() = default;
AnchorDigest::AnchorDigest(AnchorDigest&&) noexcept = default;
AnchorDigest& AnchorDigest::operator=(AnchorDigest&&) noexcept = default;

void AnchorDigest::Update(absl::Span<const float> values) {
  CHECK_EQ(XXH3_128bits_update(&state_->xxh3, values.data(),
                               values.size() * sizeof(float)),
           XXH_OK);
}

std::string AnchorDigest::Finish() const {
  XXH128_canonical_t canonical;
  static_assert(sizeof(canonical.digest) == kDigestBytes);
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh3));
  return std::string(reinterpret_cast<const char*>(canonical.digest),
                     kDigestBytes);
}

std::string AnchorDigest::Save() const {
  XXH3_state_t state = state_->xxh3;
  // This address has no meaning in another process.
  state.extSecret = nullptr;
  return std::string(reinterpret_cast<const char*>(&state), sizeof(state));
}

void AnchorDigest::Restore(absl::string_view state) {
  CHECK_EQ(state.size(), kStateBytes);
  const unsigned char* const secret = state_->xxh3.extSecret;
  std::memcpy(&state_->xxh3, state.data(), state.size());
  state_->xxh3.extSecret = secret;
}

}  // namespace causeway
