// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/election/testing/etcd_process.h"
#include "tests/end_to_end/process.h"
#include "tests/takeover/trial.h"

namespace causeway {
namespace {

using testing::IsEmpty;

TEST(TakeoverTest, NothingIsLostWithALeader) {
  if (!EtcdProcess::IsInstalled()) GTEST_SKIP() << "there is no etcd";
  ASSERT_OK_AND_ASSIGN(auto directory, TemporaryDirectory::Make("takeover"));
  const std::string coordinator = ProgramPath("server/causeway-coordinator");
  const absl::StatusOr<TakeoverResult> result = RunTakeover(
      {.programs = coordinator.substr(0, coordinator.rfind("/server/")),
       .data = "/usr/share/common-licenses/GPL-3",
       .directory = directory.path(),
       .islands = 2,
       .lease = absl::Seconds(2),
       .disturbances = {Disturbance::kKillLeader, Disturbance::kStopEtcd,
                        Disturbance::kStopLeader, Disturbance::kWipeFollower,
                        Disturbance::kCutLeaderFromEtcd,
                        Disturbance::kCutLeaderFromFollowers},
       .longest_pause = absl::Seconds(2),
       .now = SteadyWallClock()});
  if (!result.ok()) directory.Keep();
  ASSERT_OK(result.status());
  EXPECT_THAT(result->accounts.findings, IsEmpty());
  EXPECT_EQ(result->accounts.lost_commits, 0);
  EXPECT_EQ(result->accounts.lost_steps, 0);
  EXPECT_EQ(result->accounts.double_counted_steps, 0);
}

}  // namespace
}  // namespace causeway
