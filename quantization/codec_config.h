// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Derives the encodings of both directions from a run's configuration. `config`
// must have been validated (common/config/run_config.h).
#ifndef QUANTIZATION_CODEC_CONFIG_H_
#define QUANTIZATION_CODEC_CONFIG_H_

#include "proto/run_config.pb.h"
#include "quantization/codec.h"

namespace causeway {

// Returns how islands encode contributions for the coordinator.
CodecSpec UplinkSpec(const v1::SynchronizationConfig& config);

// Returns how the coordinator encodes updates for islands.
CodecSpec DownlinkSpec(const v1::SynchronizationConfig& config);

// Returns the options of the encoders for both directions.
EncodeOptions EncodeOptionsOf(const v1::SynchronizationConfig& config);

}  // namespace causeway

#endif  // QUANTIZATION_CODEC_CONFIG_H_
