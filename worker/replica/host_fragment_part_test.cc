// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares contributions and updates of one rank that has the whole fragment
// with the equations. (replica_rank_test.cc compares several ranks with one.)
#include "worker/replica/host_fragment_part.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/codec.h"
#include "quantization/strips/layout.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

using testing::FloatNear;
using testing::Pointwise;

constexpr int64_t kSize = 2 * kStripValues + 100;
const FragmentMap::Segment kWhole = {.size = kSize};

std::vector<float> Wave(double phase, float scale = 1) {
  std::vector<float> values;
  for (int64_t i = 0; i < kSize; ++i) {
    values.push_back(
        scale * static_cast<float>(std::sin(phase + 0.1 * double(i % 1013))));
  }
  return values;
}

std::vector<float> Sum(std::vector<float> a, const std::vector<float>& b,
                       float scale = 1) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += scale * b[i];
  return a;
}

// Holds one fragment, which begins as zeros, so that the pseudo-gradient is the
// negative of the parameters.
class Replica {
 public:
  explicit Replica(const ReplicaOptions& options,
                   std::vector<FragmentMap::Segment> segments = {kWhole})
      : options_(options),
        part_(MakeHostFragmentPart({.fragment_size = kSize,
                                    .shard_size = kSize,
                                    .held = {0, kSize},
                                    .encoded = {0, kSize},
                                    .segments = std::move(segments)},
                                   options, master_.data(), &snapshots_)) {}

  std::vector<float>& master() { return master_; }
  std::vector<float> Anchor() {
    std::vector<float> anchor(kSize);
    EXPECT_OK(part_->ReadAnchor(absl::MakeSpan(anchor)));
    return anchor;
  }

  void Send() { EXPECT_OK(part_->TakeSnapshot(master_.data())); }
  // Encodes the contribution of the last Send until `bytes` bytes are final,
  // and returns the final bytes.
  std::string Encode(uint64_t bytes) {
    buffer_.resize(MaxEncodedBytes(options_.uplink, kSize));
    const auto encoded =
        part_->Encode(bytes, absl::MakeSpan(buffer_.data(), buffer_.size()));
    EXPECT_OK(encoded);
    return buffer_.substr(0, encoded.value().ready);
  }
  // Contributes the pseudo-gradient `values` and returns its encoding.
  std::string Contribute(const std::vector<float>& values, bool merged) {
    master_ = Sum(std::vector<float>(kSize), values, -1);
    Send();
    EXPECT_OK(part_->BeginContribution(0));
    const std::string encoded = Encode(UINT64_MAX);
    EXPECT_OK(part_->EndContribution(merged));
    return encoded;
  }
  FragmentPart& part() { return *part_; }

  void Receive(const std::vector<float>& update) {
    EXPECT_OK(
        part_->Decode(causeway::Encode(options_.downlink, update).value()));
    EXPECT_OK(part_->FinishUpdate());
  }
  void Apply(const std::vector<float>& update, bool includes_island) {
    Receive(update);
    EXPECT_OK(part_->Apply(includes_island, master_.data()));
  }

 private:
  const ReplicaOptions options_;
  std::vector<float> master_ = std::vector<float>(kSize);
  SnapshotPool snapshots_;
  std::string buffer_;
  const std::unique_ptr<FragmentPart> part_;
};

ReplicaOptions WithErrorFeedback(float decay) {
  return {.uplink = {.format = v1::INT4, .block_size = 64},
          .error_feedback = decay,
          .downlink = {.format = v1::FP32}};
}

// Returns decay * (values - what a receiver of their encoding decodes).
std::vector<float> ErrorOf(const ReplicaOptions& options,
                           const std::vector<float>& values) {
  std::vector<float> decoded(kSize);
  EXPECT_OK(Decode(options.uplink, Encode(options.uplink, values).value(),
                   absl::MakeSpan(decoded)));
  std::vector<float> error = Sum(values, decoded, -1);
  for (float& value : error) value *= options.error_feedback;
  return error;
}

