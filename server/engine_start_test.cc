// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests what an engine checks and remembers when it takes up a run.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine.h"
#include "server/storage/sqlite.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::Property;

class EngineStartTest : public testing::Test {
 protected:
  // Runs `rounds` rounds of two islands and stops the engine.
  void RunRounds(uint64_t rounds) {
    ASSERT_OK(run_.Start(config_));
    for (const char* island : {"a", "b"}) ASSERT_OK(run_.Join(island));
    for (uint64_t version = 0; version < rounds; ++version) {
      for (const char* island : {"a", "b"}) {
        ASSERT_OK(Contribute(island, version, 0.01f));
      }
      ASSERT_TRUE(run_.AwaitVersion(0, version + 1));
    }
    run_.Stop();
  }

  // An island's process may join any number of times.
  absl::Status Contribute(const std::string& island, uint64_t version,
                          float amount) {
    const v1::IslandIdentity identity = run_.Join(island).value();
    const std::vector<float> anchor = run_.Fetch(identity, 0, version).value();
    return run_
        .Contribute(run_.MakeContribution(identity, 0, version, anchor,
                                          Shifted(anchor, amount)))
        .status();
  }

  std::string HeadFile(uint32_t fragment, uint64_t version) const {
    return absl::StrCat(run_.state_dir(), "/fragments/fragment-000", fragment,
                        "-v0000000", version, ".safetensors");
  }

  const v1::RunConfig config_ = TestRunConfig("training { total_steps: 80 }");
  EngineDriver run_;
};

TEST_F(EngineStartTest, ARunThatTheMachineHasNoRoomForIsNotBegun) {
  // 17.6 T parameters.
  const v1::RunConfig config = TestRunConfig(
      "model { layers: 1024 hidden_size: 32768 intermediate_size: 131072 }");
  EXPECT_THAT(run_.Start(config),
              IsResourceExhausted("TiB of disk space, but"));
  // Nothing of it is left.
  EXPECT_OK(run_.Start(config_));
}

// Without records, an earlier snapshot cannot replace a damaged head.
TEST_F(EngineStartTest, ADamagedHeadIsRefusedAndNamed) {
  RunRounds(1);
  std::filesystem::remove_all(run_.state_dir() + "/merges");
  for (const std::string& file : {HeadFile(0, 1), HeadFile(1, 0)}) {
    ASSERT_OK_AND_ASSIGN(const std::string sound, ReadFile(file));
    // The damage is once in the last tensor and once in the first.
    for (const size_t at : {sound.size() - 1, sound.size() / 2}) {
      std::string damaged = sound;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      ASSERT_OK(WriteFileAtomically(file, {absl::string_view(damaged)}));
      EXPECT_THAT(run_.TryStart(config_).status(), IsDataLoss(file));
    }
    ASSERT_OK(WriteFileAtomically(file, {absl::string_view(sound)}));
  }
  EXPECT_OK(run_.TryStart(config_).status());
}

TEST_F(EngineStartTest, AMissingHeadIsRefusedAndNamed) {
  RunRounds(1);
  std::filesystem::remove_all(run_.state_dir() + "/merges");
  ASSERT_OK(RemoveFile(HeadFile(0, 1)));
  EXPECT_THAT(run_.TryStart(config_).status(), IsDataLoss(HeadFile(0, 1)));
}

// Returns the contents of every file below a directory, except the lock and the
// files that SQLite removes when it closes a database.
std::map<std::string, std::string> Contents(const std::string& directory) {
  std::map<std::string, std::string> contents;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file() || entry.path().filename() == "lock") continue;
    contents[entry.path()] = ReadFile(entry.path()).value();
  }
  return contents;
}

