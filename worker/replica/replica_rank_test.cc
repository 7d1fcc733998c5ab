// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares replicas of several ranks with one rank's: the bytes for the
// coordinator, the parameters, the anchors and the digests must be the same.
#include "worker/replica/replica_rank.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "common/checksum.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/mixing.h"
#include "quantization/testing/whole_vectors.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/testing/replica_ranks.h"

namespace {

// The bytes that all threads have allocated in large pieces.
std::atomic<int64_t> live_bytes = 0;
int64_t Large(void* memory) {
  const auto bytes = static_cast<int64_t>(malloc_usable_size(memory));
  return bytes >= 16384 ? bytes : 0;
}
void Release(void* memory) {
  if (memory != nullptr) live_bytes -= Large(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto multiple = static_cast<size_t>(alignment);
  void* const memory =
      std::aligned_alloc(multiple, (std::max<size_t>(bytes, 1) + multiple - 1) /
                                       multiple * multiple);
  if (memory == nullptr) throw std::bad_alloc();
  live_bytes += Large(memory);
  return memory;
}
void* operator new(size_t bytes) {
  return operator new(bytes, std::align_val_t(alignof(std::max_align_t)));
}
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete(void* memory, size_t) noexcept { Release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  Release(memory);
}

namespace causeway {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// The parameter says whether TCP connects the ranks, which are always threads.
class ReplicaRankTest : public testing::TestWithParam<bool> {
 protected:
  static ReplicaRanks::Options Several(int size, int fragments,
                                       const ReplicaOptions& options = {}) {
    return {.size = size,
            .config = SeveralStrips(fragments),
            .options = options,
            .tcp = GetParam()};
  }
};

INSTANTIATE_TEST_SUITE_P(, ReplicaRankTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Tcp" : "Threads";
                         });

TEST_P(ReplicaRankTest, RanksDoTogetherWhatOneDoesAlone) {
  ExpectRanksDoWhatOneDoes(GetParam() ? std::vector{3} : std::vector{2, 3},
                           {.tcp = GetParam()});
}

// Compares one rank with direct calls of the codec and of the mixing.
TEST(ReplicaTest, ARankEncodesThePseudoGradientAndMixes) {
  const ReplicaOptions options{
      .uplink = {.format = v1::ECQ, .entropy_coded = true},
      .uplink_options = {.ecq_bits = 4},
      .downlink = {.format = v1::BF16}};
  ReplicaRanks one({.config = SeveralStrips(1), .options = options});
  const std::vector<float> anchor = one.Parameters();
  one.Train(0);
  std::vector<float> gradient(anchor.size());
  PseudoGradient(anchor, one.Parameters(), absl::MakeSpan(gradient));
  ASSERT_OK_AND_ASSIGN(const std::string want,
                       Encode(options.uplink, gradient, {.ecq_bits = 2}));
  FragmentReplica& fragment = one.fragment(0);
  ASSERT_OK(fragment.TakeSnapshot());
  ASSERT_OK(fragment.BeginContribution(2));
  EXPECT_EQ(EncodeAll(fragment, options.uplink), want);
  ASSERT_OK(fragment.EndContribution(true));

  const std::string update = UpdateOf(options.downlink, fragment.size(), 0);
  std::vector<float> new_anchor(anchor.size());
  ASSERT_OK(Decode(options.downlink, update, absl::MakeSpan(new_anchor)));
  for (size_t i = 0; i < anchor.size(); ++i) {
    new_anchor[i] = anchor[i] + new_anchor[i];
  }
  const std::vector<float> snapshot = one.Parameters();
  one.Train(1);
  std::vector<float> mixed = one.Parameters();
  Mix(new_anchor, snapshot, absl::MakeSpan(mixed));
  ASSERT_OK_AND_ASSIGN(const std::string digest, fragment.FinishUpdate(update));
  EXPECT_EQ(digest, Digest128(absl::MakeConstSpan(new_anchor)));
  ASSERT_OK(fragment.Apply(/*includes_island=*/true));
  EXPECT_EQ(one.Parameters(), mixed);
}

TEST_P(ReplicaRankTest, AnchorsAreSharded) {
  for (const int size : {1, 2, 4}) {
    ReplicaRanks::Options options = Several(size, 3);
    std::vector<int64_t> bytes(size);
    options.before = [&](int rank) { bytes[rank] = -live_bytes; };
    options.after = [&](int rank) { bytes[rank] += live_bytes; };
    ReplicaRanks ranks(options);
    const auto model = static_cast<double>(ranks.Parameters().size());
    for (const int64_t own : bytes) {
      EXPECT_NEAR(static_cast<double>(own) * size / model, 4, 0.2)
          << size << " ranks";
    }
  }
}

// Ranks all-gather changed masters before the next step.
TEST_P(ReplicaRankTest, EveryRankIsToldThatItsMastersChange) {
  ReplicaRanks ranks(Several(3, 1));
  FragmentReplica& fragment = ranks.fragment(0);
  const auto expect_changed = [&](bool changed) {
    // Afterwards all ranks have carried out the earlier orders.
    ASSERT_OK(fragment.BeginContribution(0));
    std::string encoded = EncodeAll(fragment, ranks.options().uplink);
    ASSERT_OK(fragment.EndContribution(false));
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ranks.changed(rank), changed) << rank;
    }
  };
  ASSERT_OK(fragment.TakeSnapshot());
  expect_changed(false);
  ASSERT_OK(fragment.ReplaceAnchor(std::vector<float>(fragment.size())));
  ASSERT_OK(fragment.Apply(/*includes_island=*/false));
  ASSERT_OK(fragment.TakeSnapshot());
  expect_changed(true);
}

