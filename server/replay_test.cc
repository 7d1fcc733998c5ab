// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replay.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/record.pb.h"
#include "server/storage/merge_store.h"
#include "server/storage/state_directory.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr char kRecording[] = "storage { record_contributions: true } ";

class ReplayTest : public testing::Test {
 protected:
  void TearDown() override {
    driver_.Stop();
    std::filesystem::remove_all(driver_.state_dir());
  }

  // Makes a run in which two islands with unequal weights make `rounds` rounds
  // of fragment 0 and one of fragment 1.
  void MakeRun(const v1::RunConfig& config, uint64_t rounds) {
    std::vector<std::pair<uint32_t, uint64_t>> bases;
    for (uint64_t version = 0; version < rounds; ++version) {
      bases.emplace_back(0, version);
    }
    bases.emplace_back(1, 0);
    MakeRounds(config, bases);
  }

  // Starts a coordinator, to which both islands come, and makes a round from
  // each of these fragments and versions.
  void MakeRounds(const v1::RunConfig& config,
                  const std::vector<std::pair<uint32_t, uint64_t>>& bases) {
    ASSERT_OK(driver_.Start(config));
    const auto east = driver_.Join("east", 1);
    const auto west = driver_.Join("west", 2);
    ASSERT_OK(east.status());
    ASSERT_OK(west.status());
    for (const auto& [fragment, version] : bases) {
      Round(*east, *west, fragment, version);
    }
  }

  void Round(const v1::IslandIdentity& east, const v1::IslandIdentity& west,
             uint32_t fragment, uint64_t version) {
    const auto anchor = driver_.Fetch(east, fragment, version);
    ASSERT_OK(anchor.status());
    const float amount = 0.01f * static_cast<float>(version + 1);
    TestContribution of_west = driver_.MakeContribution(
        west, fragment, version, *anchor, Shifted(*anchor, -2 * amount),
        /*tokens=*/700);
    // Some weightings depend on the steps.
    of_west.header.set_inner_steps(25);
    ASSERT_OK(driver_.Contribute(of_west).status());
    ASSERT_OK(driver_
                  .Contribute(driver_.MakeContribution(
                      east, fragment, version, *anchor,
                      Shifted(*anchor, amount), /*tokens=*/300))
                  .status());
    ASSERT_TRUE(driver_.AwaitVersion(fragment, version + 1));
  }

  // Restarts the coordinator, which first makes snapshots, and makes the round
  // from `version` of both fragments.
  void GoOn(const v1::RunConfig& config, uint64_t version) {
    MakeRounds(config, {{0, version}, {1, version}});
  }

  absl::StatusOr<std::vector<ReplayResult>> Replay() {
    ASSIGN_OR_RETURN(const std::unique_ptr<StateDirectory> state,
                     StateDirectory::OpenReadOnly(driver_.state_dir()));
    std::vector<ReplayResult> replays;
    RETURN_IF_ERROR(ReplayRun(*state, [&](const ReplayResult& replay) {
      replays.push_back(replay);
    }));
    return replays;
  }

  // Changes the record of a merge, as if it had been another merge.
  void Forge(uint32_t fragment, uint64_t version, uint64_t tokens) {
    MergeStore store(driver_.state_dir());
    const auto stored = store.Open(fragment, version);
    ASSERT_OK(stored.status());
    v1::RecordedMerge merge = stored->merge();
    merge.mutable_contributions(0)->set_tokens(tokens);
    ASSERT_OK(store.Write(merge, stored->config(), stored->encodings()));
  }

  EngineDriver driver_;
};

