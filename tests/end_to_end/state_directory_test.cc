// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests what people do to a state directory, with real processes: reading a
// backup without write permission, and removing files under a running
// coordinator.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr char kConfig[] = R"pb(
  name: "kept"
  training { total_steps: 600 batch_size: 2 }
  synchronization { inner_steps_per_round: 20 }
  membership { lease_seconds: 600 heartbeat_seconds: 0.2 }
  storage { record_contributions: true }
)pb";

class StateDirectoryTest : public ProcessTestFixture {
 protected:
  void StartCoordinator(int port) {
    coordinator_ = StartServing("coordinator", CoordinatorCommand(port));
  }

  // Starts a run, and waits for its first commits.
  void StartRun() {
    WriteRun(kConfig);
    StartCoordinator(0);
    // The run lasts until tools have read it, even if this machine stalls.
    island_ = Start("east", WorkerCommand("east", Port(),
                                          {"--simulated_step_seconds=0.01"}));
    ASSERT_TRUE(coordinator_->AwaitOutput("fragment 0 is at version 2:"));
  }

  // Expects that every tool can use the state without write permission.
  void ExpectToolsRead(const std::string& state) {
    const std::filesystem::perms mode =
        std::filesystem::status(state).permissions();
    std::filesystem::permissions(state, std::filesystem::perms(0555));
    const std::string report = Path("report.html");
    const std::string exported = Path("exported");
    for (std::vector<std::string> command :
         std::vector<std::vector<std::string>>{
             {"evaluate", state, "--data", kText, "--threads", "1"},
             {"export", state, "--out", exported, "--force"},
             {"report", state, "--out", report},
             {"replay", state},
             {"sample", state, "--prompt", "The ", "--tokens", "2"}}) {
      command.insert(command.begin(), ProgramPath("cli/causeway"));
      if (geteuid() == 0) {
        // Root may write everywhere, unless it gives that up.
        command.insert(command.begin(),
                       {"/usr/bin/setpriv", "--bounding-set=-all"});
      }
      Process tool(command, Path("tool.log"));
      EXPECT_EQ(tool.Wait(), 0) << tool.Output();
    }
    std::filesystem::permissions(state, mode);
  }

  std::unique_ptr<Process> coordinator_;
  std::unique_ptr<Process> island_;
};

TEST_F(StateDirectoryTest, ToolsReadBackupsThatTheyMayNotWrite) {
  namespace fs = std::filesystem;
  StartRun();
  ExpectToolsRead(Path("state"));
  coordinator_->End(SIGKILL);
  fs::copy(Path("state"), Path("killed"), fs::copy_options::recursive);
  fs::remove(Path("killed/run.sqlite3-shm"));
  ExpectToolsRead(Path("killed"));
  StartCoordinator(Port());
  ExpectOk(*island_, *coordinator_);
  EXPECT_FALSE(fs::exists(Path("state/run.sqlite3-wal")));
  ExpectToolsRead(Path("state"));
}

TEST_F(StateDirectoryTest, ALogRemovedUnderTheCoordinatorIsNotLost) {
  namespace fs = std::filesystem;
  StartRun();
  const int port = Port();
  const std::string log = Path("state/run.sqlite3");
  fs::remove(log);
  ASSERT_TRUE(coordinator_->AwaitOutput("nothing is committed"))
      << coordinator_->Output();
  const std::string status = RunTool({"status", "--coordinator", Address()});
  EXPECT_THAT(status, HasSubstr("suspended"));
  EXPECT_THAT(status, HasSubstr(log + " was removed"));
  ASSERT_TRUE(island_->running());
  coordinator_->End(SIGKILL);

  coordinator_ = Start("refused", CoordinatorCommand(port));
  EXPECT_EQ(coordinator_->Wait(), 2);
  EXPECT_THAT(coordinator_->Output(), HasSubstr(log + ".rescued"));
  fs::rename(log + ".rescued", log);
  StartCoordinator(port);
  ExpectOk(*island_, *coordinator_);
  // Versions that were announced before are not made a second time.
  const std::string all = coordinator_->Output();
  for (int version = 1; version <= 30; ++version) {
    const std::string line =
        absl::StrCat("fragment 0 is at version ", version, ":");
    const size_t first = all.find(line);
    ASSERT_NE(first, std::string::npos) << line;
    EXPECT_EQ(all.find(line, first + 1), std::string::npos) << line;
  }
}

TEST_F(StateDirectoryTest, ALockRemovedUnderTheCoordinatorStopsCommits) {
  StartRun();
  const std::string lock = Path("state/lock");
  std::filesystem::rename(lock, lock + ".away");
  ASSERT_TRUE(coordinator_->AwaitOutput("nothing is committed"))
      << coordinator_->Output();
  EXPECT_THAT(RunTool({"status", "--coordinator", Address()}),
              HasSubstr(lock + " was removed"));
  std::filesystem::rename(lock + ".away", lock);
  ExpectOk(*island_, *coordinator_);
}

}  // namespace
}  // namespace causeway
