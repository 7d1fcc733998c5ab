// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/island_commands.h"

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

TEST(IslandCommandsTest, OwnFlagsComeLast) {
  ASSERT_OK_AND_ASSIGN(
      const auto commands,
      IslandCommands({.command = {"/bin/worker", "--supervise", "2"},
                      .processes = 2,
                      .first_process = 4,
                      .island_size = 6,
                      .leader = "10.1.0.1:7100",
                      .threads = 5,
                      .devices = {Device{}},
                      .trace = "/tmp/a.json"}));
  ASSERT_THAT(commands, SizeIs(2));
  EXPECT_THAT(commands[1],
              ElementsAre("/bin/worker", "--supervise", "2", "--supervise=0",
                          "--island_size=6", "--island_rank=5",
                          "--island_leader=10.1.0.1:7100", "--threads=2",
                          "--trace=/tmp/a.json.5"));
}

TEST(IslandCommandsTest, GpusAreSharedOut) {
  IslandCommandOptions options{.command = {"/bin/worker"}, .processes = 2};
  for (const int index : {1, 3, 4, 6}) {
    options.devices.push_back({Device::Kind::kCuda, index});
  }
  ASSERT_OK_AND_ASSIGN(auto commands, IslandCommands(options));
  EXPECT_THAT(commands[0], Contains("--device=cuda:1,3"));
  EXPECT_THAT(commands[1], Contains("--device=cuda:4,6"));
  EXPECT_THAT(commands[0], Not(Contains(StartsWith("--trace"))));
  options.processes = 3;
  EXPECT_THAT(IslandCommands(options), IsInvalidArgument());
}

}  // namespace
}  // namespace causeway
