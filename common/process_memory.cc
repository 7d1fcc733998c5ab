// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/process_memory.h"

#include <fstream>
#include <string>

namespace causeway {
namespace {

// Returns a line of /proc/self/status, for instance "VmHWM:    1234 kB", in
// bytes.
uint64_t StatusLine(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    uint64_t kibibytes = 0;
    if (word == name && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace

uint64_t ResidentBytes() { return StatusLine("RssAnon:"); }

uint64_t PeakResidentBytes() { return StatusLine("VmHWM:"); }

}  // namespace causeway
