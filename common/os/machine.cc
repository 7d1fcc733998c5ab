// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/machine.h"

#include <sys/statvfs.h>
#include <sys/sysinfo.h>

#include <cerrno>

#include "common/os/file.h"

namespace causeway {

absl::StatusOr<uint64_t> MachineMemoryBytes() {
  struct sysinfo machine;
  if (sysinfo(&machine) != 0) {
    return ErrnoStatus(errno, "ask for the memory of", "the machine");
  }
  return uint64_t{machine.totalram} * machine.mem_unit;
}

absl::StatusOr<DiskSpace> FindDiskSpace(const std::string& path) {
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) != 0) {
    return ErrnoStatus(errno, "ask for the disk space of", path);
  }
  return DiskSpace{.free = uint64_t{disk.f_bavail} * disk.f_frsize,
                   .total = uint64_t{disk.f_blocks} * disk.f_frsize};
}

}  // namespace causeway
