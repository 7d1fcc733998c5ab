// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/fragment_part.h"

#include "quantization/codec_config.h"

namespace causeway {

ReplicaOptions MakeReplicaOptions(const v1::SynchronizationConfig& config) {
  return {.uplink = UplinkSpec(config),
          .uplink_options = EncodeOptionsOf(config),
          .error_feedback = static_cast<float>(config.error_feedback()),
          .downlink = DownlinkSpec(config),
          .parameters_rest =
              config.overlap_steps() == 0 && config.max_overlap_steps() == 0};
}

}  // namespace causeway