TEST(HostFragmentPartTest, OnlyAMergedContributionLeavesItsErrorToTheNext) {
  for (const float decay : {1.0f, 0.5f}) {
    const ReplicaOptions options = WithErrorFeedback(decay);
    const auto encoding = [&](const std::vector<float>& values) {
      return Encode(options.uplink, values).value();
    };
    Replica replica(options);
    EXPECT_EQ(replica.Contribute(Wave(1), /*merged=*/false), encoding(Wave(1)));
    EXPECT_EQ(replica.Contribute(Wave(2), /*merged=*/true), encoding(Wave(2)));
    const std::vector<float> error = ErrorOf(options, Wave(2));
    ASSERT_NE(encoding(Wave(3)), encoding(Sum(Wave(3), error)));
    // The error stays until the next one is merged.
    EXPECT_EQ(replica.Contribute(Wave(3), /*merged=*/false),
              encoding(Sum(Wave(3), error)));
    EXPECT_EQ(replica.Contribute(Wave(4), /*merged=*/true),
              encoding(Sum(Wave(4), error)));
    EXPECT_EQ(replica.Contribute(Wave(5), /*merged=*/true),
              encoding(Sum(Wave(5), ErrorOf(options, Sum(Wave(4), error)))));
  }
}

// The coordinator got the contribution from elsewhere, so the island stops
// encoding it.
TEST(HostFragmentPartTest, APartlyEncodedContributionLeavesNoError) {
  const ReplicaOptions options = WithErrorFeedback(1);
  Replica replica(options);
  replica.master() = Wave(1);
  replica.Send();
  ASSERT_OK(replica.part().BeginContribution(0));
  const std::string whole = Encode(options.uplink, Wave(1)).value();
  ASSERT_LT(replica.Encode(1).size(), whole.size());
  ASSERT_OK(replica.part().EndContribution(/*merged=*/true));
  EXPECT_EQ(replica.Contribute(Wave(2), /*merged=*/true),
            Encode(options.uplink, Wave(2)).value());
}

// The training thread of another rank does not wait for its replica's thread.
TEST(HostFragmentPartTest, AContributionMayEndBesideTheUpdate) {
  const ReplicaOptions options = WithErrorFeedback(1);
  Replica replica(options);
  replica.master() = Sum(std::vector<float>(kSize), Wave(1), -1);
  replica.Send();
  ASSERT_OK(replica.part().BeginContribution(0));
  replica.Encode(UINT64_MAX);
  replica.Receive(std::vector<float>(kSize));
  std::thread other(
      [&] { EXPECT_OK(replica.part().EndContribution(/*merged=*/true)); });
  EXPECT_OK(
      replica.part().Apply(/*includes_island=*/true, replica.master().data()));
  other.join();
  EXPECT_EQ(
      replica.Contribute(Wave(2), /*merged=*/true),
      Encode(options.uplink, Sum(Wave(2), ErrorOf(options, Wave(1)))).value());
}

TEST(HostFragmentPartTest, AnEdgeTakesNoFreshMemoryInEachRound) {
  constexpr int64_t kHeld = 1000;
  constexpr int64_t kEncoded = 1 << 16;
  SnapshotPool snapshots;
  std::vector<float> master(kHeld);
  const ReplicaOptions options = {
      .uplink = {.format = v1::INT4, .block_size = 64}};
  const auto part = MakeHostFragmentPart({.fragment_size = kEncoded,
                                          .shard_size = kHeld,
                                          .held = {0, kHeld},
                                          .encoded = {0, kEncoded},
                                          .segments = {{.size = kHeld}}},
                                         options, master.data(), &snapshots);
  const std::vector<float> edge(kEncoded - kHeld);
  std::string buffer(MaxEncodedBytes(options.uplink, kEncoded), 0);
  std::set<const float*> places;
  for (int round = 0; round < 5; ++round) {
    ASSERT_OK(part->TakeSnapshot(master.data()));
    ASSERT_OK(part->BeginContribution(0));
    ASSERT_OK(part->AddEdge(edge));
    ASSERT_OK(
        part->Encode(UINT64_MAX, absl::MakeSpan(&buffer[0], buffer.size()))
            .status());
    ASSERT_OK(part->EndContribution(false));
    LargeVector<float> spare = snapshots.Take(kEncoded);
    places.insert(spare.data());
    snapshots.Return(std::move(spare));
  }
  EXPECT_EQ(places.size(), 1);
}