TEST_F(EngineStartTest, AStartWithoutAllRowsOfCommitsRemovesNothing) {
  RunRounds(5);
  const std::string backup = run_.state_dir() + ".backup";
  std::filesystem::copy(run_.state_dir(), backup,
                        std::filesystem::copy_options::recursive);
  constexpr char kLacking[] = "lacks rows of the table commits. Restore it";
  const struct {
    const char* sql;
    const char* message;
  } losses[] = {
      {"DELETE FROM commits", kLacking},
      {"DELETE FROM commits WHERE fragment = 0", kLacking},
      {"DELETE FROM commits WHERE fragment = 1", kLacking},
      {"DELETE FROM commits WHERE version = 5", kLacking},
      {"DELETE FROM commits WHERE version = 2", kLacking},
      {"UPDATE commits SET fragment = 7 WHERE fragment = 1", kLacking},
      {"DELETE FROM round_sums", kLacking},
      {"DELETE FROM commits; DELETE FROM round_sums",
       "knows no version of fragment 0: it is older than"},
      {"DELETE FROM commits WHERE version > 3;"
       "UPDATE round_sums SET commits = 4 WHERE fragment = 0",
       "knows versions up to 3 only of fragment 0"},
  };
  for (const auto& loss : losses) {
    SCOPED_TRACE(loss.sql);
    std::filesystem::remove_all(run_.state_dir());
    std::filesystem::copy(backup, run_.state_dir(),
                          std::filesystem::copy_options::recursive);
    {
      ASSERT_OK_AND_ASSIGN(
          SqliteDatabase log,
          SqliteDatabase::Open(run_.state_dir() + "/run.sqlite3",
                               SqliteDatabase::Mode::kReadWriteCreate));
      ASSERT_OK(log.Execute(loss.sql));
      ASSERT_OK(log.Execute("PRAGMA wal_checkpoint(TRUNCATE)"));
    }
    const auto before = Contents(run_.state_dir());
    const absl::Status refused = run_.TryStart(config_).status();
    EXPECT_THAT(refused.message(), HasSubstr(loss.message)) << refused;
    EXPECT_THAT(refused.message(), HasSubstr("Nothing was changed"));
    EXPECT_EQ(Contents(run_.state_dir()), before);
  }
}

TEST_F(EngineStartTest, TokensThatCameLateAreNotCountedAsMerged) {
  // The round leaves out every contribution that it can spare, which is a's.
  const v1::RunConfig config = TestRunConfig(
      "training { total_steps: 80 } membership { drop_contributions: 1 }");
  ASSERT_OK(run_.Start(config));
  for (const char* island : {"a", "b"}) ASSERT_OK(run_.Join(island));
  for (const char* island : {"a", "b"}) {
    ASSERT_OK(Contribute(island, 0, 0.01f));
  }
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  ASSERT_EQ(run_.engine().ListFragments().fragments(0).ledger().merged(), 1000);
  const uint64_t merged = run_.engine().GetRun().tokens_merged();
  EXPECT_GT(merged, 0);
  ASSERT_OK(run_.Start(config));
  EXPECT_EQ(run_.engine().GetRun().tokens_merged(), merged);
  ASSERT_OK_AND_ASSIGN(SqliteDatabase log,
                       SqliteDatabase::Open(run_.state_dir() + "/run.sqlite3",
                                            SqliteDatabase::Mode::kReadOnly));
  EXPECT_THAT(log.QueryInt("SELECT sum(tokens) FROM contributions"
                           " WHERE fate = 'late'"),
              IsOkAndHolds(1000));
}

TEST_F(EngineStartTest, AFinishedRunSaysSoOnceWhateverWasLost) {
  const v1::RunConfig config = TestRunConfig("training { total_steps: 10 }");
  const auto ends = [&]() -> int64_t {
    SqliteDatabase log = SqliteDatabase::Open(run_.state_dir() + "/run.sqlite3",
                                              SqliteDatabase::Mode::kReadOnly)
                             .value();
    return log
        .QueryInt(
            "SELECT count(*) FROM events WHERE kind = "
            "'run_finished'")
        .value();
  };
  ASSERT_OK(run_.Start(config));
  ASSERT_OK(run_.Join("b"));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity a, run_.Join("a"));
  for (const uint32_t fragment : {0, 1}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                         run_.Fetch(a, fragment, 0));
    EXPECT_EQ(ends(), 0);
    for (const char* island : {"a", "b"}) {
      ASSERT_OK(run_.Contribute(run_.MakeContribution(
          run_.Join(island).value(), fragment, 0, anchor, anchor)));
    }
    ASSERT_TRUE(run_.AwaitVersion(fragment, 1));
  }
  EXPECT_EQ(run_.engine().GetRun().state(), v1::FINISHED);
  run_.Stop();
  EXPECT_EQ(ends(), 1);
  // A crash came between the last commit and its event.
  ASSERT_OK(
      run_.ExecuteInLog("DELETE FROM events WHERE kind = "
                        "'run_finished'"));
  for (int start = 0; start < 2; ++start) {
    ASSERT_OK(run_.Start(config));
    run_.Stop();
    EXPECT_EQ(ends(), 1);
  }
}

