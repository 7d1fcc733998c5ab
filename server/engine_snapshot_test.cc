// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests when an engine makes snapshots, and that it restores a run after a kill
// or a power loss.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/os/file.h"
#include "common/os/thread_pool.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/buffer_pool.h"
#include "server/engine.h"
#include "server/fragment_merge.h"
#include "server/storage/state_directory.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Gt;
using testing::Lt;
using testing::SizeIs;

namespace fs = std::filesystem;

class EngineSnapshotTest : public testing::Test {
 protected:
  // Starts a run of two islands; lossy formats give it a residual.
  void StartRun(const std::string& storage,
                const std::string& uplink_format = "INT4") {
    config_ = TestRunConfig(absl::StrCat(
        "training { total_steps: 1000 } outer_optimizer { merge: "
        "RADIAL_DIRECTIONAL } synchronization { downlink_format: INT4 "
        "uplink_format: ",
        uplink_format, " } storage { ", storage, " }"));
    ASSERT_OK(run_.Start(config_));
    islands_.clear();
    for (const char* const name : {"a", "b"}) {
      ASSERT_OK_AND_ASSIGN(islands_.emplace_back(), run_.Join(name));
    }
  }

  // Makes rounds of fragment 0 up to version `last`.
  void RunRounds(uint64_t last) {
    for (uint64_t version = run_.Head(0).version(); version < last; ++version) {
      ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                           run_.Fetch(islands_[0], 0, version));
      for (const v1::IslandIdentity& island : islands_) {
        const float amount = island.island_id() == "a" ? 0.01f : -0.02f;
        ASSERT_OK(run_.Contribute(run_.MakeContribution(
            island, 0, version, anchor, Shifted(anchor, amount))));
      }
      ASSERT_TRUE(run_.AwaitVersion(0, version + 1));
    }
  }

  // Copies the state directory as a SIGKILL at this moment would leave it.
  void Kill() {
    killed_ = run_.state_dir() + "-killed";
    std::error_code error;
    // A file may go while the directory is copied.
    do {
      fs::remove_all(killed_);
      fs::copy(run_.state_dir(), killed_, fs::copy_options::recursive, error);
    } while (error == std::errc::no_such_file_or_directory);
    ASSERT_FALSE(error) << error.message();
  }
  absl::StatusOr<std::unique_ptr<Engine>> StartKilled() {
    // In files, repeated merges have the same bits.
    return Engine::Start({.state_dir = killed_,
                          .config = config_,
                          .now = [] { return absl::UnixEpoch(); },
                          .evictable_state = true});
  }
  // Expects that an engine on the copy has the run's newest version and its
  // updates.
  void ExpectWhole() {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, StartKilled());
    EXPECT_EQ(engine->ListFragments().fragments(0).head().DebugString(),
              run_.Head(0).DebugString());
    for (uint64_t from = 0; from < run_.Head(0).version(); ++from) {
      SCOPED_TRACE(from);
      v1::FetchUpdateRequest request;
      *request.mutable_identity() = islands_[0];
      request.set_from_version(from);
      ASSERT_OK_AND_ASSIGN(const OpenedUpdate restored,
                           engine->OpenUpdate(request));
      ASSERT_OK_AND_ASSIGN(const OpenedUpdate lost,
                           run_.engine().OpenUpdate(request));
      EXPECT_EQ(restored.response.DebugString(), lost.response.DebugString());
      EXPECT_TRUE(restored.bytes == lost.bytes);
    }
    v1::FetchParametersRequest request;
    *request.mutable_identity() = islands_[0];
    request.set_version(run_.Head(0).version());
    ASSERT_OK_AND_ASSIGN(const OpenedParameters restored,
                         engine->OpenParameters(request));
    ASSERT_OK_AND_ASSIGN(const OpenedParameters lost,
                         run_.engine().OpenParameters(request));
    EXPECT_TRUE(restored.bytes == lost.bytes);
  }

  static std::string Name(const std::string& kind, uint64_t version) {
    return absl::StrFormat("%s-0000-v%08u.safetensors", kind, version);
  }
  static void Damage(const std::string& path) {
    ASSERT_OK_AND_ASSIGN(std::string bytes, ReadFile(path));
    bytes[bytes.size() / 2] ^= 1;
    ASSERT_OK(WriteFileAtomically(path, {absl::string_view(bytes)}));
  }
  // The files of fragment 0.
  std::vector<std::string> Files(const std::string& folder) const {
    std::vector<std::string> files;
    const std::vector<std::string> names =
        ListDirectory(absl::StrCat(run_.state_dir(), "/", folder)).value();
    for (const std::string& name : names) {
      if (name.find("-0000-") != std::string::npos) files.push_back(name);
    }
    return files;
  }

  v1::RunConfig config_;
  EngineDriver run_;
  std::vector<v1::IslandIdentity> islands_;
  std::string killed_;
};

