// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Returns the machine's memory and disk space in bytes, says if memory ran out,
// and lets this process open more files.
#ifndef COMMON_OS_MACHINE_H_
#define COMMON_OS_MACHINE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace causeway {

// Returns the size of the machine's memory, or the part of it that the limits
// of containers, units and jobs (control groups) or of the shell (ulimit -v)
// leave to this process. The groups' files are below `root`.
absl::StatusOr<uint64_t> MachineMemoryBytes(const std::string& root = "");

struct DiskSpace {
  // The bytes that this user may still write.
  uint64_t free = 0;
  uint64_t total = 0;
};
// Returns the space on the disk that holds `path`.
absl::StatusOr<DiskSpace> FindDiskSpace(const std::string& path);

// Returns the bytes of memory that this process holds (VmRSS), without mapped
// files, which the system may drop at any time; 0 if unknown.
uint64_t ResidentBytes();

// Returns the highest resident size so far (VmHWM), with mapped files; 0 if
// unknown.
uint64_t PeakResidentBytes();

// Returns how many processes the kernel has killed for lack of memory, of the
// machine or of a control group, since the machine was started; 0 if unknown.
// The files of the system are below `root`.
uint64_t OutOfMemoryKills(const std::string& root = "");

// Raises the process's limit on open files (ulimit -n) to `wanted` if it is
// lower, as far as the system allows. Returns the limit.
uint64_t AllowOpenFiles(uint64_t wanted);

}  // namespace causeway

#endif  // COMMON_OS_MACHINE_H_