TEST_F(ReplayTest, EveryAlgorithmComesOutBitForBit) {
  // The formats are lossy, so that there is a residual.
  for (const char* algorithm :
       {"algorithm: NESTEROV", "algorithm: SGD",
        "algorithm: SGD weighting: TOKENS_SQUARED_PER_STEP",
        "algorithm: DELAYED_NESTEROV momentum_delay: 2"}) {
    SCOPED_TRACE(algorithm);
    MakeRun(TestRunConfig(absl::StrCat(
                kRecording, "outer_optimizer { ", algorithm,
                " } synchronization { uplink_format: INT4 downlink_format: "
                "INT4 }")),
            3);
    const auto replays = Replay();
    ASSERT_OK(replays.status());
    ASSERT_EQ(replays->size(), 2);
    EXPECT_THAT((*replays)[0].difference, IsEmpty());
    EXPECT_EQ((*replays)[0].first_version, 0);
    EXPECT_EQ((*replays)[0].last_version, 3);
    EXPECT_EQ((*replays)[0].contributions, 6);
    EXPECT_THAT((*replays)[1].difference, IsEmpty());
    EXPECT_EQ((*replays)[1].last_version, 1);
    TearDown();
  }
}

TEST_F(ReplayTest, ADifferenceIsLocatedToFragmentAndVersion) {
  MakeRun(TestRunConfig(kRecording), 3);
  driver_.Stop();
  // Change the merge's settings, so that its replay is another outer step.
  MergeStore store(driver_.state_dir());
  const auto stored = store.Open(0, 2);
  ASSERT_OK(stored.status());
  v1::RunConfig config = stored->config();
  config.mutable_outer_optimizer()->set_learning_rate(0.71);
  ASSERT_OK(store.Write(stored->merge(), config, stored->encodings()));
  const auto replays = Replay();
  ASSERT_OK(replays.status());
  EXPECT_EQ((*replays)[0].last_version, 1);
  EXPECT_THAT((*replays)[0].difference, HasSubstr("parameters: committed"));
  // Momentum does not depend on the learning rate.
  EXPECT_THAT((*replays)[0].difference,
              testing::Not(HasSubstr("momentum: committed")));
  EXPECT_THAT((*replays)[1].difference, IsEmpty());
}

TEST_F(ReplayTest, EveryPartOfTheStateIsCompared) {
  MakeRun(TestRunConfig(kRecording), 1);
  driver_.Stop();
  MergeStore store(driver_.state_dir());
  const auto stored = store.Open(0, 1);
  ASSERT_OK(stored.status());
  const std::string other(kDigestBytes, 'x');
  v1::RecordedMerge parts[4];
  parts[0].set_momentum_digest(other);
  parts[1].set_residual_digest(other);
  parts[2].set_gradient_sum_digest(other);
  parts[3].set_update_digest(other);
  const char* const names[] = {"momentum", "residual", "gradient sum",
                               "update"};
  for (int part = 0; part < 4; ++part) {
    SCOPED_TRACE(names[part]);
    v1::RecordedMerge merge = stored->merge();
    merge.MergeFrom(parts[part]);
    ASSERT_OK(store.Write(merge, stored->config(), stored->encodings()));
    const auto replays = Replay();
    ASSERT_OK(replays.status());
    EXPECT_EQ((*replays)[0].last_version, 0);
    EXPECT_THAT((*replays)[0].difference,
                StartsWith(absl::StrCat(names[part], ": committed ",
                                        DigestToHex(other), ", replayed ")));
  }
}

TEST_F(ReplayTest, ARecordThatIsNotOfTheCommitIsADifference) {
  MakeRun(TestRunConfig(kRecording), 2);
  driver_.Stop();
  Forge(0, 2, 701);
  const auto replays = Replay();
  ASSERT_OK(replays.status());
  EXPECT_EQ((*replays)[0].last_version, 1);
  EXPECT_THAT((*replays)[0].difference, HasSubstr("another contribution"));
}

