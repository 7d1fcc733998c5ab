// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/stored_run.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status.pb.h"
#include "server/engine.h"
#include "server/storage/state_directory.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

TEST(StoredRunTest, ADirectoryWithoutARunIsRefused) {
  EXPECT_THAT(ReadPageData(testing::TempDir(), 10), IsNotFound());
}

TEST(StoredRunTest, TheStateDirectorySaysWhatTheCoordinatorSaid) {
  EngineDriver driver;
  ASSERT_OK(driver.Start(TestRunConfig(
      "membership { min_islands: 1 } synchronization { fragments: 1 }")));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity island, driver.Join("east"));
  v1::SessionRequest report;
  *report.mutable_identity() = island;
  // Sums begin with the first report.
  ASSERT_OK(driver.engine().Heartbeat(report));
  report.mutable_progress()->set_tokens(100);
  report.mutable_progress()->set_loss(2.5);
  report.mutable_progress()->set_tokens_per_second(50);
  ASSERT_OK(driver.engine().Heartbeat(report));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                       driver.Fetch(island, 0, 0));
  ASSERT_OK(driver
                .Contribute(driver.MakeContribution(island, 0, 0, anchor,
                                                    Shifted(anchor, 0.01f)))
                .status());
  ASSERT_TRUE(driver.AwaitVersion(0, 1));
  const v1::RunStatus said = driver.engine().GetRun();

  // The coordinator still has the directory open.
  ASSERT_OK_AND_ASSIGN(const v1::PageData data,
                       ReadPageData(driver.state_dir(), 2));
  EXPECT_EQ(data.run().run_id(), said.run_id());
  EXPECT_EQ(data.run().rounds(), 1);
  EXPECT_EQ(data.run().total_rounds(), said.total_rounds());
  EXPECT_EQ(data.run().participation().merged(), 1);
  EXPECT_EQ(data.run().ledger().merged(), said.ledger().merged());
  EXPECT_EQ(data.run().loss(), 2.5);
  ASSERT_EQ(data.islands_size(), 1);
  EXPECT_EQ(data.islands(0).island_id(), "east");
  EXPECT_EQ(data.islands(0).progress().tokens_per_second(), 50);
  ASSERT_EQ(data.fragments_size(), 1);
  EXPECT_EQ(data.fragments(0).head().version(), 1);
  EXPECT_EQ(data.history().training_size(), 1);
  ASSERT_EQ(data.events_size(), 2) << "the newest, but no details";
  EXPECT_EQ(data.events(1).kind(), "run_started");
}

TEST(StoredRunTest, ARunThatWasExtendedIsNotFinished) {
  EngineDriver driver;
  const std::string run =
      "membership { min_islands: 1 } synchronization { fragments: 1 } ";
  ASSERT_OK(driver.Start(TestRunConfig(run + "training { total_steps: 10 }")));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity island, driver.Join("east"));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                       driver.Fetch(island, 0, 0));
  ASSERT_OK(driver
                .Contribute(driver.MakeContribution(island, 0, 0, anchor,
                                                    Shifted(anchor, 0.01f)))
                .status());
  ASSERT_TRUE(driver.AwaitVersion(0, 1));
  for (const uint64_t steps : {10, 20}) {
    ASSERT_OK(driver.Start(TestRunConfig(
        absl::StrCat(run, "training { total_steps: ", steps, " }"))));
    ASSERT_OK_AND_ASSIGN(const v1::PageData data,
                         ReadPageData(driver.state_dir(), 0));
    EXPECT_EQ(data.run().total_steps(), steps);
    EXPECT_EQ(data.run().state() == v1::FINISHED, steps == 10);
  }
}

TEST(StoredRunTest, TheEpochIsThatOfTheLog) {
  EngineDriver driver;
  ASSERT_OK(driver.Start(TestRunConfig("")));
  driver.Stop();
  {
    ASSERT_OK_AND_ASSIGN(const auto state,
                         StateDirectory::Open(driver.state_dir(), {}));
    ASSERT_OK(state->log().TakeOver(4));
  }
  ASSERT_OK_AND_ASSIGN(const v1::PageData data,
                       ReadPageData(driver.state_dir(), 2));
  EXPECT_EQ(data.run().epoch(), 4);
}

}  // namespace
}  // namespace causeway
