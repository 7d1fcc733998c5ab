// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/supervisor.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/os/daemon.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/rank_stamps.h"
#include "worker/collective/rendezvous.h"
#include "worker/replica/orders.h"
#include "worker/replica/testing/local_communicators.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The beginning of a second process's script, which lets the first one write
// its line. Sets n to the number of starts.
constexpr char kWritesSecond[] =
    "echo b >>second; n=$(wc -l <second); "
    "until [ $(cat first | wc -l) = $n ]; do sleep 0.01; done; ";

// The beginning of a script whose process has a rank.
constexpr char kSaysPid[] =
    "echo $$ >>pids; until [ -e stamped ]; do sleep 0.01; done; ";

// Returns a script of some seconds that writes a file at the end.
std::string WritesLate(const std::string& file) {
  return absl::StrCat(
      "n=0; while [ $n -lt 60 ]; do n=$((n+1)); sleep 0.05; "
      "done; echo late >",
      file, "; ");
}

// Returns a clock that runs 100 times too fast.
Clock FastClock() {
  const Clock now = SteadyWallClock();
  return [now, begin = now()] { return begin + 100 * (now() - begin); };
}

// Shell scripts play an island's processes.
class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() : directory_(*TemporaryDirectory::Make("supervisor_test")) {
    BlockTerminationSignals();
  }

  SupervisorOptions Options(const std::vector<std::string>& scripts,
                            RankFaultAction action) {
    SupervisorOptions options{
        .commands =
            [this, scripts] {
              ++starts_;
              std::vector<std::vector<std::string>> commands;
              for (const std::string& script : scripts) {
                commands.push_back(
                    {"/bin/sh", "-c",
                     absl::StrCat("cd ", directory_.path(), "; ", script)});
              }
              return commands;
            },
        .island_size = static_cast<int>(scripts.size()),
        .action = action,
        .interrupted_exit_code = 75,
        .now = SteadyWallClock()};
    return options;
  }
  int Run(const SupervisorOptions& options) {
    const absl::StatusOr<SupervisionEnd> end = Supervise(options);
    EXPECT_OK(end);
    if (!end.ok()) return -1;
    is_over_ = end->is_over;
    return end->exit_code;
  }
  int Run(const std::vector<std::string>& scripts,
          RankFaultAction action = RankFaultAction::kAct) {
    return Run(Options(scripts, action));
  }
  // Runs the scripts with short pauses between starts.
  int RunHastily(const std::vector<std::string>& scripts) {
    return Run(Hasty(Options(scripts, RankFaultAction::kAct)));
  }
  static SupervisorOptions Hasty(SupervisorOptions options) {
    options.first_pause = absl::Milliseconds(10);
    return options;
  }
  // Gives the first `count` ranks to those processes of the first start whose
  // scripts begin with kSaysPid.
  SupervisorOptions WithRanks(SupervisorOptions options, size_t count) {
    options.all_is_well = [this, count](bool) {
      std::ifstream file(directory_.path() + "/pids");
      std::vector<uint32_t> pids;
      for (uint32_t pid = 0; file >> pid;) pids.push_back(pid);
      if (starts_ > 1 || pids.size() < count) return;
      const auto page = *RankStampPage::Open(getenv(kRankStampsVariable));
      for (size_t i = 0; i < count; ++i) page->rank(i).process = pids[i];
      std::ofstream(directory_.path() + "/stamped");
    };
    return options;
  }
  bool Exists(const std::string& name) const {
    return std::filesystem::exists(directory_.path() + "/" + name);
  }
  std::string Contents(const std::string& name) const {
    std::ifstream file(absl::StrCat(directory_.path(), "/", name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const TemporaryDirectory directory_;
  int starts_ = 0;
  // SupervisionEnd::is_over of the last run.
  bool is_over_ = false;
};

TEST_F(SupervisorTest, TheFirstProcessKnowsHowTheIslandEnded) {
  EXPECT_EQ(Run({"exit 0", "exit 75"}), 0);
  EXPECT_EQ(Run({"exit 75", "exit 0"}), 75);
  EXPECT_EQ(starts_, 2);
}

TEST_F(SupervisorTest, AnIslandThatHasHandedInItsStateIsOver) {
  for (const char* const code : {"0", "75"}) {
    Run({absl::StrCat("exit ", code)});
    EXPECT_TRUE(is_over_) << code;
  }
  Run({"exit 1"}, RankFaultAction::kDetect);
  EXPECT_FALSE(is_over_);
  SupervisorOptions options = Options(
      {"until [ -e kept ]; do sleep 0.01; done"}, RankFaultAction::kAct);
  options.all_is_well = [&](bool) {
    (*RankStampPage::Open(getenv(kRankStampsVariable)))->keeps_checkpoint() =
        true;
    std::ofstream(directory_.path() + "/kept");
  };
  EXPECT_EQ(Run(options), 0);
  EXPECT_FALSE(is_over_);
}

TEST_F(SupervisorTest, AnIslandThatIsToldToEndBetweenTwoStartsIsNotOver) {
  // On a slow machine the signal comes after the second start.
  EXPECT_THAT(Run({"trap 'exit 1' TERM; [ ! -e tried ] || while :; do sleep "
                   "0.05; done; touch tried; (sleep 0.1; kill -TERM $PPID) & "
                   "exit 1"}),
              AnyOf(75, 1));
  EXPECT_FALSE(is_over_);
}

TEST_F(SupervisorTest, OnAnotherHostTheHighestCodeCounts) {
  SupervisorOptions options =
      Options({"exit 0", "exit 75"}, RankFaultAction::kAct);
  options.first_process = 2;
  options.island_size = 4;
  EXPECT_EQ(Run(options), 75);
}

TEST_F(SupervisorTest, AFaultIsOnlyReportedUnlessItActs) {
  for (const auto action :
       {RankFaultAction::kDetect, RankFaultAction::kDecide}) {
    EXPECT_EQ(Run({"exit 1", "kill -KILL $$"}, action), 1);
  }
  EXPECT_EQ(starts_, 2);
}

TEST_F(SupervisorTest, RanksAreStartedAgainTogether) {
  EXPECT_EQ(
      RunHastily({"echo a >>first; [ $(wc -l <first) = 3 ]",
                  absl::StrCat(kWritesSecond, "[ $n = 3 ] || kill -KILL $$")}),
      0);
  EXPECT_EQ(Contents("first"), "a\na\na\n");
  EXPECT_EQ(Contents("second"), "b\nb\nb\n");
}

TEST_F(SupervisorTest, AProcessKilledBeforeItHadARankIsNotAwaited) {
  EXPECT_EQ(Run({"echo a >>first; [ $(wc -l <first) = 2 ] || exec sleep 12",
                 absl::StrCat(kWritesSecond, "[ $n = 2 ] || kill -KILL $$")}),
            0);
  EXPECT_EQ(Contents("first"), "a\na\n");
}

TEST_F(SupervisorTest, SaysIfMemoryHasRunOut) {
  SupervisorOptions options =
      Options({"echo oom_kill 8 >proc/vmstat; kill -KILL $$"},
              RankFaultAction::kDetect);
  options.root = directory_.path();
  std::filesystem::create_directory(directory_.path() + "/proc");
  std::ofstream(directory_.path() + "/proc/vmstat") << "oom_kill 7\n";
  testing::internal::CaptureStderr();
  EXPECT_EQ(Run(options), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("process 0 was killed by signal 9; the kernel killed a "
                        "process of this machine for lack of memory"));
  // No other process has been killed for lack of memory since.
  testing::internal::CaptureStderr();
  EXPECT_EQ(Run(options), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("process 0 was killed by signal 9"),
                    Not(HasSubstr("memory"))));
}

TEST_F(SupervisorTest, WrongUsageIsNotTriedAgain) {
  EXPECT_EQ(Run({"exit 1", "exit 2"}), 2);
  EXPECT_EQ(starts_, 1);
}

TEST_F(SupervisorTest, AfterFourStartsWithoutProgressItGivesUp) {
  EXPECT_EQ(RunHastily({"exit 1"}), kGaveUpExitCode);
  EXPECT_EQ(starts_, 1 + RestartBudget::kMost);
}

// For example, there is no free port for a moment.
TEST_F(SupervisorTest, AStartThatFailsIsTriedAgain) {
  SupervisorOptions options = Options(
      {"echo a >>first; [ $(wc -l <first) = 2 ]"}, RankFaultAction::kAct);
  int calls = 0;
  options.commands = [&, start = options.commands]()
      -> absl::StatusOr<std::vector<std::vector<std::string>>> {
    if (++calls == 2) return absl::UnavailableError("no free port");
    return start();
  };
  EXPECT_EQ(Run(Hasty(options)), 0);
  EXPECT_EQ(calls, 3);
}

TEST_F(SupervisorTest, GivesUpIfStartsFailAgainAndAgain) {
  SupervisorOptions options =
      Options({"echo a >>first; exit 1", "exit 1"}, RankFaultAction::kAct);
  int calls = 0;
  options.commands = [&, start = options.commands]()
      -> absl::StatusOr<std::vector<std::vector<std::string>>> {
    if (++calls > 1) return absl::UnavailableError("no free port");
    return start();
  };
  EXPECT_EQ(Run(Hasty(options)), kGaveUpExitCode);
  EXPECT_EQ(calls, 1 + RestartBudget::kMost);
  EXPECT_EQ(Contents("first"), "a\na\n") << "process 0 tells the coordinator";
}

TEST_F(SupervisorTest, TheFirstStartMustSucceed) {
  SupervisorOptions options = Options({"exit 0"}, RankFaultAction::kAct);
  options.commands = [] { return absl::UnavailableError("no free port"); };
  EXPECT_THAT(Supervise(options).status(), IsUnavailable());
}

// The second process of the second start finds no free file descriptors.
TEST_F(SupervisorTest, TheProcessesOfAStartThatFailsAreEnded) {
  SupervisorOptions options = Options({"", ""}, RankFaultAction::kAct);
  rlimit usual;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  options.commands = [&] {
    const int first = dup(STDERR_FILENO);
    const int second = dup(STDERR_FILENO);
    close(first);
    close(second);
    rlimit limit = usual;
    // A process needs both of them to start, and keeps one.
    if (++starts_ == 2) limit.rlim_cur = static_cast<rlim_t>(second) + 1;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const std::vector<std::string> scripts = {"exit 1", "exec sleep 1000",
                                              "exit 0"};
    return std::vector<std::vector<std::string>>(
        2, {"/bin/sh", "-c", scripts[starts_ - 1]});
  };
  EXPECT_EQ(Run(Hasty(options)), 0);
  EXPECT_EQ(starts_, 3);
}

// Only ABegunStepIsNoProgress runs it, in processes of their own: a rank that
// dies in its step, or right after it.
TEST(RankTest, DISABLED_DiesInAStep) {
  ASSERT_OK(OpenRankStamps(SteadyWallClock()));
  LocalRendezvous rendezvous;
  Orders orders(std::move(LocalCommunicators(1, &rendezvous)[0]),
                absl::Seconds(1));
  const Order order = {
      .what = Order::What::kStep,
      .run_step = static_cast<uint64_t>(std::atoi(std::getenv("STEP")))};
  EXPECT_OK(orders.Lead(order, [&] {
    if (std::getenv("COMPLETES") == nullptr) _exit(1);
    StampStep(0, order.run_step);
    return absl::OkStatus();
  }));
  _exit(1);
}

// The other islands move on meanwhile, so each start begins a later step.
TEST_F(SupervisorTest, ABegunStepIsNoProgress) {
  constexpr int kEnough = 10;
  SupervisorOptions options = Hasty(Options({""}, RankFaultAction::kAct));
  options.commands = [&] {
    setenv("STEP", absl::StrCat(100 * ++starts_).c_str(), 1);
    return starts_ == kEnough
               ? std::vector<std::vector<std::string>>{{"/bin/sh", "-c", ""}}
               : std::vector<std::vector<std::string>>{
                     {"/proc/self/exe", "--gtest_also_run_disabled_tests",
                      "--gtest_filter=RankTest.DISABLED_DiesInAStep"}};
  };
  EXPECT_EQ(Run(options), kGaveUpExitCode);
  EXPECT_EQ(starts_, 1 + RestartBudget::kMost);
  starts_ = 0;
  setenv("COMPLETES", "1", 1);
  EXPECT_EQ(Run(options), 0);
  EXPECT_EQ(starts_, kEnough);
  unsetenv("COMPLETES");
}

// For example, another host is gone for hours.
TEST_F(SupervisorTest, AnIslandWaitsForOtherHostsWithoutALimit) {
  SupervisorOptions options =
      Options({absl::StrCat("until [ -e stamped ]; do sleep 0.01; done; "
                            "rm stamped; echo a >>first; "
                            "[ $(wc -l <first) -le ",
                            RestartBudget::kMost,
                            " ] || (sleep 0.1; kill -TERM $PPID) & exit 1")},
              RankFaultAction::kAct);
  options.island_size = 2;
  std::unique_ptr<RankStampPage> page;
  options.all_is_well = [&](bool) {
    if (page == nullptr) {
      page = *RankStampPage::Open(getenv(kRankStampsVariable));
    }
    if (page->others_missing().exchange(true)) return;
    std::ofstream(directory_.path() + "/stamped");
  };
  EXPECT_EQ(Run(options), 75);
  EXPECT_EQ(starts_, 1 + RestartBudget::kMost);
}

// Process 0 is started once more, alone, to tell the coordinator.
TEST_F(SupervisorTest, TellsTheCoordinatorThatItGivesUp) {
  EXPECT_EQ(RunHastily({"echo a >>first; exit 1", "echo b >>second; exit 1"}),
            kGaveUpExitCode);
  EXPECT_EQ(Contents("first"), "a\na\na\na\na\n");
  EXPECT_EQ(Contents("second"), "b\nb\nb\nb\n");
}

// Each later start takes the verdict and ends before reporting it.
TEST_F(SupervisorTest, AVerdictThatWasNotReportedIsRepeated) {
  SupervisorOptions options =
      Options({"echo $$ >pid; until [ -e stamped ]; do sleep 0.01; done; "
               "kill -KILL $$"},
              RankFaultAction::kAct);
  std::unique_ptr<RankStampPage> page;
  std::vector<bool> verdicts;
  options.commands = [&, start = options.commands] {
    page = *RankStampPage::Open(getenv(kRankStampsVariable));
    verdicts.push_back(page->TakeVerdict().has_value());
    return start();
  };
  options.all_is_well = [&](bool) {
    uint32_t pid = 0;
    if (starts_ > 1 || !(std::ifstream(directory_.path() + "/pid") >> pid)) {
      return;
    }
    page->rank(0).process = pid;
    std::ofstream(directory_.path() + "/stamped");
  };
  EXPECT_EQ(Run(Hasty(options)), kGaveUpExitCode);
  EXPECT_THAT(verdicts, ElementsAre(false, true, true, true));
}

TEST_F(SupervisorTest, AnIslandThatComputesWrongNumbersIsNotStartedAgain) {
  EXPECT_EQ(Run({absl::StrCat("exit ", kGaveUpExitCode), "exit 1"}),
            kGaveUpExitCode);
  EXPECT_EQ(starts_, 1);
}

TEST_F(SupervisorTest, ASpareOfAnIslandThatHasEndedIsNotStartedAgain) {
  SupervisorOptions options =
      Options({absl::StrCat("exit ", kGaveUpExitCode)}, RankFaultAction::kAct);
  options.has_spares = true;
  options.first_process = 2;
  options.island_size = 2;
  EXPECT_EQ(Run(options), kGaveUpExitCode);
  EXPECT_EQ(starts_, 1);
}

TEST_F(SupervisorTest, AProcessThatTheIslandDoesNotNeedIsStartedAgainAlone) {
  SupervisorOptions options =
      Options({"echo a >>first; until [ -e again ]; do sleep 0.01; done",
               "echo b >>second; [ $(wc -l <second) = 1 ] || touch again; "
               "exit 1"},
              RankFaultAction::kAct);
  options.has_spares = true;
  EXPECT_EQ(Run(options), 0);
  EXPECT_EQ(Contents("first"), "a\n");
  EXPECT_EQ(Contents("second"), "b\nb\n");
}

TEST_F(SupervisorTest, AProcessThatIsTriedAgainAloneEndsWithASignal) {
  // The signal comes before the next start, or on a slow machine after it.
  SupervisorOptions options =
      Options({"trap 'exit 75' TERM; [ ! -e tried ] || while :; do sleep 0.05; "
               "done; touch tried; (sleep 0.1; kill -TERM $PPID) & exit 1"},
              RankFaultAction::kAct);
  options.first_process = 3;
  options.island_size = 2;
  options.has_spares = true;
  EXPECT_EQ(Run(options), 75);
  EXPECT_EQ(starts_, 1);
}

// This holds on the host of process 0, and on another one.
TEST_F(SupervisorTest, SparesAreNotAwaitedIfARankIsLost) {
  for (const int first : {0, 3}) {
    for (const char* file : {"again", "pids", "stamped"}) {
      std::filesystem::remove(directory_.path() + "/" + file);
    }
    starts_ = 0;
    const std::string may_begin = "[ ! -e again ] || exit 0; ";
    std::vector<std::string> scripts = {
        absl::StrCat(may_begin, kSaysPid, "touch again; kill -KILL $$"),
        absl::StrCat(may_begin, WritesLate("waited"))};
    if (first == 0) {
      scripts.insert(scripts.begin(),
                     absl::StrCat(may_begin, WritesLate("waited")));
    }
    SupervisorOptions options =
        WithRanks(Options(scripts, RankFaultAction::kAct), 1);
    options.has_spares = true;
    options.first_process = first;
    options.island_size = first == 0 ? 2 : 4;
    EXPECT_EQ(Run(options), 0);
    EXPECT_EQ(starts_, 2);
    EXPECT_FALSE(Exists("waited"));
  }
}

// The rank's report may say which rank was at fault, so the end of the spare
// does not end that rank.
TEST_F(SupervisorTest, ARankMayReportAFaultAfterTheSparesHaveEnded) {
  SupervisorOptions options = WithRanks(
      Options(
          {absl::StrCat("[ ! -e again ] || exit 0; ", kSaysPid, "exit 1"),
           absl::StrCat("[ ! -e again ] || exit 0; ", kSaysPid,
                        "sleep 0.5; touch again; exit 1"),
           absl::StrCat("[ ! -e again ] || exit 0; ", WritesLate("waited"))},
          RankFaultAction::kAct),
      2);
  options.has_spares = true;
  options.island_size = 2;
  EXPECT_EQ(Run(options), 0);
  EXPECT_TRUE(Exists("again"));
  EXPECT_FALSE(Exists("waited"));
  EXPECT_EQ(starts_, 2);
}

// Process 0 hands in its training, and writes a checkpoint.
TEST_F(SupervisorTest, Process0MayContinueAfterOthersHaveEndedInOrder) {
  const std::string waits = "while :; do sleep 0.05; done";
  SupervisorOptions signalled = Options(
      {absl::StrCat("trap '", WritesLate("handed_in"), "exit 75' TERM; ",
                    "touch ready; ", waits),
       absl::StrCat("trap 'exit 75' TERM; until [ -e ready ]; do sleep 0.01; "
                    "done; kill -TERM $PPID; ",
                    waits)},
      RankFaultAction::kAct);
  signalled.has_spares = true;
  signalled.now = FastClock();
  EXPECT_EQ(Run(signalled), 75);
  EXPECT_TRUE(Exists("handed_in"));

  SupervisorOptions finished =
      Options({WritesLate("saved"), "exit 0"}, RankFaultAction::kAct);
  finished.now = FastClock();
  EXPECT_EQ(Run(finished), 0);
  EXPECT_TRUE(Exists("saved"));
  EXPECT_EQ(starts_, 2) << "one for each";
}

TEST_F(SupervisorTest, TheOthersEndSoonAfterProcess0) {
  SupervisorOptions options = Options(
      {"exit 0", "while :; do sleep 0.05; done"}, RankFaultAction::kAct);
  options.now = FastClock();
  EXPECT_EQ(Run(options), 0);
}

TEST_F(SupervisorTest, TheFirstProcessIsAlwaysNeeded) {
  SupervisorOptions options =
      Options({"[ -e again ] || { touch again; exit 1; }", "exit 0"},
              RankFaultAction::kAct);
  options.has_spares = true;
  EXPECT_EQ(Run(options), 0);
  EXPECT_EQ(starts_, 2);
}

TEST_F(SupervisorTest, TheFirstProcessIsNotNeededIfAnotherOneSucceedsIt) {
  SupervisorOptions options =
      Options({"echo a >>first; [ $(wc -l <first) = 1 ] || touch again; exit 1",
               "echo b >>second; until [ -e again ]; do sleep 0.01; done"},
              RankFaultAction::kAct);
  options.has_spares = true;
  options.has_successors = true;
  EXPECT_EQ(Run(options), 0);
  EXPECT_EQ(Contents("first"), "a\na\n");
  EXPECT_EQ(Contents("second"), "b\n");
}

TEST_F(SupervisorTest, ASignalIsPassedOnAndEndsIt) {
  const std::string leaves = "while :; do sleep 0.05; done";
  EXPECT_EQ(Run({absl::StrCat("trap 'echo left >first; exit 75' TERM; ",
                              "touch ready; ", leaves),
                 absl::StrCat("trap 'echo left >second; exit 75' TERM; ",
                              "until [ -e ready ]; do sleep 0.01; done; ",
                              "kill -TERM $PPID; ", leaves)}),
            75);
  EXPECT_EQ(Contents("first"), "left\n");
  EXPECT_EQ(Contents("second"), "left\n");
  EXPECT_EQ(starts_, 1);
}

}  // namespace
}  // namespace causeway