TEST_P(ReplicaRankTest, TheRanksPartsEndWhereTheirShardsDo) {
  ReplicaRanks ranks(Several(3, 3));
  uint64_t model = 0;
  for (uint32_t id = 0; id < 3; ++id) model += ranks.fragment(id).size();
  std::vector<uint64_t> held(3);
  for (uint32_t id = 0; id < 3; ++id) {
    const std::vector<uint64_t> ends = ranks.fragment(id).rank_ends();
    ASSERT_THAT(ends, SizeIs(3));
    EXPECT_TRUE(std::is_sorted(ends.begin(), ends.end()));
    EXPECT_EQ(ends.back(), ranks.fragment(id).size());
    for (size_t rank = 0; rank < 3; ++rank) {
      held[rank] += ends[rank] - (rank == 0 ? 0 : ends[rank - 1]);
    }
  }
  // Shards consist of units of 16 values.
  for (const uint64_t values : held) EXPECT_NEAR(values, model / 3.0, 16);
}

TEST_P(ReplicaRankTest, OneRankHasNoParts) {
  EXPECT_THAT(ReplicaRanks(Several(1, 1)).fragment(0).rank_ends(), IsEmpty());
}

TEST_P(ReplicaRankTest, PartsWithValuesOfOtherRanksAreNotToldApart) {
  ReplicaRanks::Options options = Several(2, 1);
  options.mixes_ranks = true;
  EXPECT_THAT(ReplicaRanks(options).fragment(0).rank_ends(), IsEmpty());
}

TEST_P(ReplicaRankTest, ForeignBytesThatAreNoEncodingAreRefused) {
  const ReplicaOptions options{
      .downlink = {.format = v1::INT4, .entropy_coded = true}};
  ReplicaRanks ranks(Several(2, 1, options));
  FragmentReplica& fragment = ranks.fragment(0);
  const std::string update = UpdateOf(options.downlink, fragment.size(), 0);
  EXPECT_THAT(fragment.FinishUpdate(
                  absl::string_view(update).substr(0, update.size() - 1)),
              IsInvalidArgument());
  // The other ranks do not know of the bad update.
  ASSERT_OK(fragment.DropUpdate());
  EXPECT_OK(fragment.FinishUpdate(update));
}

TEST_P(ReplicaRankTest, WhenARankGivesUpTheOthersSayWhy) {
  ReplicaRanks ranks(Several(3, 1));
  FragmentReplica& fragment = ranks.fragment(0);
  ASSERT_OK(fragment.TakeSnapshot());
  ranks.orders(2)
      .Fail(absl::ResourceExhaustedError("no memory for the part"))
      .IgnoreError();
  EXPECT_THAT(fragment.BeginContribution(0),
              IsAborted("rank 2 has given up: no memory"));
  // Later orders fail alike.
  EXPECT_THAT(fragment.ReadAnchor({}), IsAborted("rank 2"));
}

}  // namespace
}  // namespace causeway
