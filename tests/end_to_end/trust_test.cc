// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A coordinator with an authority of its own (--tls auto), and islands that
// enrol with join tokens: real processes from an empty directory on.
#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// A run of one island that does not end by itself.
constexpr char kConfig[] = R"pb(
  name: "trusted"
  training { total_steps: 100000000 batch_size: 1 }
  synchronization { inner_steps_per_round: 50 }
  membership { min_islands: 1 lease_seconds: 20 heartbeat_seconds: 0.2 }
)pb";

class TrustTest : public ProcessTestFixture {
 protected:
  void SetUp() override { WriteRun(kConfig); }

  // Starts a coordinator, and returns when it serves.
  std::unique_ptr<Process> Coordinator(const std::string& state,
                                       const std::string& life = "20s") {
    auto coordinator = Start(
        state, CoordinatorCommand(
                   0, state,
                   {"--tls=auto", absl::StrCat("--certificate_life=", life)}));
    EXPECT_TRUE(coordinator->AwaitOutput("causeway token create"))
        << coordinator->Output();
    return coordinator;
  }

  // Runs a command of an operator on the machine of the coordinator `state`, as
  // RunTool does.
  std::string Operate(const std::string& state, int port,
                      std::vector<std::string> arguments) {
    arguments.insert(arguments.end(),
                     {absl::StrCat("--coordinator=127.0.0.1:", port),
                      absl::StrCat("--tls=", Path(state), "/tls/operator")});
    return RunTool(std::move(arguments));
  }
  json Ask(const std::string& state, int port,
           std::vector<std::string> arguments) {
    arguments.push_back("--json");
    return json::parse(Operate(state, port, std::move(arguments)));
  }

  std::string Token(const std::string& state, int port,
                    const std::string& role = "--island") {
    const std::string output =
        Operate(state, port, {"token", "create", role, "east"});
    EXPECT_EQ(absl::StrContains(output, "causeway.join(\"HOST:PORT\", tls="),
              role == "--island");
    return std::string(
        absl::StripSuffix(output.substr(output.rfind("causeway1.")), "\n"));
  }

  // `token` is what --join or --join_file takes.
  std::unique_ptr<Process> Worker(const std::string& name, int port,
                                  const std::string& token,
                                  const std::string& flag = "--join") {
    return Start(name, {ProgramPath("worker/causeway-worker"),
                        absl::StrCat("--coordinator=127.0.0.1:", port),
                        absl::StrCat("--tls=", Path(name), "-tls"),
                        absl::StrCat(flag, "=", token),
                        absl::StrCat("--data=", kText), "--threads=1"});
  }

  void ExpectRefused(const std::string& name, int port,
                     const std::string& token, const std::string& why) {
    const auto worker = Worker(name, port, token);
    EXPECT_EQ(worker->Wait(), 1) << worker->Output();
    EXPECT_THAT(worker->Output(), HasSubstr(why));
    EXPECT_THAT(worker->Output(), Not(HasSubstr(token)));
  }
};

