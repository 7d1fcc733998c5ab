// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_PROCESS_MEMORY_H_
#define COMMON_PROCESS_MEMORY_H_

#include <cstdint>

namespace causeway {

// Bytes of this process's memory that are its own (VmRSS without mapped
// files, which the system may drop at any time); 0 if the system does not say.
uint64_t ResidentBytes();

// The same with mapped files, at its highest so far (VmHWM).
uint64_t PeakResidentBytes();

}  // namespace causeway

#endif  // COMMON_PROCESS_MEMORY_H_
