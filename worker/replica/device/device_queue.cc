// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/device/device_queue.h"

namespace causeway {

std::optional<BlockFormat> DeviceFormat(const CodecSpec& spec) {
  if (spec.entropy_coded) return std::nullopt;
  switch (spec.format) {
    case v1::INT8:
      return BlockFormat::kInt8;
    case v1::INT4:
      return BlockFormat::kInt4;
    case v1::E3M0:
      return BlockFormat::kE3m0;
    default:
      return std::nullopt;
  }
}

}  // namespace causeway