TEST_F(EngineSnapshotTest, AfterAKillTheMergesSinceTheSnapshotAreRepeated) {
  StartRun("snapshot_log_ratio: 1000");
  RunRounds(5);
  EXPECT_THAT(Files("fragments"), ElementsAre(Name("fragment", 0)));
  EXPECT_THAT(Files("merges"), SizeIs(5));
  Kill();
  ExpectWhole();
}

TEST_F(EngineSnapshotTest, TheGradientIsRecordedWhereItTakesFarFewerBytes) {
  StartRun("snapshot_log_ratio: 1000", "FP32");
  RunRounds(1);
  ASSERT_OK_AND_ASSIGN(islands_.emplace_back(), run_.Join("c"));
  // It takes part from the second round after its join on.
  RunRounds(4);
  const uint64_t one = run_.Fetch(islands_[0], 0, 4)->size() * sizeof(float);
  const auto record_bytes = [&](uint64_t version) {
    return fs::file_size(run_.state_dir() + "/merges/" +
                         Name("merge", version));
  };
  EXPECT_GT(record_bytes(2), 2 * one);
  // It is compressed.
  EXPECT_THAT(record_bytes(3), AllOf(Gt(one / 4), Lt(one)));
  EXPECT_THAT(record_bytes(4), AllOf(Gt(one / 4), Lt(one)));
  Kill();
  ExpectWhole();
  Kill();
  Damage(killed_ + "/merges/" + Name("merge", 3));
  EXPECT_THAT(StartKilled().status(), IsDataLoss(Name("merge", 3)));
}

// Updates are not synced before the commit, or are written only after it.
TEST_F(EngineSnapshotTest, UpdatesThatAPowerLossToreAreMadeAgain) {
  StartRun("snapshot_log_ratio: 1000 update_history: 3");
  RunRounds(5);
  const std::string newest = run_.state_dir() + "/updates/" + Name("update", 5);
  ASSERT_TRUE(run_.Await([&] { return fs::exists(newest); }));
  Kill();
  fs::remove(killed_ + "/updates/" + Name("update", 3));
  fs::resize_file(killed_ + "/updates/" + Name("update", 4), 0);
  Damage(killed_ + "/updates/" + Name("update", 5));
  ExpectWhole();
  EXPECT_THAT(ListDirectory(killed_ + "/updates"), IsOkAndHolds(SizeIs(3)));
}

TEST_F(EngineSnapshotTest, TheSnapshotBeforeReplacesADamagedOne) {
  StartRun("snapshot_log_ratio: 1000");
  RunRounds(3);
  StartRun("snapshot_log_ratio: 1000");
  RunRounds(5);
  EXPECT_THAT(Files("fragments"),
              ElementsAre(Name("fragment", 0), Name("fragment", 3)));
  Kill();
  Damage(killed_ + "/fragments/" + Name("fragment", 3));
  ExpectWhole();
  Kill();
  for (const uint64_t version : {0, 3}) {
    Damage(killed_ + "/fragments/" + Name("fragment", version));
  }
  EXPECT_THAT(StartKilled().status(), IsDataLoss(Name("fragment", 3)));
}

