// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests which versions and updates an engine hands to which islands.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/checksum.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/encoded_object.h"
#include "quantization/testing/whole_vectors.h"
#include "server/engine.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

class EngineFetchTest : public testing::Test {
 protected:
  void StartRun(const std::string& more = "") {
    ASSERT_OK(
        run_.Start(TestRunConfig("training { total_steps: 80 } "
                                 "outer_optimizer { algorithm: SGD "
                                 "learning_rate: 0.7 } " +
                                 more)));
    ASSERT_OK_AND_ASSIGN(a_, run_.Join("a"));
    ASSERT_OK_AND_ASSIGN(b_, run_.Join("b"));
  }

  // Hands in an island's training from `version` of fragment 0, and returns the
  // contribution's digest.
  std::string Contribute(const v1::IslandIdentity& island, uint64_t version,
                         float amount = 0.01f, uint64_t tokens = 1000) {
    const std::vector<float> anchor = run_.Fetch(island, 0, version).value();
    const TestContribution contribution = run_.MakeContribution(
        island, 0, version, anchor, Shifted(anchor, amount), tokens);
    EXPECT_OK(run_.Contribute(contribution));
    return contribution.header.object().digest();
  }

  absl::StatusOr<OpenedUpdate> OpenUpdate(const v1::IslandIdentity& island,
                                          uint64_t from_version,
                                          const std::string& digest = "") {
    v1::FetchUpdateRequest request;
    *request.mutable_identity() = island;
    request.set_from_version(from_version);
    request.set_contribution_digest(digest);
    return run_.engine().OpenUpdate(request);
  }

  EngineDriver run_;
  v1::IslandIdentity a_;
  v1::IslandIdentity b_;
};

TEST_F(EngineFetchTest, AnIncarnationThatIsFencedOffGetsNothing) {
  StartRun();
  Contribute(a_, 0);
  Contribute(b_, 0);
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  ASSERT_OK(run_.Leave(b_));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity successor, run_.Join("b", 2));
  v1::IslandIdentity foreign = a_;
  foreign.set_run_id("another");
  const auto expect = [&](const v1::IslandIdentity& island,
                          absl::StatusCode code) {
    EXPECT_THAT(run_.Fetch(island, 0, 1).status(), StatusIs(code));
    EXPECT_THAT(OpenUpdate(island, 0).status(), StatusIs(code));
    v1::FetchUpdateRequest request;
    *request.mutable_identity() = island;
    EXPECT_THAT(run_.engine().IsAwaited(request).status(), StatusIs(code));
  };
  expect(b_, absl::StatusCode::kAborted);
  expect(foreign, absl::StatusCode::kFailedPrecondition);
  expect(successor, absl::StatusCode::kOk);
}

// A process may still have training that was merged without the quarantine, but
// none that was admitted from it.
TEST_F(EngineFetchTest, AnAdmittedContributionIsToldApartInTheSameRound) {
  StartRun();
  for (const uint64_t version : {0, 1}) {
    Contribute(a_, version);
    Contribute(b_, version);
    ASSERT_TRUE(run_.AwaitVersion(0, version + 1));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor, run_.Fetch(b_, 0, 2));
  ASSERT_THAT(run_.Contribute(run_.MakeContribution(b_, 0, 2, anchor,
                                                    Shifted(anchor, 1)))
                  .status(),
              IsOutOfRange());
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity second, run_.Join("b", 2));
  Contribute(a_, 2);
  ASSERT_TRUE(run_.AwaitVersion(0, 3));
  // The next round has both contributions.
  const std::string from_second = Contribute(second, 3);
  ASSERT_OK(run_.engine().Admit(1));
  const std::string from_a = Contribute(a_, 3);
  ASSERT_TRUE(run_.AwaitVersion(0, 4));
  ASSERT_EQ(run_.engine().ListFragments().fragments(0).ledger().merged(), 8000);

  ASSERT_OK_AND_ASSIGN(const OpenedUpdate own,
                       OpenUpdate(second, 3, from_second));
  EXPECT_TRUE(own.response.includes_island());
  EXPECT_EQ(own.response.other_tokens(), 0);
  EXPECT_EQ(own.response.other_inner_steps(), 0);
  ASSERT_OK_AND_ASSIGN(const OpenedUpdate other, OpenUpdate(second, 3));
  EXPECT_FALSE(other.response.includes_island());
  EXPECT_EQ(other.response.other_tokens(), 1000);
  EXPECT_EQ(other.response.other_inner_steps(), 10);
  ASSERT_OK_AND_ASSIGN(const OpenedUpdate of_a, OpenUpdate(a_, 3, from_a));
  EXPECT_TRUE(of_a.response.includes_island());
  EXPECT_EQ(of_a.response.other_tokens(), 0);
  EXPECT_EQ(of_a.response.other_inner_steps(), 0);
}

