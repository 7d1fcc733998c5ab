// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Islands whose name service knows a coordinator too late, or moves its name to
// another address.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

// Name servers that do not answer take their time.
constexpr absl::Duration kPatience = absl::Seconds(90);

constexpr char kConfig[] = R"pb(
  name: "names"
  training { total_steps: 1000000 batch_size: 1 learning_rate: 1e-3 }
  synchronization { inner_steps_per_round: 20 }
  membership { min_islands: 1 lease_seconds: 60 }
)pb";

class NamesTest : public ProcessTestFixture {
 protected:
  void SetUp() override {
    WriteRun(kConfig);
    SetHosts("");
    Process unshare({"/usr/bin/unshare", "--mount", "/bin/true"},
                    Path("unshare.log"));
    if (unshare.Wait() != 0) GTEST_SKIP() << unshare.Output();
  }

  // Writes what the island takes for /etc/hosts.
  void SetHosts(absl::string_view lines) const { Write("hosts", lines); }

  std::unique_ptr<Process> Coordinator(absl::string_view name,
                                       absl::string_view host, int port) {
    return StartServing(
        name, CoordinatorCommand(0, "state",
                                 {absl::StrCat("--listen=", host, ":", port)}));
  }
  std::unique_ptr<Process> Island(absl::string_view addresses) {
    return StartWithHosts(
        "north",
        WorkerCommand("north", 0, {absl::StrCat("--coordinator=", addresses)}));
  }
  // The process takes the file of SetHosts for /etc/hosts.
  std::unique_ptr<Process> StartWithHosts(
      absl::string_view name, std::vector<std::string> command) const {
    command.insert(command.begin(),
                   {"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
                    absl::StrCat("mount --bind ", Path("hosts"),
                                 " /etc/hosts && exec \"$@\""),
                    "sh"});
    return Start(name, command);
  }

  static int Count(const Process& process, absl::string_view text) {
    const std::vector<std::string> parts =
        absl::StrSplit(process.Output(), std::string(text));
    return static_cast<int>(parts.size()) - 1;
  }
};

// gRPC alone would pause for half a minute by then, and later for two.
TEST_F(NamesTest, ANameThatWasUnknownForLongIsFoundSoon) {
  const auto coordinator = Coordinator("first", "127.0.0.1", 0);
  const std::string address = absl::StrCat("a.invalid:", Port());
  const auto north = Island(address);
  const auto follower = StartWithHosts(
      "follower",
      {ProgramPath("server/causeway-coordinator"), "--follow", address,
       absl::StrCat("--state_dir=", Path("copy")), "--listen=127.0.0.1:0"});
  constexpr char kNotJoined[] = "cannot join: ";
  constexpr char kNotFollowing[] = "not following a.invalid";
  ASSERT_TRUE(
      Await([&] { return Count(*north, kNotJoined) >= 14; }, 2 * kPatience))
      << north->Output();
  SetHosts("127.0.0.1 a.invalid\n");
  const int not_joined = Count(*north, kNotJoined);
  const int not_following = Count(*follower, kNotFollowing);
  EXPECT_TRUE(north->AwaitOutput("joined run", 2 * kPatience));
  EXPECT_TRUE(follower->AwaitOutput("following run", 2 * kPatience));
  // A try was under way, and an island looks the name up at every third one.
  EXPECT_LE(Count(*north, kNotJoined), not_joined + 3) << north->Output();
  EXPECT_LE(Count(*follower, kNotFollowing), not_following + 1)
      << follower->Output();
}

TEST_F(NamesTest, NamesInAListAreFoundAnew) {
  auto coordinator = Coordinator("first", "127.0.0.1", 0);
  const int port = Port();
  const auto north =
      Island(absl::StrCat("a.invalid:", port, ",b.invalid:", port));
  ASSERT_TRUE(north->AwaitOutput("going without that address", kPatience))
      << north->Output();
  SetHosts("127.0.0.1 b.invalid\n");
  ASSERT_TRUE(coordinator->AwaitOutput("is at version", kPatience))
      << north->Output();
  coordinator->End(SIGKILL);
  coordinator = Coordinator("second", "127.0.0.2", port);
  SetHosts("127.0.0.2 b.invalid\n");
  EXPECT_TRUE(coordinator->AwaitOutput("is at version", kPatience))
      << north->Output();
}

}  // namespace
}  // namespace causeway
