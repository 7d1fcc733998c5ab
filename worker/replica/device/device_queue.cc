// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/device/device_queue.h"

namespace causeway {

bool HasDeviceKernels(const CodecSpec& spec) {
  if (spec.entropy_coded) return false;
  switch (spec.format) {
    case v1::FP8_E4M3:
    case v1::INT8:
    case v1::INT4:
    case v1::NF4:
    case v1::E2M1:
    case v1::E3M0:
    case v1::INT2:
      return true;
    default:
      return false;
  }
}

}  // namespace causeway
