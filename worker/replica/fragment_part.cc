// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/fragment_part.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "quantization/codec_config.h"

namespace causeway {
namespace {

// Returns a seed that depends only on run and island, so that a run can be
// repeated.
uint64_t RoundingSeed(const v1::JoinResponse& joined) {
  const std::string digest = Digest128(
      absl::StrCat(joined.config().seed(), " ", joined.identity().island_id()));
  uint64_t seed;
  static_assert(sizeof(seed) <= kDigestBytes);
  std::memcpy(&seed, digest.data(), sizeof(seed));
  return seed;
}

}  // namespace

ReplicaOptions MakeReplicaOptions(const v1::JoinResponse& joined) {
  const v1::SynchronizationConfig& config = joined.config().synchronization();
  return {.uplink = UplinkSpec(config),
          .uplink_options = UplinkOptions(config, RoundingSeed(joined)),
          .error_feedback = static_cast<float>(config.error_feedback()),
          .downlink = DownlinkSpec(config)};
}

EncodeOptions ContributionOptions(const ReplicaOptions& options,
                                  uint32_t fragment, uint64_t version) {
  EncodeOptions encode = options.uplink_options;
  encode.seed += fragment;
  encode.seed ^= version * 0x9e3779b97f4a7c15;
  return encode;
}

}  // namespace causeway