TEST_F(EngineFetchTest, TheNewestVersionAndUpdatesAsConfiguredAreKept) {
  // Avoid snapshots: a version stays for another round while one is made.
  const std::string storage =
      "storage { update_history: 3 snapshot_log_ratio: 1000 }";
  StartRun(storage);
  for (uint64_t version = 0; version < 5; ++version) {
    Contribute(a_, version);
    Contribute(b_, version);
    ASSERT_TRUE(run_.AwaitVersion(0, version + 1));
  }
  for (const bool restarted : {false, true}) {
    SCOPED_TRACE(restarted ? "restarted" : "running");
    for (uint64_t version = 0; version <= 5; ++version) {
      EXPECT_EQ(run_.Fetch(a_, 0, version).ok(), version == 5) << version;
      if (version == 0) continue;
      ASSERT_OK_AND_ASSIGN(const OpenedUpdate update,
                           OpenUpdate(a_, version - 1));
      EXPECT_EQ(update.response.has_object(), version >= 3) << version;
    }
    if (!restarted) StartRun(storage);
  }
}

// Islands decode updates as the run's configuration says, which a restart can
// change.
TEST_F(EngineFetchTest, AnUpdateInAnEarlierEncodingIsNotSent) {
  const std::string format = "synchronization { downlink_format: INT8 ";
  StartRun(format + "}");
  Contribute(a_, 0);
  Contribute(b_, 0);
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  for (const bool changed : {true, false}) {
    StartRun(format + (changed ? "block_size: 64 }" : "}"));
    ASSERT_OK_AND_ASSIGN(const OpenedUpdate update, OpenUpdate(a_, 0));
    EXPECT_EQ(update.response.has_object(), !changed);
    EXPECT_EQ(update.response.head().version(), 1);
  }
}

// A download that breaks off can resume after one more round.
TEST_F(EngineFetchTest, AVersionThatIsBeingReadStaysForARound) {
  StartRun();
  v1::FetchParametersRequest request;
  *request.mutable_identity() = a_;
  ASSERT_OK_AND_ASSIGN(std::optional<OpenedParameters> opened,
                       run_.engine().OpenParameters(request));
  const std::string bytes(opened->bytes);
  for (uint64_t version = 0; version < 2; ++version) {
    Contribute(a_, version);
    Contribute(b_, version);
    ASSERT_TRUE(run_.AwaitVersion(0, version + 1));
    EXPECT_TRUE(opened->bytes == bytes);
    EXPECT_EQ(run_.engine().OpenParameters(request).ok(), version == 0);
  }
  opened.reset();
  EXPECT_THAT(run_.engine().OpenParameters(request).status(),
              IsNotFound("fetch the newest"));
}

TEST_F(EngineFetchTest, OnlyAnUpdateThatIsStillToBeMadeIsAwaited) {
  StartRun();
  const uint64_t last =
      run_.engine().ListFragments().fragments(0).final_version();
  const auto is_awaited = [&](uint64_t from_version, bool wait) {
    v1::FetchUpdateRequest request;
    *request.mutable_identity() = a_;
    request.set_from_version(from_version);
    request.set_wait(wait);
    return run_.engine().IsAwaited(request);
  };
  for (uint64_t version = 0; version < last; ++version) {
    EXPECT_THAT(is_awaited(version, true), IsOkAndHolds(true)) << version;
    EXPECT_THAT(is_awaited(version, false), IsOkAndHolds(false));
    EXPECT_THAT(is_awaited(version + 1, true), IsOkAndHolds(false));
    Contribute(a_, version);
    Contribute(b_, version);
    ASSERT_TRUE(run_.AwaitVersion(0, version + 1));
    EXPECT_THAT(is_awaited(version, true), IsOkAndHolds(false)) << "it is made";
  }
  EXPECT_THAT(is_awaited(last, true), IsOkAndHolds(false))
      << "none follows the last version";
}