TEST_F(EngineStartTest, PartialContributionsAreToldApartAgain) {
  ASSERT_OK(run_.Start(config_));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity a, run_.Join("a"));
  ASSERT_OK(run_.Join("b"));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor, run_.Fetch(a, 0, 0));
  TestContribution partial =
      run_.MakeContribution(a, 0, 0, anchor, Shifted(anchor, 0.01f), 300);
  partial.header.set_partial(true);
  ASSERT_OK(run_.Contribute(partial));
  ASSERT_OK(Contribute("b", 0, 0.01f));
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  for (const bool restarted : {false, true}) {
    const v1::TokenLedger ledger =
        run_.engine().ListFragments().fragments(0).ledger();
    EXPECT_EQ(ledger.partial_merged(), 300) << restarted;
    EXPECT_EQ(ledger.merged(), 1000) << restarted;
    ASSERT_OK(run_.Start(config_));
  }
}

TEST_F(EngineStartTest, ARunContinuesWithTheConfigurationOfTheStart) {
  RunRounds(1);
  run_.AdvanceSeconds(1);
  v1::RunConfig changed = config_;
  changed.mutable_membership()->set_lease_seconds(2);
  changed.mutable_training()->set_learning_rate(0.5);
  // The second start changes nothing.
  for (int start = 0; start < 2; ++start) {
    ASSERT_OK(run_.Start(changed));
    const v1::RunStatus status = run_.engine().GetRun();
    EXPECT_EQ(status.config().membership().lease_seconds(), 2);
    EXPECT_THAT(status.attention(),
                Contains(Property(
                    &v1::Attention::text,
                    "a, b train by an earlier configuration: restart them")));
    ASSERT_OK_AND_ASSIGN(
        const std::vector<v1::Event> events,
        run_.engine().log().NewestEvents(0, 9, {.kinds = {"config_changed"}}));
    ASSERT_EQ(events.size(), 1);
    EXPECT_THAT(events[0].text(), HasSubstr("lease_seconds: 10 -> 2"));
    EXPECT_THAT(events[0].text(), HasSubstr("; islands that have joined"));
    EXPECT_THAT(events[0].text(), Not(HasSubstr("; modified")));
  }
  EXPECT_EQ(run_.engine().ListIslands(false).islands_size(), 2);
  run_.AdvanceSeconds(3);
  EXPECT_TRUE(run_.Await(
      [&] { return run_.engine().ListIslands(false).islands_size() == 0; }));
}

TEST_F(EngineStartTest, TheEventOfAChangeSaysWhatStays) {
  const auto event = [&](const v1::RunConfig& config) {
    EXPECT_OK(run_.Start(config));
    return run_.engine()
        .log()
        .NewestEvents(0, 1, {.kinds = {"config_changed"}})
        .value()
        .at(0)
        .text();
  };
  ASSERT_OK(run_.Start(config_));
  v1::RunConfig changed = config_;
  changed.mutable_membership()->set_grace_seconds(7);
  EXPECT_THAT(event(changed), Not(HasSubstr("islands that have joined")));
  changed.mutable_membership()->set_lease_seconds(2);
  EXPECT_THAT(event(changed), HasSubstr("; islands that have joined"));
  changed.mutable_membership()->set_heartbeat_seconds(0.5);
  EXPECT_THAT(event(changed), AllOf(HasSubstr("; islands that have joined"),
                                    Not(HasSubstr("fragments are sent"))));
  changed.mutable_synchronization()->set_overlap_steps(2);
  EXPECT_THAT(event(changed),
              HasSubstr("; fragments are sent at the same steps of a round as "
                        "before; islands that have joined"));
}

TEST_F(EngineStartTest, ARunDoesNotContinueWithFewerStepsThanItHasMerged) {
  RunRounds(2);
  v1::RunConfig shorter = config_;
  shorter.mutable_training()->set_total_steps(10);
  EXPECT_THAT(run_.Start(shorter),
              IsFailedPrecondition("total_steps is 10, which allows only 1"));
  shorter.mutable_training()->set_total_steps(20);
  EXPECT_OK(run_.Start(shorter));
}

