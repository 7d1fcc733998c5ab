// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The tests of device_fragment_part.h: the same bits as the part in host
// memory, in every step of contributions and updates. They are run on a device
// that is an imitation (device_fragment_part_test.cc), and on a GPU
// (cuda_queue_cuda_test.cc). A test that links the suite defines
// NewQueueUnderTest().
#ifndef WORKER_REPLICA_DEVICE_DEVICE_PART_SUITE_H_
#define WORKER_REPLICA_DEVICE_DEVICE_PART_SUITE_H_

#include <memory>

#include "worker/replica/device/device_queue.h"

namespace causeway {

// All of one device. Null where there is none: the tests are skipped then.
std::unique_ptr<DeviceQueue> NewQueueUnderTest();

}  // namespace causeway

#endif  // WORKER_REPLICA_DEVICE_DEVICE_PART_SUITE_H_
