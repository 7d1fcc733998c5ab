// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Derives the encodings of both directions from a run's configuration. `config`
// must have been validated (common/config/run_config.h).
#ifndef QUANTIZATION_CODEC_CONFIG_H_
#define QUANTIZATION_CODEC_CONFIG_H_

#include <cstdint>

#include "proto/run_config.pb.h"
#include "quantization/codec.h"
#include "quantization/encode_options.h"

namespace causeway {

// Returns how islands encode contributions for the coordinator. `seed` is the
// contribution's, for stochastic rounding.
CodecSpec UplinkSpec(const v1::SynchronizationConfig& config);
EncodeOptions UplinkOptions(const v1::SynchronizationConfig& config,
                            uint64_t seed);

// Returns how the coordinator encodes updates for islands. It rounds to the
// nearest level, because it adds an update's error to the next one.
CodecSpec DownlinkSpec(const v1::SynchronizationConfig& config);
EncodeOptions DownlinkOptions(const v1::SynchronizationConfig& config);

}  // namespace causeway

#endif  // QUANTIZATION_CODEC_CONFIG_H_
