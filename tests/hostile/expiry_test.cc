// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Certificates that expire during a run, and are replaced too late.
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/transport/testing/certificates.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr char kConfig[] = R"pb(
  name: "expiry"
  training { total_steps: 100000000 batch_size: 1 }
  synchronization { inner_steps_per_round: 20 }
  membership { min_islands: 1 lease_seconds: 5 heartbeat_seconds: 0.5 }
)pb";

class ExpiryTest : public ProcessTestFixture {
 protected:
  void SetUp() override { WriteRun(kConfig); }

  // Puts a certificate that is valid until `until`, and its key, into the files
  // `name`.crt and `name`.key.
  void Install(absl::string_view name, const std::string& names,
               absl::Time until) {
    const TestIdentity made = authority_.Sign(names, {begin_, until});
    std::filesystem::rename(made.key, Path(absl::StrCat(name, ".key")));
    std::filesystem::rename(made.certificate, Path(absl::StrCat(name, ".crt")));
  }
  std::vector<std::string> WithTls(std::vector<std::string> command,
                                   absl::string_view name,
                                   absl::string_view authority) const {
    command.insert(command.end(),
                   {absl::StrCat("--", authority, "=", Path("ca.crt")),
                    absl::StrCat("--tls_cert=", Path(name), ".crt"),
                    absl::StrCat("--tls_key=", Path(name), ".key")});
    return command;
  }
  std::vector<std::string> StatusArguments() const {
    return WithTls({"status", absl::StrCat("--coordinator=localhost:", Port())},
                   "anna", "tls_ca");
  }
  // Waits until `causeway status` prints `text`.
  bool AwaitStatus(absl::string_view text) const {
    const absl::Time end = absl::Now() + absl::Seconds(60);
    std::vector<std::string> command = StatusArguments();
    command.insert(command.begin(), ProgramPath("cli/causeway"));
    while (absl::Now() < end) {
      std::filesystem::remove(Path("status.log"));
      const auto status = Start("status", command);
      status->Wait();
      if (absl::StrContains(status->Output(), text)) {
        // gRPC's own log is not for users.
        EXPECT_FALSE(absl::StrContains(status->Output(), "Handshake failed"));
        return true;
      }
    }
    return false;
  }

  const absl::Time begin_ = absl::Now() - absl::Hours(1);
  const absl::Time later_ = absl::Now() + absl::Hours(1);
  TestAuthority authority_{Path("authority"), {begin_, later_}};
};

TEST_F(ExpiryTest, FilesThatAreReplacedTooLateNeedNoRestart) {
  std::filesystem::copy(authority_.certificate(), Path("ca.crt"));
  const absl::Time soon = absl::Now() + absl::Seconds(15);
  Install("coordinator", "localhost", soon);
  Install("north", "north.island.expiry.causeway", soon);
  Install("anna", "anna.operator.expiry.causeway", later_);
  const auto coordinator =
      Start("coordinator",
            WithTls(CoordinatorCommand(0), "coordinator", "tls_client_ca"));
  ASSERT_TRUE(coordinator->AwaitOutput("waiting for islands"))
      << coordinator->Output();
  std::vector<std::string> command = WorkerCommand("north", Port());
  command[1] = absl::StrCat("--coordinator=localhost:", Port());
  command.push_back("--simulated_step_seconds=0.02");
  const auto north = Start("north", WithTls(command, "north", "tls_ca"));
  ASSERT_TRUE(north->AwaitOutput("joined run")) << north->Output();
  // A warning comes before.
  EXPECT_THAT(RunTool(StatusArguments()),
              HasSubstr(absl::StrCat("coordinator: the certificate \"",
                                     Path("coordinator.crt"), "\" expires")));
  EXPECT_TRUE(north->AwaitOutput("north.crt\" expires at"));
  // The certificates expire.
  EXPECT_TRUE(AwaitStatus("the certificate that it shows has expired"));
  EXPECT_TRUE(north->AwaitOutput("north.crt\" expired at")) << north->Output();
  ASSERT_TRUE(coordinator->AwaitOutput("was evicted")) << coordinator->Output();
  Install("coordinator", "localhost", later_);
  Install("north", "north.island.expiry.causeway", later_);
  EXPECT_TRUE(coordinator->AwaitOutput("north joined (incarnation 2",
                                       absl::Seconds(60)))
      << north->Output();
  EXPECT_TRUE(AwaitStatus("run         expiry-"));
}

TEST_F(ExpiryTest, ANewEnrolmentNeedsNoRestart) {
  std::vector<std::string> command = CoordinatorCommand(0);
  command.insert(command.end(), {"--tls=auto", "--certificate_life=15s"});
  const auto coordinator = Start("coordinator", command);
  ASSERT_TRUE(coordinator->AwaitOutput("waiting for islands"))
      << coordinator->Output();
  const std::string address = absl::StrCat("--coordinator=127.0.0.1:", Port());
  const auto token = [&](const std::string& role, const std::string& name) {
    const std::string output =
        RunTool({"token", "create", role, name, address,
                 absl::StrCat("--tls=", Path("state"), "/tls/operator")});
    return absl::StrCat("--join=",
                        absl::StripTrailingAsciiWhitespace(
                            output.substr(output.rfind("causeway1."))));
  };
  const std::string folder = absl::StrCat("--tls=", Path("north-tls"));
  command = WorkerCommand("north", Port());
  command.insert(command.end(), {"--simulated_step_seconds=0.02", folder,
                                 token("--island", "north")});
  const auto north = Start("north", command);
  ASSERT_TRUE(north->AwaitOutput("joined run")) << north->Output();
  const auto follow = [&](const std::string& name) {
    const std::string own = absl::StrCat("--tls=", Path(name + "-tls"));
    RunTool({"enrol", address, own, token("--operator", name)});
    return Start(name, {ProgramPath("cli/causeway"), "events", "--follow",
                        "--all", address, own});
  };
  const auto events = follow("events");
  const auto late = follow("late");
  ASSERT_TRUE(late->AwaitOutput("north")) << late->Output();
  // They cannot renew their certificates in time.
  north->Signal(SIGSTOP);
  late->Signal(SIGSTOP);
  absl::SleepFor(absl::Seconds(16));
  north->Signal(SIGCONT);
  late->Signal(SIGCONT);
  EXPECT_TRUE(events->AwaitOutput("renewed the certificate"))
      << events->Output();
  ASSERT_TRUE(north->AwaitOutput("`causeway enrol` with a new token"))
      << north->Output();
  RunTool({"enrol", address, folder, token("--island", "north")});
  EXPECT_TRUE(coordinator->AwaitOutput("north joined (incarnation 2",
                                       absl::Seconds(60)))
      << north->Output();
  coordinator->End(SIGKILL);
  EXPECT_EQ(late->Wait(), 1) << late->Output();
  EXPECT_THAT(late->Output(), HasSubstr("has expired"));
}

}  // namespace
}  // namespace causeway
