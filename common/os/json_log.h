// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The log as JSON, for collectors of logs: an object a line on stderr.
//
//   {"time":"2026-01-31T12:00:00.123456Z","severity":"INFO",
//    "source":"main.cc:225","thread":4711,"message":"waiting for islands"}
#ifndef COMMON_OS_JSON_LOG_H_
#define COMMON_OS_JSON_LOG_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace causeway {

// Writes the log to stderr as JSON instead of text until the process ends.
void LogAsJson();

// Returns one line. Bytes of `message` that are not UTF-8 become U+FFFD.
std::string JsonLogLine(absl::Time time, absl::string_view severity,
                        absl::string_view file, int line, int64_t thread,
                        absl::string_view message);

}  // namespace causeway

#endif  // COMMON_OS_JSON_LOG_H_
