// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/daemon.h"

#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/os/file.h"
#include "common/trace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(int, number, 7, "A number.");
ABSL_FLAG(bool, yes, false, "A choice.");

namespace causeway {
namespace {

// Starts the daemon in this process, which must be a child that ends.
void Start(std::vector<std::string> words) {
  words.insert(words.begin(), "/bin/causeway-test");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  StartDaemon(static_cast<int>(argv.size()), argv.data(), "Tests.",
              "daemon_test.cc");
}

TEST(DaemonDeathTest, MistakesInFlagsExitWithTheCodeOfUsageErrors) {
  const auto exits = testing::ExitedWithCode(2);
  EXPECT_EXIT(Start({"--nubmer", "1"}), exits,
              "^causeway-test: there is no flag --nubmer; see --help\n$");
  EXPECT_EXIT(Start({"--number=x"}), exits, "--number is \"x\"");
  EXPECT_EXIT(Start({"--number", "x"}), exits, "--number is \"x\"");
  EXPECT_EXIT(Start({"--number"}), exits, "--number needs a value");
  EXPECT_EXIT(Start({"--yes=perhaps"}), exits, "--yes is \"perhaps\"");
  EXPECT_EXIT(Start({"--yes", "word"}), exits,
              "^causeway-test: unknown argument \"word\"; see --help\n$");
  EXPECT_EXIT(Start({"-"}), exits, "unknown argument \"-\"");
  EXPECT_EXIT(Start({"--", "--nubmer"}), exits,
              "unknown argument \"--nubmer\"");
  EXPECT_EXIT(Start({"--number=8", "--help"}), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(Start({"--", "--help"}), exits, "unknown argument \"--help\"");
}

TEST(DaemonDeathTest, ATerminalThatClosesEndsADaemonUnlessNohupIsThere) {
  const auto start_and_hang_up = [](sighandler_t before) {
    signal(SIGHUP, before);
    Start({});
    raise(SIGHUP);
    std::exit(AwaitTerminationSignal(absl::ZeroDuration()));
  };
  EXPECT_EXIT(start_and_hang_up(SIG_DFL), testing::ExitedWithCode(SIGHUP), "");
  EXPECT_EXIT(start_and_hang_up(SIG_IGN), testing::ExitedWithCode(0), "");
}

TEST(DaemonDeathTest, TheTraceIsCompleteAtTheEnd) {
  const std::string path = testing::TempDir() + "/trace";
  EXPECT_EXIT(
      {
        Start({"--trace", path});
        { const TraceSpan span("work"); }
        std::exit(ExitCode("x", absl::OkStatus()));
      },
      testing::ExitedWithCode(0), "");
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(text, testing::HasSubstr(R"("args":{"name":"causeway-test"})"));
  EXPECT_THAT(text, testing::HasSubstr(R"({"name":"work","ph":"X")"));
  EXPECT_EXIT(Start({"--trace", "/missing/x"}), testing::ExitedWithCode(2),
              "--trace: cannot write /missing/x");
}

TEST(DaemonDeathTest, LimitsAreExplained) {
  const std::function<void()> fail = [] { throw std::bad_alloc(); };
  const auto run_out_of_memory = [&]() noexcept {
    Start({});
    fail();
  };
  EXPECT_EXIT(run_out_of_memory(), testing::ExitedWithCode(1),
              "there is no more memory");
  const auto run_out_of_threads = []() noexcept {
    Start({});
    const rlimit tiny = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    setrlimit(RLIMIT_AS, &tiny);
    std::thread([] {}).join();
  };
  EXPECT_EXIT(run_out_of_threads(), testing::ExitedWithCode(1),
              "starts no more threads(.|\n)*"
              "of the 1 MiB of address space that ulimit -v allows");
  const auto abort_for_lack_of_memory = [] {
    Start({});
    const rlimit tiny = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    setrlimit(RLIMIT_AS, &tiny);
    std::abort();
  };
  EXPECT_EXIT(abort_for_lack_of_memory(), testing::KilledBySignal(SIGABRT),
              "of the 1 MiB of address space that ulimit -v allows");
}

TEST(DaemonDeathTest, AMappedFileThatBecomesShorterIsExplained) {
  const std::string path = testing::TempDir() + "/mapped";
  std::ofstream(path) << "text";
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EXIT(
      {
        Start({});
        std::ofstream shorter(path, std::ios::trunc);
        std::exit(file->bytes()[0]);
      },
      testing::KilledBySignal(SIGBUS), "was truncated");
}

TEST(DaemonDeathTest, TheLogIsJsonOnRequest) {
  EXPECT_EXIT(Start({"--log_format=xml"}), testing::ExitedWithCode(2),
              "--log_format is \"xml\"; text and json are allowed");
  EXPECT_EXIT(
      {
        Start({"--log_format=json"});
        std::exit(ExitCode("test", absl::UnknownError("no \"luck\"")));
      },
      testing::ExitedWithCode(1),
      "^\\{[^\n]*\"ERROR\"[^\n]*\"no \\\\\"luck\\\\\"\"\\}\n$");
  EXPECT_EXIT(std::exit(ExitCode("test", absl::UnknownError("no luck"))),
              testing::ExitedWithCode(1), "^test: no luck\n$");
}

TEST(DaemonDeathTest, FlagsThatAreRightPass) {
  EXPECT_EXIT(
      {
        Start({"-number", "-3", "--yes", "--"});
        std::exit(absl::GetFlag(FLAGS_number) == -3 && absl::GetFlag(FLAGS_yes)
                      ? 0
                      : 3);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        Start({"--noyes"});
        std::exit(absl::GetFlag(FLAGS_yes) ? 3 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace causeway
