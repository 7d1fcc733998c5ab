// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tells the room that the machine has, in bytes.
#ifndef COMMON_MACHINE_H_
#define COMMON_MACHINE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace causeway {

// Returns the size of the machine's memory.
absl::StatusOr<uint64_t> MachineMemoryBytes();

// Returns the disk space that this user may still fill at `path`.
absl::StatusOr<uint64_t> FreeDiskBytes(const std::string& path);

}  // namespace causeway

#endif  // COMMON_MACHINE_H_
