// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Kills a coordinator at the calls that change its files (crash_points.cc), and
// restarts it on the files that a dead process or a power loss leaves. Its
// islands live on. Because contributions do not depend on time here, a run with
// crashes must have the same bits as one without.
//
// Covers a sample of the calls by default, and every one with
//   bazel test //tests/crash:crash_test --test_arg=--every_point
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/state_directory.h"
#include "tests/end_to_end/process_test_fixture.h"

ABSL_FLAG(bool, every_point, false, "Crash at every call, not at a sample.");

namespace causeway {
namespace {

constexpr uint32_t kFragments = 2;
constexpr uint64_t kSteps = 120;

// Both islands are part of every round, however long one takes.
constexpr char kConfig[] = R"pb(
  name: "crashes"
  model {
    layers: 2
    hidden_size: 16
    intermediate_size: 32
    heads: 2
    sequence_length: 16
  }
  training { total_steps: 120 batch_size: 2 learning_rate: 5e-3 }
  synchronization { inner_steps_per_round: 5 fragments: 2 }
  storage { snapshot_log_ratio: 0.5 }
  membership {
    min_islands: 2
    quorum: 2
    grace_seconds: 3600
    lease_seconds: 600
    heartbeat_seconds: 0.2
  }
)pb";

// The losses at a crash.
enum class Loss {
  // Only the process.
  kProcess,
  // The process and everything that was not synced.
  kUnsynced,
  // The process and unsynced contents, but no names.
  kUnsyncedContents,
};
constexpr Loss kLosses[] = {Loss::kProcess, Loss::kUnsynced,
                            Loss::kUnsyncedContents};

// One version of a fragment and the contributions merged into it.
struct Version {
  uint64_t version = 0;
  std::string digest;
  std::vector<std::string> contributions;

  bool operator==(const Version&) const = default;
};

void PrintTo(const Version& version, std::ostream* out) {
  *out << "version " << version.version << " of " << version.digest;
  for (const std::string& line : version.contributions) *out << "; " << line;
}

class CrashTest : public ProcessTestFixture {
 protected:
  void SetUp() override { Write("run.textproto", kConfig); }

  // Starts a coordinator that dies at call number `crash_at` (0: none) with
  // `loss`.
  std::unique_ptr<Process> Coordinator(int port, uint64_t crash_at,
                                       Loss loss = Loss::kProcess) {
    const std::string state = Path("state");
    std::filesystem::create_directory(state);
    std::filesystem::remove_all(Path("shadow"));
    std::filesystem::remove(Path("port"));
    std::vector<std::string> command;
    if (crash_at > 0) {
      command = {"/usr/bin/env",
                 absl::StrCat("LD_PRELOAD=",
                              ProgramPath("tests/crash/libcrash_points.so")),
                 absl::StrCat("CAUSEWAY_CRASH_ROOT=", state),
                 absl::StrCat("CAUSEWAY_CRASH_AT=", crash_at)};
      if (loss != Loss::kProcess) {
        command.push_back(
            absl::StrCat("CAUSEWAY_CRASH_SHADOW=", Path("shadow")));
      }
      if (loss == Loss::kUnsyncedContents) {
        command.push_back("CAUSEWAY_CRASH_ENTRIES=1");
      }
    }
    const std::vector<std::string> coordinator =
        CoordinatorCommand(port, "state", {"--merge_threads=1"});
    command.insert(command.end(), coordinator.begin(), coordinator.end());
    // Each coordinator has its own log, which shows its own announcements.
    const std::string name = absl::StrCat("coordinator-", ++coordinators_);
    log_ = Path(absl::StrCat(name, ".log"));
    return Start(name, std::move(command));
  }

  // Turns the state directory, after a crash, into what the disk would hold.
  void LosePower() {
    std::filesystem::remove_all(Path("state"));
    std::filesystem::rename(Path("shadow/tree"), Path("state"));
  }

  std::unique_ptr<Process> Worker(const std::string& island, int port) {
    // A process adds to its log, which may have an earlier run's output.
    std::filesystem::remove(Path(absl::StrCat(island, ".log")));
    return Start(island, WorkerCommand(island, port));
  }

  // Returns the state directory's history of a fragment, oldest version first.
  std::vector<Version> History(uint32_t fragment) const {
    const auto state = StateDirectory::OpenReadOnly(Path("state"));
    EXPECT_OK(state.status());
    if (!state.ok()) return {};
    const auto commits = (*state)->log().History(fragment, 1000);
    EXPECT_OK(commits.status());
    if (!commits.ok()) return {};
    std::vector<Version> history;
    for (const CommitRecord& commit : *commits) {
      const uint64_t number = commit.head.version();
      Version version{.version = number,
                      .digest = absl::BytesToHexString(commit.head.digest())};
      if (number > 0) {
        const auto merged =
            (*state)->log().MergedContributions(fragment, number - 1);
        EXPECT_OK(merged.status());
        if (!merged.ok()) return {};
        for (const ContributionRecord& record : *merged) {
          version.contributions.push_back(absl::StrCat(
              record.island_id, " ", record.incarnation, " ", record.tokens,
              " tokens ", record.inner_steps, " steps weight ", record.weight,
              " ", absl::BytesToHexString(record.digest)));
        }
      }
      history.push_back(std::move(version));
    }
    std::reverse(history.begin(), history.end());
    return history;
  }

