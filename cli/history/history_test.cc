// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/history/history.h"

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/proto_time.h"
#include "common/testing/grpc_server.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/status.grpc.pb.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr absl::Time kStart = absl::FromUnixSeconds(1700000000);

v1::TrainingPoint Training(uint64_t version) {
  v1::TrainingPoint point;
  point.set_version(version);
  *point.mutable_time() = ToTimestamp(kStart + absl::Seconds(version));
  point.set_run_step(version * 40);
  point.set_loss(4 / static_cast<double>(version));
  point.set_tokens_per_second(1500);
  point.set_bytes_up(version * 1024);
  point.set_bytes_down(version * 2048);
  point.mutable_participation()->set_live(version * 4);
  point.mutable_participation()->set_merged(version * 3);
  return point;
}

v1::ValidationPoint Measured(uint64_t version, double loss) {
  v1::ValidationPoint point;
  point.mutable_validation()->set_version(version);
  point.mutable_validation()->set_loss(loss);
  *point.mutable_time() = ToTimestamp(kStart);
  return point;
}

v1::GetHistoryResponse TestHistory() {
  v1::GetHistoryResponse history;
  for (const uint64_t version : {1, 2, 4}) {
    *history.add_training() = Training(version);
  }
  history.mutable_training(1)->set_similarity(0.875);
  auto& island = *history.mutable_training(1)->add_islands();
  island.set_island_id("east");
  island.set_loss(1.75);
  // Version 3 of the training was thinned out.
  *history.add_validations() = Measured(2, 1.5);
  *history.add_validations() = Measured(3, 1.25);
  return history;
}

// Serves TestHistory, one point a page.
class FakeStatus : public v1::Status::Service {
 public:
  grpc::Status GetHistory(grpc::ServerContext*,
                          const v1::GetHistoryRequest* request,
                          v1::GetHistoryResponse* response) override {
    ++calls;
    const v1::GetHistoryResponse history = TestHistory();
    for (const v1::TrainingPoint& point : history.training()) {
      if (point.version() <= request->training_after()) continue;
      *response->add_training() = point;
      response->set_more(true);
      return grpc::Status::OK;
    }
    for (const v1::ValidationPoint& point : history.validations()) {
      if (point.validation().version() <= request->validation_after()) continue;
      *response->add_validations() = point;
      response->set_more(point.validation().version() < 3);
      return grpc::Status::OK;
    }
    return grpc::Status::OK;
  }

  int calls = 0;
};

TEST(HistoryTest, TheTableHasARowForEachVersion) {
  std::ostringstream out;
  PrintHistory(TestHistory(), 0, absl::UTCTimeZone(), out);
  const std::vector<std::string> lines = absl::StrSplit(out.str(), '\n');
  ASSERT_EQ(lines.size(), 6);
  EXPECT_EQ(lines[2],
            "      2  2023-11-14 22:13:22    80  2.0000      1.5000     1.50k  "
            "2.00 KiB  4.00 KiB    75.00 %       0.875");
  EXPECT_EQ(lines[3],
            "      3  2023-11-14 22:13:20     -       -      1.2500         -  "
            "       -         -          -           -");
}

TEST(HistoryTest, TheTableHasTheNewestRows) {
  std::ostringstream out;
  PrintHistory(TestHistory(), 1, absl::UTCTimeZone(), out);
  EXPECT_THAT(out.str(), HasSubstr("160"));
  EXPECT_THAT(out.str(), Not(HasSubstr("1.2500")));
  EXPECT_THAT(out.str(), HasSubstr("75.00 %")) << "since the row before";
}

TEST(HistoryTest, CommaSeparatedValues) {
  std::ostringstream out;
  PrintHistoryCsv(TestHistory(), out);
  EXPECT_THAT(
      std::vector<std::string>(absl::StrSplit(out.str(), '\n')),
      ElementsAre(
          "version,time,run_step,training_loss,validation_loss,"
          "tokens_per_second,bytes_up,bytes_down,live,contributing,merged,"
          "similarity,training_loss_east",
          "1,2023-11-14T22:13:21+00:00,40,4,,1500,1024,2048,4,0,3,,",
          "2,2023-11-14T22:13:22+00:00,80,2,1.5,1500,2048,4096,8,0,6,0.875,"
          "1.75",
          "3,2023-11-14T22:13:20+00:00,,,1.25,,,,,,,,",
          "4,2023-11-14T22:13:24+00:00,160,1,,1500,4096,8192,16,0,12,,", ""));
}

TEST(HistoryTest, TheCommandFetchesAllPages) {
  FakeStatus service;
  const LocalGrpcServer server({.services = {&service}});
  const auto run = [&](std::vector<std::string> words, std::string& output) {
    words.insert(words.begin(), "history");
    words.push_back("--coordinator=" + server.address());
    std::ostringstream out;
    std::ostringstream err;
    const int code = RunCommandLine(
        "causeway", "",
        {HistoryCommand([] { return kStart; }, absl::UTCTimeZone())}, words,
        out, err);
    output = out.str() + err.str();
    return code;
  };
  std::string output;
  EXPECT_EQ(run({"--json"}, output), kExitOk);
  EXPECT_EQ(service.calls, 5);
  const nlohmann::json json = nlohmann::json::parse(output);
  EXPECT_EQ(json["training"].size(), 3);
  EXPECT_EQ(json["training"][2]["version"], "4");
  EXPECT_EQ(json["validations"].size(), 2);
  EXPECT_EQ(run({"--csv"}, output), kExitOk);
  EXPECT_THAT(output, HasSubstr(",160,"));
  EXPECT_EQ(run({"--last", "2"}, output), kExitOk);
  EXPECT_THAT(output, HasSubstr("VALIDATION"));
  EXPECT_EQ(run({"--csv", "--json"}, output), kExitUsage);
}

}  // namespace
}  // namespace causeway