// When a commit fails, its files remain. The version is then made again, with
// the contributions that have arrived meanwhile.
TEST_F(EngineFetchTest, AVersionThatIsMadeAgainIsTheOneThatIsFetched) {
  StartRun("membership { min_islands: 3 quorum: 2 grace_seconds: 0 }");
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity c, run_.Join("c"));
  ASSERT_OK_AND_ASSIGN(std::vector<float> theta, run_.Fetch(a_, 0, 0));
  ASSERT_OK(run_.RefuseInserts("commits"));
  Contribute(a_, 0, 0.01f);
  Contribute(b_, 0, 0.01f);
  ASSERT_TRUE(
      run_.Await([&] { return run_.engine().run_state() == v1::SUSPENDED; }));
  Contribute(c, 0, 0.05f);
  ASSERT_OK(run_.AllowInserts());
  run_.AdvanceSeconds(5);
  ASSERT_TRUE(run_.AwaitVersion(0, 1));

  ASSERT_OK_AND_ASSIGN(const std::vector<float> fetched, run_.Fetch(a_, 0, 1));
  EXPECT_EQ(Digest128(fetched), run_.Head(0).digest());
  // It has all three contributions, times the outer learning rate of 0.7.
  EXPECT_NEAR(fetched[0] - theta[0], 0.7 * (0.01 + 0.01 + 0.05) / 3, 1e-5);
  ASSERT_OK_AND_ASSIGN(const OpenedUpdate update, OpenUpdate(a_, 0));
  ASSERT_OK(DecodeAccumulate(SpecOf(update.response.object()), update.bytes,
                             1.0f, absl::MakeSpan(theta)));
  EXPECT_EQ(theta, fetched);
}

TEST_F(EngineFetchTest, TheFirstMessageOfADownloadDescribesIt) {
  StartRun();
  Contribute(a_, 0);
  Contribute(b_, 0);
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  v1::FetchParametersRequest request;
  *request.mutable_identity() = a_;
  request.set_version(1);
  ASSERT_OK_AND_ASSIGN(const OpenedParameters parameters,
                       run_.engine().OpenParameters(request));
  v1::FetchParametersResponse expected;
  *expected.mutable_head() = run_.Head(0);
  expected.set_total_bytes(parameters.bytes.size());
  EXPECT_EQ(parameters.response.DebugString(), expected.DebugString());
}

// An island with a part of an update cannot use the news that the rest is not
// kept.
TEST_F(EngineFetchTest, AnUpdateThatIsNoLongerKeptCannotBeResumed) {
  StartRun("storage { update_history: 1 }");
  for (const uint64_t version : {0, 1}) {
    Contribute(a_, version);
    Contribute(b_, version);
    ASSERT_TRUE(run_.AwaitVersion(0, version + 1));
  }
  v1::FetchUpdateRequest request;
  *request.mutable_identity() = a_;
  ASSERT_OK_AND_ASSIGN(const OpenedUpdate update,
                       run_.engine().OpenUpdate(request));
  EXPECT_FALSE(update.response.has_object());
  request.set_offset(1);
  EXPECT_THAT(run_.engine().OpenUpdate(request).status(), IsNotFound());
}

TEST_F(EngineFetchTest, NoUpdateOfAFragmentThatIsNotThereIsAwaited) {
  StartRun();
  v1::FetchUpdateRequest request;
  *request.mutable_identity() = a_;
  request.set_wait(true);
  request.set_fragment(UINT32_MAX);
  EXPECT_THAT(run_.engine().IsAwaited(request), IsOkAndHolds(false));
  EXPECT_THAT(run_.engine().OpenUpdate(request).status(), IsNotFound());
}

}  // namespace
}  // namespace causeway
