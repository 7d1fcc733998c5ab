// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/codec_config.h"

namespace causeway {
namespace {

CodecSpec SpecOfFormat(v1::Format format,
                       const v1::SynchronizationConfig& config) {
  CodecSpec spec = {.format = format,
                    .block_size = config.block_size(),
                    .entropy_coded = true};
  // Formats without codes to compress are sent as they are.
  spec.entropy_coded = (config.entropy_coding() && CheckCodecSpec(spec).ok()) ||
                       format == v1::ECQ;
  return spec;
}

}  // namespace

CodecSpec UplinkSpec(const v1::SynchronizationConfig& config) {
  return SpecOfFormat(config.uplink_format(), config);
}

CodecSpec DownlinkSpec(const v1::SynchronizationConfig& config) {
  return SpecOfFormat(config.downlink_format(), config);
}

EncodeOptions EncodeOptionsOf(const v1::SynchronizationConfig& config) {
  return {.ecq_bits = config.ecq_bits(),
          .ecq_distortion = config.ecq_distortion()};
}

}  // namespace causeway