TEST_F(TrustTest, AFollowerEnrolsAndTakesOverWithIslandsOfTheAuthority) {
  const auto coordinator = Coordinator("state", /*life=*/"1h");
  const int port = Port();
  const std::string leader = absl::StrCat("127.0.0.1:", port);
  RunTool({"enrol", "--coordinator", leader, "--tls", Path("follower-tls"),
           "--join", Token("state", port, "--follower")});
  const auto follower =
      Start("copy",
            {ProgramPath("server/causeway-coordinator"),
             absl::StrCat("--follow=", leader),
             absl::StrCat("--follow_tls=", Path("follower-tls")),
             absl::StrCat("--state_dir=", Path("copy")), "--listen=127.0.0.1:0",
             absl::StrCat("--port_file=", Path("port"))});
  ASSERT_TRUE(follower->AwaitOutput("is complete")) << follower->Output();
  ASSERT_TRUE(Await([&] { return Port() != port; })) << follower->Output();
  const int other = Port();
  // The island knows both addresses.
  const auto island = Start(
      "east", {ProgramPath("worker/causeway-worker"),
               absl::StrCat("--coordinator=", leader, ",127.0.0.1:", other),
               absl::StrCat("--tls=", Path("east-tls")),
               absl::StrCat("--join=", Token("state", port)),
               absl::StrCat("--data=", kText), "--threads=1"});
  ASSERT_TRUE(coordinator->AwaitOutput("fragment 0 is at version 1"))
      << island->Output();
  // It may not follow.
  const auto spy =
      Start("spy", {ProgramPath("server/causeway-coordinator"),
                    absl::StrCat("--follow=", leader),
                    absl::StrCat("--follow_tls=", Path("east-tls")),
                    absl::StrCat("--state_dir=", Path("spied"))});
  EXPECT_EQ(spy->Wait(), 1) << spy->Output();
  EXPECT_THAT(spy->Output(), HasSubstr("PERMISSION_DENIED"));
  // The newest certificate, an operator's, is revoked.
  RunTool({"enrol", "--coordinator", leader, "--tls", Path("revoked-tls"),
           "--join", Token("state", port, "--operator")});
  const json list = Ask("state", port, {"certificate", "list"});
  const std::string revoked = list["certificates"].back().at("id");
  Operate("state", port, {"certificate", "revoke", revoked});
  ASSERT_TRUE(
      Await([&] { return FileText(Path("copy/revoked")) == revoked + "\n"; }));

  coordinator->End(SIGKILL);
  ASSERT_TRUE(follower->AwaitOutput("not following"));
  EXPECT_THAT(Operate("state", other, {"promote"}), HasSubstr("epoch 2"));
  ASSERT_TRUE(follower->AwaitOutput("waiting for islands"))
      << follower->Output();
  const uint64_t rounds = std::stoull(
      Ask("state", other, {"status"})["run"]["rounds"].get<std::string>());
  EXPECT_TRUE(follower->AwaitOutput(
      absl::StrCat("fragment 0 is at version ", rounds + 3)))
      << follower->Output() << island->Output();
  EXPECT_THAT(RunTool({"pause", absl::StrCat("--coordinator=127.0.0.1:", other),
                       absl::StrCat("--tls=", Path("revoked-tls"))},
                      1),
              HasSubstr("this certificate was revoked"));

  // With the authority, it still tells the previous leader that it was
  // replaced; without an island, nobody else does.
  island->End(SIGTERM);
  follower->End(SIGTERM);
  std::filesystem::copy(Path("state/tls"), Path("copy/tls"),
                        std::filesystem::copy_options::recursive);
  const auto successor =
      Start("successor",
            {ProgramPath("server/causeway-coordinator"), "--promote",
             "--tls=auto", absl::StrCat("--follow_tls=", Path("follower-tls")),
             absl::StrCat("--state_dir=", Path("copy")),
             absl::StrCat("--listen=127.0.0.1:", other)});
  ASSERT_TRUE(successor->AwaitOutput("causeway token create"))
      << successor->Output();
  const auto back =
      Start("back", CoordinatorCommand(port, "state", {"--tls=auto"}));
  EXPECT_TRUE(back->AwaitOutput("was replaced")) << back->Output();
}

TEST_F(TrustTest, AnIslandEnrolsTrainsRenewsAndIsRevoked) {
  const auto coordinator = Coordinator("state");
  const int port = Port();
  const std::string token = Token("state", port);
  auto island = Worker("east", port, token);
  ASSERT_TRUE(coordinator->AwaitOutput("fragment 0 is at version 1"))
      << coordinator->Output() << island->Output();
  // Its certificate does not have the address that is dialled.
  EXPECT_THAT(coordinator->Output(), Not(HasSubstr("gRPC: ")));

  // An island restarts with the same command, though the token is used up.
  EXPECT_EQ(island->End(SIGTERM), 0) << island->Output();
  ExpectRefused("thief", port, token, "the token is used up");
  const std::string file = Path("token");
  ASSERT_OK(WriteFileAtomically(file, {token, "\n"}));
  island = Worker("east", port, file, "--join_file");
  ASSERT_TRUE(coordinator->AwaitOutput("east joined (incarnation 2"))
      << island->Output();

  // The second renewal takes a connection with the first renewed certificate,
  // and the first certificate has ended by then.
  const auto ends = [&] {
    const json list = Ask("state", port, {"certificate", "list"});
    return list["certificates"][1].at("expires_at").get<std::string>();
  };
  for (int renewal = 1; renewal <= 2; ++renewal) {
    const std::string before = ends();
    ASSERT_TRUE(Await([&] { return ends() != before; })) << island->Output();
  }
  const int merged = std::stoi(
      Ask("state", port, {"status"}).at("run").at("rounds").get<std::string>());
  EXPECT_TRUE(coordinator->AwaitOutput(
      absl::StrCat("fragment 0 is at version ", merged + 2)));
  EXPECT_THAT(coordinator->Output(),
              Not(HasSubstr("(incarnation 2) was evicted")));

  const json list = Ask("state", port, {"certificate", "list"});
  ASSERT_EQ(list["certificates"].size(), 2) << list;
  Operate("state", port,
          {"certificate", "revoke",
           list["certificates"][1]["id"].get<std::string>()});
  EXPECT_EQ(island->Wait(), 1) << island->Output();
  EXPECT_THAT(island->Output(), HasSubstr("this certificate was revoked"));
}