// No coordinator makes such records, but they may come from other machines.
TEST_F(ReplayTest, ARecordThatCannotBeRepeatedIsRefused) {
  MakeRun(TestRunConfig(kRecording), 1);
  driver_.Stop();
  MergeStore store(driver_.state_dir());
  const auto stored = store.Open(0, 1);
  ASSERT_OK(stored.status());
  v1::RecordedMerge merge = stored->merge();
  merge.mutable_contributions(0)->set_inner_steps(0);
  const auto expect_refused = [&](const v1::RunConfig& config,
                                  const std::string& why) {
    ASSERT_OK(store.Write(merge, config, stored->encodings()));
    EXPECT_THAT(Replay(), IsInvalidArgument(why));
  };
  v1::RunConfig config = stored->config();
  config.mutable_synchronization()->set_downlink_format(v1::FORMAT_UNSPECIFIED);
  expect_refused(config, "format 0");
  config = stored->config();
  v1::OuterOptimizerConfig& outer = *config.mutable_outer_optimizer();
  outer.set_weighting(v1::OuterOptimizerConfig::TOKENS_SQUARED_PER_STEP);
  expect_refused(config, "contribution 0: its share is");
  outer.set_momentum_delay(0);
  expect_refused(config, "momentum_delay is 0");
  outer.set_algorithm(v1::OuterOptimizerConfig::SGD);
  expect_refused(config, "does not have the parts");
}

TEST_F(ReplayTest, RecordsWithoutEntropyCodingAreCompressed) {
  for (const char* format : {"FP32", "BF16", "INT8"}) {
    SCOPED_TRACE(format);
    MakeRun(TestRunConfig(absl::StrCat(
                kRecording, " synchronization { uplink_format: ", format,
                " entropy_coding: false }")),
            1);
    driver_.Stop();
    const auto stored = MergeStore(driver_.state_dir()).Open(0, 1);
    ASSERT_OK(stored.status());
    uint64_t bytes = 0;
    for (const absl::string_view encoding : stored->encodings()) {
      bytes += encoding.size();
    }
    EXPECT_LT(
        std::filesystem::file_size(absl::StrCat(
            driver_.state_dir(), "/merges/merge-0000-v00000001.safetensors")),
        bytes);
    EXPECT_OK(Replay());
    TearDown();
  }
}

TEST_F(ReplayTest, ADamagedRecordIsNamed) {
  MakeRun(TestRunConfig(kRecording), 1);
  driver_.Stop();
  const std::string path = absl::StrCat(
      driver_.state_dir(), "/merges/merge-0000-v00000001.safetensors");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THAT(Replay().status().ToString(), HasSubstr("merge-0000-v00000001"));
}

// The compared digests do not cover the configuration in a record.
TEST_F(ReplayTest, ARecordWithADamagedConfigurationIsNamed) {
  MakeRun(TestRunConfig(kRecording), 1);
  driver_.Stop();
  const std::string path = absl::StrCat(
      driver_.state_dir(), "/merges/merge-0000-v00000001.safetensors");
  ASSERT_OK_AND_ASSIGN(std::string record, ReadFile(path));
  // This is the length and the text of the run's name.
  const size_t name = record.rfind("\x04test");
  ASSERT_NE(name, std::string::npos);
  record[name + 1] = 'b';
  ASSERT_OK(WriteFileAtomically(path, {absl::string_view(record)}));
  EXPECT_THAT(Replay().status(), IsDataLoss("\"config\" is damaged"));
}

TEST_F(ReplayTest, WithoutRecordingARunIsReplayedFromItsOldestSnapshot) {
  // The steps of this algorithm depend on the version.
  const v1::RunConfig delayed = TestRunConfig(
      "outer_optimizer { algorithm: DELAYED_NESTEROV momentum_delay: 2 }");
  MakeRun(delayed, 1);
  GoOn(delayed, 1);
  driver_.Stop();
  const auto replays = Replay();
  ASSERT_OK(replays.status());
  for (const ReplayResult& replay : *replays) {
    EXPECT_EQ(replay.first_version, 1);
    EXPECT_EQ(replay.last_version, 2);
    EXPECT_THAT(replay.difference, IsEmpty());
  }
}

