// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/machine.h"

#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

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

uint64_t ResidentBytes() {
  // Counts of pages: of the address space, in memory, and there of files.
  uint64_t size = 0;
  uint64_t resident = 0;
  uint64_t of_files = 0;
  std::ifstream statm("/proc/self/statm");
  if (!(statm >> size >> resident >> of_files)) return 0;
  return (resident - of_files) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t PeakResidentBytes() {
  // A line is, for instance, "VmHWM:    1234 kB".
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    uint64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace causeway
