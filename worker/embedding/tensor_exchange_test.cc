// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/tensor_exchange.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "common/tensors/model_layout.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/collective/rendezvous.h"
#include "worker/replica/testing/local_communicators.h"

namespace causeway {
namespace {

constexpr int64_t kValues = 1000;

// Returns which values are in the set.
std::vector<bool> Members(const Slices& slices) {
  std::vector<bool> members(kValues);
  int64_t end = 0;
  for (const Slice& slice : slices) {
    EXPECT_GE(slice.begin, end);
    EXPECT_LT(slice.begin, slice.end);
    end = slice.end;
    for (int64_t i = slice.begin; i < slice.end; ++i) members[i] = true;
  }
  return members;
}

// Returns a set that contains each of many short runs with probability `share`.
Slices RandomSlices(std::mt19937& random, double share) {
  Slices slices;
  for (int64_t begin = 0; begin < kValues;) {
    const int64_t end = std::min<int64_t>(kValues, begin + 1 + random() % 40);
    if (std::bernoulli_distribution(share)(random)) {
      slices.push_back({begin, end});
    }
    begin = end;
  }
  return slices;
}

TEST(SlicesTest, IntersectAndSubtractAreSetOperations) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const Slices a = RandomSlices(random, 0.5);
    const Slices b = RandomSlices(random, i % 2 == 0 ? 0.5 : 0.1);
    const std::vector<bool> in_a = Members(a);
    const std::vector<bool> in_b = Members(b);
    const std::vector<bool> both = Members(Intersect(a, b));
    const std::vector<bool> rest = Members(Subtract(a, b));
    for (int64_t v = 0; v < kValues; ++v) {
      EXPECT_EQ(both[v], in_a[v] && in_b[v]);
      EXPECT_EQ(rest[v], in_a[v] && !in_b[v]);
    }
  }
}

ModelLayout OneTensor() {
  ModelLayout layout;
  layout.size = kValues;
  layout.tensors = {
      {.name = "t", .shape = {kValues}, .size = kValues, .offset = 0}};
  return layout;
}

// Tests islands whose ranks train `trained` and hold `held` of one tensor.
class TensorExchangeTest : public testing::Test {
 protected:
  void Check(const std::vector<Slices>& held,
             const std::vector<Slices>& trained) {
    const int ranks = static_cast<int>(held.size());
    LocalRendezvous rendezvous;
    std::vector<RankCommunicators> communicators =
        LocalCommunicators(ranks, &rendezvous);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        CheckRank(rank, held, trained, communicators[rank].training.get());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  static void CheckRank(int rank, const std::vector<Slices>& held,
                        const std::vector<Slices>& trained,
                        Communicator* communicator) {
    std::vector<float> tensor(kValues);
    for (int64_t i = 0; i < kValues; ++i) tensor[i] = static_cast<float>(i);
    std::vector<TensorBuffer> buffers;
    for (const Slice& slice : trained[rank]) {
      buffers.push_back(
          {.name = "t", .values = slice, .data = tensor.data() + slice.begin});
    }
    ASSERT_OK_AND_ASSIGN(LocalTensors tensors,
                         LocalTensors::Create(OneTensor(), buffers, false));
    const TensorExchange exchange(rank, held, trained);
    const std::vector<bool> is_held = Members(held[rank]);
    std::vector<float> values(std::count(is_held.begin(), is_held.end(), true));
    ASSERT_OK(exchange.Fetch(tensors, communicator, absl::MakeSpan(values)));
    size_t at = 0;
    for (int64_t i = 0; i < kValues; ++i) {
      if (is_held[i]) {
        EXPECT_EQ(values[at++], i);
      }
    }
    for (float& value : values) value = -value;
    ASSERT_OK(exchange.Bring(values, communicator, tensors));
    const std::vector<bool> is_trained = Members(trained[rank]);
    for (int64_t i = 0; i < kValues; ++i) {
      EXPECT_EQ(tensor[i], is_trained[i] ? -i : i) << i;
    }
  }
};

// Returns the values cut into consecutive shards.
std::vector<Slices> Shards(int ranks) {
  std::vector<Slices> shards;
  for (int rank = 0; rank < ranks; ++rank) {
    const Slice slice = SliceOf(kValues, ranks, rank);
    shards.push_back({slice});
  }
  return shards;
}

TEST_F(TensorExchangeTest, OneRank) { Check(Shards(1), Shards(1)); }

TEST_F(TensorExchangeTest, RanksWithCopies) {
  Check(Shards(3), {3, Slices{{0, kValues}}});
}

TEST_F(TensorExchangeTest, RanksWithPartsOfWhichSomeAreEmpty) {
  std::vector<Slices> trained(4);
  for (int64_t begin = 0, i = 0; begin < kValues; begin += 7, ++i) {
    trained[i % 3].push_back({begin, std::min(kValues, begin + 7)});
  }
  std::vector<Slices> held = Shards(3);
  held.insert(held.begin() + 1, Slices());
  Check(held, trained);
  // Rank 0 alone may hold all of them, as it does to save the model.
  Check({Slices{{0, kValues}}, {}, {}, {}}, trained);
}

TEST_F(TensorExchangeTest, RanksWithPartsThatOverlap) {
  std::mt19937 random(2);
  std::vector<Slices> trained;
  for (int rank = 0; rank < 3; ++rank) {
    trained.push_back(RandomSlices(random, 0.5));
  }
  Slices missing = {{0, kValues}};
  for (const Slices& slices : trained) missing = Subtract(missing, slices);
  trained.push_back(missing);
  Check(Shards(4), trained);
}

}  // namespace
}  // namespace causeway
