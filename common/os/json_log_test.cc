// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/json_log.h"

#include <string>

#include "glog/logging.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

TEST(JsonLogTest, WritesOneObjectALine) {
  EXPECT_EQ(JsonLogLine(absl::FromUnixMicros(1'700'000'000'000'001), "INFO",
                        "main.cc", 12, 34, "a \"b\"\n\\c"),
            "{\"time\":\"2023-11-14T22:13:20.000001Z\",\"severity\":\"INFO\","
            "\"source\":\"main.cc:12\",\"thread\":34,"
            "\"message\":\"a \\\"b\\\"\\n\\\\c\"}\n");
}

TEST(JsonLogTest, TakesAnyBytes) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  const std::string line = JsonLogLine({}, "INFO", "f", 1, 2, bytes);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_FALSE(nlohmann::json::parse(line, nullptr, false).is_discarded());
}

// A child, because the log stays JSON until the process ends.
TEST(JsonLogDeathTest, NothingIsDoubled) {
  const auto log = [] {
    google::InitGoogleLogging("test");
    LogAsJson();
    LOG(INFO) << "first";
    LOG(ERROR) << "second";
    std::exit(0);
  };
  EXPECT_EXIT(log(), testing::ExitedWithCode(0),
              "^\\{[^\n]*\"INFO\"[^\n]*\"first\"\\}\n"
              "\\{[^\n]*\"ERROR\"[^\n]*\"second\"\\}\n$");
}

}  // namespace
}  // namespace causeway