// Parameters that rest are read where they are.
TEST(HostFragmentPartTest, ParametersThatRestContributeTheSame) {
  // The fragment's tensors may be apart in the model, and end within strips.
  constexpr int64_t kFirst = kStripValues / 2;
  constexpr int64_t kSecond = kStripValues + 17;
  constexpr int64_t kThird = kSize - kFirst - kSecond;
  const std::vector<FragmentMap::Segment> segments = {
      {.model_offset = kThird, .fragment_offset = 0, .size = kFirst},
      {.model_offset = kThird + kFirst,
       .fragment_offset = kFirst,
       .size = kSecond},
      {.model_offset = 0, .fragment_offset = kFirst + kSecond, .size = kThird}};
  for (const float error_feedback : {0.0f, 1.0f}) {
    SCOPED_TRACE(error_feedback);
    ReplicaOptions options = WithErrorFeedback(error_feedback);
    Replica copies(options, segments);
    options.parameters_rest = true;
    Replica rests(options, segments);
    for (int round = 0; round < 4; ++round) {
      SCOPED_TRACE(round);
      const bool includes_island = round % 2 == 0;
      std::vector<std::string> contributions;
      for (Replica* replica : {&copies, &rests}) {
        replica->master() = Sum(replica->master(), Wave(round));
        replica->Send();
        EXPECT_OK(replica->part().BeginContribution(0));
        contributions.push_back(replica->Encode(UINT64_MAX));
        EXPECT_OK(replica->part().EndContribution(includes_island));
        replica->Apply(Wave(round + 0.5), includes_island);
      }
      EXPECT_EQ(contributions[0], contributions[1]);
      EXPECT_EQ(copies.master(), rests.master());
      EXPECT_EQ(copies.Anchor(), rests.Anchor());
    }
  }
}

ReplicaOptions Exact() {
  return {.uplink = {.format = v1::FP32}, .downlink = {.format = v1::FP32}};
}

// The encoder must not change the snapshot, whenever it runs.
TEST(HostFragmentPartTest, TheTrainingSinceTheSendStays) {
  for (const bool is_encoded : {false, true}) {
    SCOPED_TRACE(is_encoded);
    Replica replica(Exact());
    replica.Contribute(Wave(1), /*merged=*/false);
    replica.Apply(Wave(2), /*includes_island=*/false);
    EXPECT_EQ(replica.Anchor(), Wave(2));
    replica.master() = Wave(3);
    replica.Send();
    if (is_encoded) {
      ASSERT_OK(replica.part().BeginContribution(0));
      replica.Encode(UINT64_MAX);
      ASSERT_OK(replica.part().EndContribution(/*merged=*/true));
    }
    const std::vector<float> since = Wave(4, 0.25f);
    replica.master() = Sum(replica.master(), since);
    replica.Apply(Wave(5), /*includes_island=*/true);
    const std::vector<float> anchor = Sum(Wave(2), Wave(5));
    EXPECT_EQ(replica.Anchor(), anchor);
    EXPECT_THAT(replica.master(),
                Pointwise(FloatNear(1e-6f), Sum(anchor, since)));
  }
}

TEST(HostFragmentPartTest, WithoutTrainingSinceTheSendItIsTheAnchor) {
  Replica replica(Exact());
  replica.Contribute(Wave(1), /*merged=*/true);
  replica.Apply(Wave(2), /*includes_island=*/true);
  EXPECT_EQ(replica.master(), Wave(2));
}

TEST(HostFragmentPartTest, AnUpdateWithoutTheIslandKeepsAllItsTraining) {
  Replica replica(Exact());
  replica.Contribute(Wave(1), /*merged=*/false);
  const std::vector<float> trained = replica.master();
  replica.Apply(Wave(2), /*includes_island=*/false);
  EXPECT_EQ(replica.master(), Sum(trained, Wave(2)));
}

// A process that began with a checkpoint has no snapshot of the merged
// training. A snapshot is used once.
TEST(HostFragmentPartTest, WithoutASnapshotParametersBecomeTheAnchor) {
  for (const bool had_one : {false, true}) {
    SCOPED_TRACE(had_one);
    Replica replica(Exact());
    if (had_one) {
      replica.Contribute(Wave(1), /*merged=*/true);
      replica.Apply(std::vector<float>(kSize), /*includes_island=*/true);
    }
    replica.master() = Wave(3);
    replica.Apply(Wave(2), /*includes_island=*/true);
    EXPECT_EQ(replica.master(), Wave(2));
  }
}

}  // namespace
}  // namespace causeway