  // Runs without a crash and keeps the history of each fragment.
  void MakeReference() {
    const auto coordinator = Coordinator(0, 0);
    ASSERT_TRUE(coordinator->AwaitOutput("waiting for islands"));
    // They start in this order, because the first to join gets the first shard
    // of the data.
    const auto east = Worker("east", Port());
    ASSERT_TRUE(coordinator->AwaitOutput("island east joined"));
    const auto west = Worker("west", Port());
    ASSERT_EQ(coordinator->Wait(), 0) << coordinator->Output();
    ASSERT_EQ(east->Wait(), 0) << east->Output();
    ASSERT_EQ(west->Wait(), 0) << west->Output();
    for (uint32_t fragment = 0; fragment < kFragments; ++fragment) {
      reference_.push_back(History(fragment));
      ASSERT_GT(reference_.back().size(), kSteps / 5);
    }
    std::filesystem::remove_all(Path("state"));
  }

  // Expects the committed versions to be a beginning of the reference, and to
  // include all that the last coordinator announced.
  void ExpectCommittedPrefix() const {
    const std::string announced = FileText(log_);
    for (uint32_t fragment = 0; fragment < kFragments; ++fragment) {
      const std::vector<Version> history = History(fragment);
      const std::vector<Version>& reference = reference_[fragment];
      ASSERT_LE(history.size(), reference.size());
      ASSERT_EQ(history,
                std::vector<Version>(reference.begin(),
                                     reference.begin() + history.size()))
          << log_;
      EXPECT_THAT(
          announced,
          testing::Not(testing::HasSubstr(absl::StrCat(
              "fragment ", fragment, " is at version ", history.size(), ":"))))
          << "was announced, but is not there: " << log_;
    }
  }

  std::string log_;
  int coordinators_ = 0;
  std::vector<std::vector<Version>> reference_;
};

TEST_F(CrashTest, ARunIsMadeWholeOrNotAtAll) {
  const uint64_t stride = absl::GetFlag(FLAGS_every_point) ? 1 : 7;
  std::string digest;
  for (const Loss loss : kLosses) {
    bool crashed = true;
    for (uint64_t at = 1 + static_cast<uint64_t>(loss); crashed; at += stride) {
      std::filesystem::remove_all(Path("state"));
      {
        const auto coordinator = Coordinator(0, at, loss);
        if (coordinator->AwaitOutput("waiting for islands")) break;
        ASSERT_EQ(coordinator->Wait(), 128 + SIGKILL) << coordinator->Output();
      }
      if (loss != Loss::kProcess) LosePower();
      const auto coordinator = Coordinator(0, 0);
      ASSERT_TRUE(coordinator->AwaitOutput("waiting for islands"))
          << "after call " << at << ": " << coordinator->Output();
      const std::vector<Version> history = History(0);
      ASSERT_EQ(history.size(), 1);
      if (digest.empty()) digest = history[0].digest;
      EXPECT_EQ(history[0].digest, digest);
    }
  }
}

TEST_F(CrashTest, ARunWithCrashesComesToTheBitsOfOneWithout) {
  ASSERT_NO_FATAL_FAILURE(MakeReference());
  // The calls of a coordinator's life: its start, the islands that come back,
  // and some commits.
  constexpr uint64_t kPoints = 160;
  std::vector<uint64_t> points(kPoints);
  for (uint64_t i = 0; i < kPoints; ++i) points[i] = i + 1;
  std::mt19937_64 random(20261121);
  std::shuffle(points.begin(), points.end(), random);
  size_t next = 0;
  const size_t crashes = absl::GetFlag(FLAGS_every_point) ? 3 * kPoints : 18;
  size_t crashed = 0;
  // One run is too short to crash at all points.
  while (crashed < crashes) {
    std::filesystem::remove_all(Path("state"));
    auto coordinator = Coordinator(0, 0);
    ASSERT_TRUE(coordinator->AwaitOutput("waiting for islands"));
    const int port = Port();
    const auto east = Worker("east", port);
    ASSERT_TRUE(coordinator->AwaitOutput("island east joined"));
    const auto west = Worker("west", port);
    // An island that missed the answer would join again at another point of the
    // run.
    ASSERT_TRUE(east->AwaitOutput("joined run"));
    ASSERT_TRUE(west->AwaitOutput("joined run"));
    coordinator->End(SIGKILL);
    while (crashed < crashes) {
      const Loss loss = kLosses[next % 3];
      const uint64_t at = points[next / 3 % kPoints];
      ++next;
      coordinator = Coordinator(port, at, loss);
      const int code = coordinator->Wait();
      if (code == 0) break;
      ASSERT_EQ(code, 128 + SIGKILL) << coordinator->Output();
      ++crashed;
      if (loss != Loss::kProcess) LosePower();
      ASSERT_NO_FATAL_FAILURE(ExpectCommittedPrefix());
    }
    if (east->running() || west->running()) {
      coordinator = Coordinator(port, 0);
      EXPECT_EQ(coordinator->Wait(), 0) << coordinator->Output();
    }
    ExpectOk(*east, *west);
    for (uint32_t fragment = 0; fragment < kFragments; ++fragment) {
      EXPECT_EQ(History(fragment), reference_[fragment]);
    }
  }
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  return RUN_ALL_TESTS();
}
