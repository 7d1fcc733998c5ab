// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/device/device_queue.h"

namespace causeway {

std::optional<BlockFormat> DeviceFormat(const CodecSpec& spec) {
  if (spec.entropy_coded) return std::nullopt;
  switch (spec.format) {
    case v1::FP8_E4M3:
      return BlockFormat::kFp8E4m3;
    case v1::INT8:
      return BlockFormat::kInt8;
    case v1::INT4:
      return BlockFormat::kInt4;
    case v1::NF4:
      return BlockFormat::kNf4;
    case v1::E2M1:
      return BlockFormat::kE2m1;
    case v1::E3M0:
      return BlockFormat::kE3m0;
    case v1::INT2:
      return BlockFormat::kInt2;
    default:
      return std::nullopt;
  }
}

}  // namespace causeway