TEST_F(EngineStartTest, ARunKeepsTheDefaultsThatItBeganWith) {
  v1::RunConfig config = config_;
  config.mutable_outer_optimizer()->set_learning_rate(0.31);
  ASSERT_OK(run_.Start(config));
  EXPECT_TRUE(run_.engine().GetRun().config().outer_optimizer().has_momentum());
  config.clear_outer_optimizer();
  config.mutable_synchronization()->clear_inner_steps_per_round();
  ASSERT_OK(run_.Start(config));
  const v1::RunConfig continued = run_.engine().GetRun().config();
  EXPECT_EQ(continued.outer_optimizer().learning_rate(), 0.31);
  EXPECT_EQ(continued.synchronization().inner_steps_per_round(), 10);
}

// Neither round alone is enough to know the usual norm.
TEST_F(EngineStartTest, TheUsualNormIsRememberedFromSeveralRounds) {
  RunRounds(2);
  ASSERT_OK(run_.Start(config_));
  EXPECT_THAT(Contribute("a", 2, 1),
              IsOutOfRange("median of the last 4 merged"));
}

TEST_F(EngineStartTest, AStartRemovesWhatItsConfigurationDoesNotKeep) {
  RunRounds(3);
  ASSERT_OK(ReadFile(HeadFile(0, 0)));
  v1::RunConfig changed = config_;
  changed.mutable_storage()->set_versions_kept(1);
  ASSERT_OK(run_.Start(changed));
  EXPECT_THAT(ReadFile(HeadFile(0, 0)), IsNotFound());
  EXPECT_OK(ReadFile(HeadFile(0, 3)));
}

TEST_F(EngineStartTest, AProcessIsNotCreditedWithWhatAnEarlierOneDid) {
  RunRounds(1);
  ASSERT_OK(run_.Start(config_));
  ASSERT_OK(run_.Leave(run_.Join("a").value()));
  ASSERT_OK(run_.Join("a", /*instance=*/2));
  for (const bool restarted : {false, true}) {
    const v1::ListIslandsResponse live = run_.engine().ListIslands(false);
    for (const v1::IslandStatus& island : live.islands()) {
      const bool is_new = island.island_id() == "a";
      EXPECT_EQ(island.contributions_merged(), is_new ? 0 : 1) << restarted;
      // One of two fragments has merged its 1000 tokens.
      EXPECT_EQ(island.tokens_merged(), is_new ? 0 : 500) << restarted;
    }
    ASSERT_OK(run_.Start(config_));
  }
}

// Another log in sync may lack what this one has.
TEST_F(EngineStartTest, AnElectedLeaderWaitsUntilItKnowsWhoIsInSync) {
  run_.BeElected();
  ASSERT_OK(run_.Start(config_));
  EXPECT_THAT(run_.Join("a"), IsUnavailable("has just been elected"));
  LogFeed& feed = *run_.engine().followed().feed;
  feed.SetInSync({"b"});
  EXPECT_THAT(run_.Join("a"), IsUnavailable("has just been elected"));
  feed.SetInSync({});
  EXPECT_OK(run_.Join("a"));
}

// An island is gone while its upload is under way.
TEST_F(EngineStartTest, AnIslandThatIsGoneLeavesNoUploadBehind) {
  ASSERT_OK(run_.Start(config_));
  ASSERT_OK(run_.Join("a"));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity b, run_.Join("b"));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor, run_.Fetch(b, 0, 0));
  const TestContribution upload =
      run_.MakeContribution(b, 0, 0, anchor, Shifted(anchor, 0.01f));
  ASSERT_OK(run_.engine().Offer(upload.header));
  ASSERT_OK(run_.engine().Append(KeyOf(upload.header),
                                 CutChunk(upload.bytes, 0, 100)));
  ASSERT_OK(run_.Leave(b));
  EXPECT_THAT(run_.engine().Append(KeyOf(upload.header),
                                   CutChunk(upload.bytes, 100, 100)),
              IsUnavailable("no upload of island b"));
}

}  // namespace
}  // namespace causeway
