// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/json_log.h"

#include <unistd.h>

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

class JsonSink : public google::LogSink {
 public:
  void send(google::LogSeverity severity, const char*, const char* file,
            int line, const google::LogMessageTime& time, const char* message,
            size_t size) override {
    const std::string text = JsonLogLine(
        absl::FromTimeT(time.timestamp()) + absl::Microseconds(time.usec()),
        google::GetLogSeverityName(severity), file, line, gettid(),
        {message, size});
    // One write keeps the lines of several threads apart. There is no way to
    // report its failure.
    [[maybe_unused]] const ssize_t written =
        write(STDERR_FILENO, text.data(), text.size());
  }
};

}  // namespace

void LogAsJson() {
  static auto* const sink = new JsonSink;
  // Neither stderr nor files get text.
  FLAGS_logtostderr = false;
  FLAGS_stderrthreshold = google::NUM_SEVERITIES;
  for (int severity = 0; severity < google::NUM_SEVERITIES; ++severity) {
    google::SetLogDestination(severity, "");
  }
  google::AddLogSink(sink);
}

std::string JsonLogLine(absl::Time time, absl::string_view severity,
                        absl::string_view file, int line, int64_t thread,
                        absl::string_view message) {
  const nlohmann::ordered_json object = {
      {"time",
       absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone())},
      {"severity", severity},
      {"source", absl::StrCat(file, ":", line)},
      {"thread", thread},
      {"message", message}};
  return object.dump(-1, ' ', false,
                     nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace causeway
