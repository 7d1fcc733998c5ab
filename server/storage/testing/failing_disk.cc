// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/testing/failing_disk.h"

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

namespace causeway {

FailingDisk& TheFailingDisk() {
  static FailingDisk disk;
  return disk;
}

namespace {

bool IsMeant(int descriptor, const char* part) {
  if (part == nullptr) return true;
  char path[PATH_MAX] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  return readlink(link.c_str(), path, sizeof(path) - 1) > 0 &&
         std::strstr(path, part) != nullptr;
}

}  // namespace
}  // namespace causeway

extern "C" int fdatasync(int descriptor) {
  causeway::FailingDisk& disk = causeway::TheFailingDisk();
  const bool is_meant = causeway::IsMeant(descriptor, disk.path);
  if (is_meant) {
    ++disk.waiting;
    disk.stands_still.wait(true);
    --disk.waiting;
  }
  const int error = disk.sync_error;
  if (error != 0 && disk.failing_syncs != 0 && is_meant &&
      disk.sound_syncs-- <= 0) {
    if (disk.failing_syncs > 0) --disk.failing_syncs;
    errno = error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fdatasync, descriptor));
}

extern "C" ssize_t pwrite64(int descriptor, const void* data, size_t size,
                            off64_t offset) {
  const int error = causeway::TheFailingDisk().write_error;
  if (error != 0) {
    errno = error;
    return -1;
  }
  return syscall(SYS_pwrite64, descriptor, data, size, offset);
}
