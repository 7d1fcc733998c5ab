// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/trace.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

// Spans beyond this size are dropped, so that a forgotten trace does not fill
// the disk.
constexpr size_t kMostBytes = size_t{1} << 30;

std::atomic<bool> recording = false;

struct Trace {
  absl::Mutex mu;
  Clock now;
  std::FILE* file ABSL_GUARDED_BY(mu) = nullptr;
  size_t bytes ABSL_GUARDED_BY(mu) = 0;
};

Trace& TheTrace() {
  static auto& trace = *new Trace;
  return trace;
}

int64_t ThreadId() {
  thread_local const int64_t id = syscall(SYS_gettid);
  return id;
}

double Microseconds(absl::Duration duration) {
  return absl::ToDoubleMicroseconds(duration);
}

// The format allows a comma after the last event, and needs no closing bracket,
// so the file of a killed process can be read, too.
void Write(const std::string& event) {
  Trace& trace = TheTrace();
  absl::MutexLock lock(&trace.mu);
  if (trace.file == nullptr || trace.bytes > kMostBytes) return;
  trace.bytes += event.size();
  std::fwrite(event.data(), 1, event.size(), trace.file);
}

}  // namespace

absl::Status StartTrace(const std::string& path, absl::string_view process,
                        Clock now) {
  StopTrace();
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  std::fputs("[\n", file);
  Trace& trace = TheTrace();
  {
    absl::MutexLock lock(&trace.mu);
    trace.now = std::move(now);
    trace.file = file;
    trace.bytes = 0;
  }
  const nlohmann::json name = {
      {"name", "process_name"},
      {"ph", "M"},
      {"pid", getpid()},
      {"args", {{"name", std::string(process)}}},
  };
  Write(absl::StrCat(
      name.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
      ",\n"));
  recording.store(true, std::memory_order_release);
  return absl::OkStatus();
}

void StopTrace() {
  recording.store(false);
  Trace& trace = TheTrace();
  absl::MutexLock lock(&trace.mu);
  if (trace.file == nullptr) return;
  std::fclose(trace.file);
  trace.file = nullptr;
}

TraceSpan::TraceSpan(const char* name, int64_t fragment)
    : name_(name),
      fragment_(fragment),
      records_(recording.load(std::memory_order_acquire)) {
  if (records_) begin_ = TheTrace().now();
}

TraceSpan::~TraceSpan() {
  if (!records_) return;
  const absl::Duration duration = TheTrace().now() - begin_;
  Write(absl::StrFormat(
      R"({"name":"%s","ph":"X","ts":%.3f,"dur":%.3f,"pid":%d,"tid":%d%s},)"
      "\n",
      name_, Microseconds(begin_ - absl::UnixEpoch()), Microseconds(duration),
      getpid(), ThreadId(),
      fragment_ < 0
          ? ""
          : absl::StrFormat(R"(,"args":{"fragment":%d})", fragment_)));
}

}  // namespace causeway
