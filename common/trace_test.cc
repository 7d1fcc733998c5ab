// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/trace.h"

#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/strip.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

using nlohmann::json;

std::string Path(const std::string& name) {
  return ::testing::TempDir() + "/" + name;
}

// Reads a trace as its readers do.
json Read(const std::string& path) {
  auto text = ReadFile(path);
  EXPECT_OK(text);
  absl::string_view events = *text;
  events = absl::StripSuffix(events, ",\n");
  return json::parse(std::string(events) + "]");
}

TEST(TraceTest, SpansHaveNameTimeAndThread) {
  absl::Time now = absl::FromUnixSeconds(1000);
  ASSERT_OK(StartTrace(Path("spans"), "island \"a\"", [&] { return now; }));
  {
    const TraceSpan outer("exchange");
    now += absl::Milliseconds(1);
    const TraceSpan inner("encode", 3);
    now += absl::Microseconds(250);
  }
  StopTrace();
  const json events = Read(Path("spans"));
  ASSERT_EQ(events.size(), 3);
  EXPECT_EQ(events[0]["args"]["name"], "island \"a\"");
  EXPECT_EQ(events[1]["name"], "encode");
  EXPECT_EQ(events[1]["args"]["fragment"], 3);
  EXPECT_EQ(events[1]["ts"], 1000e6 + 1000);
  EXPECT_EQ(events[1]["dur"], 250);
  EXPECT_EQ(events[2]["name"], "exchange");
  EXPECT_EQ(events[2]["ts"], 1000e6);
  EXPECT_EQ(events[2]["dur"], 1250);
  EXPECT_FALSE(events[2].contains("args"));
  EXPECT_EQ(events[2]["pid"], getpid());
  EXPECT_EQ(events[2]["tid"], events[1]["tid"]);
}

TEST(TraceTest, ThreadsRecordTogether) {
  ASSERT_OK(StartTrace(Path("threads"), "x", SteadyWallClock()));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 1000; ++j) const TraceSpan span("work", j);
    });
  }
  for (std::thread& thread : threads) thread.join();
  StopTrace();
  EXPECT_EQ(Read(Path("threads")).size(), 4001);
}

TEST(TraceTest, WithoutATraceNothingIsRecorded) {
  ASSERT_OK(StartTrace(Path("none"), "x", SteadyWallClock()));
  StopTrace();
  { const TraceSpan span("late"); }
  StopTrace();
  EXPECT_EQ(Read(Path("none")).size(), 1);
}

TEST(TraceTest, AFileThatCannotBeWrittenIsAnError) {
  EXPECT_THAT(StartTrace(Path("missing/x"), "x", SteadyWallClock()),
              IsNotFound("missing/x"));
}

}  // namespace
}  // namespace causeway
