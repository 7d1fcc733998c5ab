// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervised_ranks.h"

#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/flags.h"

ABSL_DECLARE_FLAG(std::string, trace);

namespace causeway {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

TEST(IslandCommandsTest, OwnFlagsComeLast) {
  const absl::FlagSaver saver;
  absl::SetFlag(&FLAGS_supervise, 2);
  absl::SetFlag(&FLAGS_island_rank, 4);
  absl::SetFlag(&FLAGS_island_size, 6);
  absl::SetFlag(&FLAGS_threads, 5);
  absl::SetFlag(&FLAGS_trace, "/tmp/a.json");
  ASSERT_OK_AND_ASSIGN(const auto commands,
                       IslandCommands({"/bin/worker", "--supervise", "2"},
                                      {Device{}}, "10.1.0.1:7100"));
  ASSERT_THAT(commands, SizeIs(2));
  EXPECT_THAT(commands[1],
              ElementsAre("/bin/worker", "--supervise", "2", "--supervise=0",
                          "--island_size=6", "--island_rank=5",
                          "--island_leader=10.1.0.1:7100", "--threads=2",
                          "--trace=/tmp/a.json.5"));
}

TEST(IslandCommandsTest, GpusAreSharedOut) {
  const absl::FlagSaver saver;
  absl::SetFlag(&FLAGS_supervise, 2);
  std::vector<Device> devices;
  for (const int index : {1, 3, 4, 6}) {
    devices.push_back({Device::Kind::kCuda, index});
  }
  ASSERT_OK_AND_ASSIGN(const auto commands,
                       IslandCommands({"/bin/worker"}, devices, ""));
  EXPECT_THAT(commands[0], Contains("--device=cuda:1,3"));
  EXPECT_THAT(commands[1], Contains("--device=cuda:4,6"));
  EXPECT_THAT(commands[0], Not(Contains(StartsWith("--trace"))));
  absl::SetFlag(&FLAGS_supervise, 3);
  EXPECT_THAT(IslandCommands({"/bin/worker"}, devices, ""),
              IsInvalidArgument());
}

}  // namespace
}  // namespace causeway