TEST_F(TrustTest, ATokenWithoutUseIsRefused) {
  EXPECT_THAT(RunTool({"token", "create", "--island=a", "--uses=0"}, 2),
              HasSubstr("--uses is 0; allowed: 1"));
}

TEST_F(TrustTest, OneSideWithoutTlsIsToldSoAtOnce) {
  const auto coordinator = Coordinator("state");
  const int port = Port();
  const std::string address = absl::StrCat("--coordinator=127.0.0.1:", port);
  const auto worker =
      Start("plain", {ProgramPath("worker/causeway-worker"), address,
                      "--island=east", absl::StrCat("--data=", kText)});
  EXPECT_EQ(worker->Wait(), 1) << worker->Output();
  EXPECT_THAT(worker->Output(),
              HasSubstr("it speaks TLS, and this side plain text"));
  EXPECT_THAT(RunTool({"status", address}, 1),
              HasSubstr("it speaks TLS, and this side plain text"));

  const std::string token = Token("state", port);
  const auto open = StartServing("open", CoordinatorCommand(0, "open"));
  ExpectRefused("sealed", Port(), token,
                "it speaks plain text, and this side TLS");
  EXPECT_THAT(RunTool({"status", "--coordinator", Address(),
                       absl::StrCat("--tls=", Path("state/tls/operator"))},
                      1),
              HasSubstr("it speaks plain text, and this side TLS"));

  EXPECT_EQ(coordinator->End(SIGTERM), 0) << coordinator->Output();
  const auto forgetful = Start("forgetful", CoordinatorCommand(0));
  EXPECT_TRUE(forgetful->AwaitOutput("was started without that flag"))
      << forgetful->Output();
}

TEST_F(TrustTest, OnlyTheTokensCoordinatorIsTrusted) {
  const auto coordinator = Coordinator("state");
  const int port = Port();
  const std::string token = Token("state", port);
  std::string forged = token;
  forged[forged.size() - 3] = forged[forged.size() - 3] == 'A' ? 'B' : 'A';
  ExpectRefused("forger", port, forged, "there is no such token");
  const json refused =
      Ask("state", port,
          {"events", "--severity", "warning", "--kind", "enrolment_refused"});
  EXPECT_THAT(std::string(refused.at("text")),
              HasSubstr("from 127.0.0.1 is refused: there is no such token"));

  // An impostor in the coordinator's place has another authority.
  const auto impostor = Coordinator("impostor");
  ExpectRefused("victim", Port(), token, "not the coordinator that the token");
  EXPECT_THAT(impostor->Output(), Not(HasSubstr("no such token")));

  // The coordinator reports how long its own certificate is valid.
  EXPECT_TRUE(
      Ask("state", port, {"status"})["run"].contains("certificate_expires_at"));

  // The token was not used either.
  const json tokens = Ask("state", port, {"token", "list"});
  ASSERT_EQ(tokens["tokens"].size(), 1) << tokens;
  Operate("state", port,
          {"token", "revoke", tokens["tokens"][0]["id"].get<std::string>()});
  ExpectRefused("late", port, token, "there is no such token");
}

}  // namespace
}  // namespace causeway
