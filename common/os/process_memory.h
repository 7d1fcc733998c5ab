// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_OS_PROCESS_MEMORY_H_
#define COMMON_OS_PROCESS_MEMORY_H_

#include <cstdint>

namespace causeway {

// Returns the bytes of memory that this process holds (VmRSS), without mapped
// files, which the system may drop at any time; 0 if unknown.
uint64_t ResidentBytes();

// Returns the highest resident size so far (VmHWM), with mapped files; 0 if
// unknown.
uint64_t PeakResidentBytes();

}  // namespace causeway

#endif  // COMMON_OS_PROCESS_MEMORY_H_
