// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// How the two directions of a run are encoded, as its configuration says.
// `config` must have been validated (common/run_config.h).
#ifndef QUANTIZATION_CODEC_CONFIG_H_
#define QUANTIZATION_CODEC_CONFIG_H_

#include <cstdint>

#include "proto/run_config.pb.h"
#include "quantization/codec.h"
#include "quantization/encode_options.h"

namespace causeway {

// Contributions, islands to coordinator. `seed` is that of the contribution,
// for stochastic rounding.
CodecSpec UplinkSpec(const v1::SynchronizationConfig& config);
EncodeOptions UplinkOptions(const v1::SynchronizationConfig& config,
                            uint64_t seed);

// Updates, coordinator to islands: rounded to nearest, since the coordinator
// adds what an update loses to the next.
CodecSpec DownlinkSpec(const v1::SynchronizationConfig& config);
EncodeOptions DownlinkOptions(const v1::SynchronizationConfig& config);

}  // namespace causeway

#endif  // QUANTIZATION_CODEC_CONFIG_H_