TEST_F(ReplayTest, BeginsAnewIfTheCoordinatorRemovesItsFiles) {
  const v1::RunConfig config = TestRunConfig();
  MakeRun(config, 1);
  GoOn(config, 1);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<StateDirectory> state,
                       StateDirectory::OpenReadOnly(driver_.state_dir()));
  std::vector<ReplayResult> replays;
  std::vector<uint64_t> merges;
  ASSERT_OK(ReplayRun(
      *state, [&](const ReplayResult& replay) { replays.push_back(replay); },
      [&](uint32_t, uint64_t, uint64_t of) {
        merges.push_back(of);
        if (merges.size() > 1) return;
        GoOn(config, 2);
        // The last snapshots are made now.
        driver_.Stop();
      }));
  // Fragment 0 was between versions 1 and 2, of which no file is left.
  EXPECT_THAT(merges, testing::ElementsAre(2, 1, 1));
  ASSERT_EQ(replays.size(), 2);
  for (const ReplayResult& replay : replays) {
    EXPECT_EQ(replay.first_version, 2);
    EXPECT_EQ(replay.last_version, 3);
    EXPECT_THAT(replay.difference, IsEmpty());
  }
}

TEST_F(ReplayTest, ARunWithoutRecordsSaysSo) {
  MakeRun(TestRunConfig(), 1);
  driver_.Stop();
  std::filesystem::remove_all(driver_.state_dir() + "/merges");
  EXPECT_THAT(Replay().status(),
              IsFailedPrecondition("storage.record_contributions"));
}

// A record of another merge is noticed before the merge is made again.
TEST_F(ReplayTest, EveryPartOfARecordIsComparedWithTheLog) {
  MakeRun(TestRunConfig(kRecording), 1);
  driver_.Stop();
  MergeStore store(driver_.state_dir());
  const auto stored = store.Open(0, 1);
  ASSERT_OK(stored.status());
  const auto difference = [&](const auto& change) {
    v1::RecordedMerge merge = stored->merge();
    std::vector<absl::string_view> encodings(stored->encodings().begin(),
                                             stored->encodings().end());
    change(merge, encodings);
    EXPECT_OK(store.Write(merge, stored->config(), encodings));
    const auto replays = Replay();
    EXPECT_OK(replays.status());
    return replays.ok() ? (*replays)[0].difference : "";
  };
  const std::string another = "another contribution of ";
  EXPECT_THAT(
      difference([](auto& merge, auto&) {
        merge.mutable_contributions(1)->mutable_identity()->set_island_id(
            "north");
      }),
      HasSubstr(another + "north than the merged one of west"));
  EXPECT_THAT(difference([](auto& merge, auto& encodings) {
                encodings[1] = encodings[0];
                merge.mutable_contributions(1)->mutable_object()->set_digest(
                    merge.contributions(0).object().digest());
              }),
              HasSubstr(another + "west than the merged one of west"));
  EXPECT_THAT(difference([](auto& merge, auto&) {
                merge.mutable_head()->set_digest(std::string(16, 'x'));
              }),
              HasSubstr("the record is of parameters 7878"));
  EXPECT_THAT(difference([](auto& merge, auto& encodings) {
                encodings.pop_back();
                merge.mutable_contributions()->RemoveLast();
              }),
              HasSubstr("has 1 contributions, but 2 were merged"));
}

TEST_F(ReplayTest, OtherInitialParametersAreNamed) {
  MakeRun(TestRunConfig(std::string(kRecording) + "seed: 5"), 1);
  driver_.Stop();
  ASSERT_OK(
      driver_.ExecuteInLog("UPDATE run SET config = replace(config, 'seed: 5', "
                           "'seed: 6')"));
  EXPECT_THAT(Replay().status(),
              IsFailedPrecondition("another version of Causeway"));
}

}  // namespace
}  // namespace causeway
