// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Records how long parts of the work take, as spans in a file that Perfetto and
// chrome://tracing show (Chrome's trace event format, an array of events):
//
//   RETURN_IF_ERROR(StartTrace("/tmp/a.json", "island a", SteadyWallClock()));
//   {
//     const TraceSpan span("encode", fragment);
//     ...
//   }
//   StopTrace();
//
// A process has at most one trace. Without one, a span costs an atomic load.
// With one, it takes two reads of the clock and, at its end, a lock.
//
// Thread-safe, except that StartTrace and StopTrace are for one thread.
#ifndef COMMON_TRACE_H_
#define COMMON_TRACE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace causeway {

// Begins to record into a new file at `path`. `process` names this process to
// people. Errors of opening a file for writing.
absl::Status StartTrace(const std::string& path, absl::string_view process,
                        Clock now);

// Writes what is still in memory and closes the file. Spans that are open are
// not recorded. Does nothing without a trace.
void StopTrace();

// The time from construction to destruction, on the calling thread.
class TraceSpan {
 public:
  // `name` outlives the trace. A negative fragment means none.
  explicit TraceSpan(const char* name, int64_t fragment = -1);
  ~TraceSpan();

  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  const char* const name_;
  const int64_t fragment_;
  const bool records_;
  absl::Time begin_;
};

}  // namespace causeway

#endif  // COMMON_TRACE_H_