TEST_F(EngineSnapshotTest, ADamagedRecordThatIsNeededIsNamed) {
  StartRun("snapshot_log_ratio: 1000");
  RunRounds(3);
  Kill();
  Damage(killed_ + "/merges/" + Name("merge", 2));
  EXPECT_THAT(StartKilled().status(), IsDataLoss(Name("merge", 2)));
  fs::remove(killed_ + "/merges/" + Name("merge", 2));
  EXPECT_THAT(StartKilled().status(), IsDataLoss(killed_, Name("merge", 2)));
  // The record of another merge is refused, too.
  fs::copy(killed_ + "/merges/" + Name("merge", 1),
           killed_ + "/merges/" + Name("merge", 2));
  EXPECT_THAT(StartKilled().status(), IsDataLoss());
}

TEST_F(EngineSnapshotTest, OnlyBesideACoordinatorIsAMissingRecordAwaited) {
  StartRun("snapshot_log_ratio: 1000");
  RunRounds(3);
  Kill();
  fs::remove(killed_ + "/merges/" + Name("merge", 2));
  // Returns how often the merge before the missing one was repeated.
  const auto repeats = [](StateDirectory& state) {
    int repeated = 0;
    BufferPool memory(0);
    ThreadPool pool(1);
    EXPECT_THAT(
        RestoreHead(state, state.log().LoadRun().value(), 0, memory, pool,
                    [&](const CommitRecord&, const MergedFragment&) {
                      ++repeated;
                      return absl::OkStatus();
                    })
            .status(),
        IsDataLoss(Name("merge", 2)));
    return repeated;
  };
  {
    ASSERT_OK_AND_ASSIGN(const auto held, StateDirectory::Open(killed_, {}));
    EXPECT_EQ(repeats(*held), 1);
  }
  ASSERT_OK_AND_ASSIGN(const auto read, StateDirectory::OpenReadOnly(killed_));
  EXPECT_GT(repeats(*read), 1);
}

TEST_F(EngineSnapshotTest, ACleanEndLeavesNothingToRepeat) {
  StartRun("snapshot_log_ratio: 1000");
  RunRounds(2);
  run_.Stop();
  EXPECT_THAT(Files("fragments"),
              ElementsAre(Name("fragment", 0), Name("fragment", 2)));
  fs::remove_all(run_.state_dir() + "/merges");
  EXPECT_OK(run_.Start(config_));
  EXPECT_EQ(run_.Head(0).version(), 2);
}

TEST_F(EngineSnapshotTest, RecordsMakeASnapshotDueAndGoWithIt) {
  // A record of two contributions of 4 bits has less than a tenth of a state of
  // 12 bytes a value, except for the small fragment's headers.
  StartRun("snapshot_log_ratio: 2");
  // Two snapshots are kept, so the second one lets version 0 go.
  uint64_t version = 0;
  while (Files("fragments").front() == Name("fragment", 0)) {
    ASSERT_LT(++version, 100) << "no second snapshot";
    RunRounds(version);
  }
  // The writing thread removes the records last.
  ASSERT_TRUE(run_.Await([&] {
    const std::string oldest = Files("fragments").front();
    return Files("fragments").size() == 2 &&
           Files("merges").front() > "merge" + oldest.substr(8);
  }));
  Kill();
  ExpectWhole();
}

TEST_F(EngineSnapshotTest, ASnapshotThatFailsIsTriedAgainAfterTheNextCommit) {
  StartRun("snapshot_log_ratio: 0");
  const std::string folder = run_.state_dir() + "/fragments";
  fs::rename(folder, folder + "-away");
  RunRounds(3);
  EXPECT_THAT(Files("merges"), SizeIs(3));
  fs::rename(folder + "-away", folder);
  RunRounds(4);
  EXPECT_TRUE(run_.Await(
      [&] { return Files("fragments").back() == Name("fragment", 4); }));
}

}  // namespace
}  // namespace causeway
