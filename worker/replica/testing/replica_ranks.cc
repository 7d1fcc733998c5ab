// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/testing/replica_ranks.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "quantization/testing/whole_vectors.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/tcp_transport.h"
#include "worker/replica/host_fragment_part.h"
#include "worker/replica/testing/local_communicators.h"

namespace causeway {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(5);

}  // namespace

v1::RunConfig SeveralStrips(int fragments) {
  v1::RunConfig config;
  v1::ModelConfig& model = *config.mutable_model();
  model.set_layers(3);
  model.set_hidden_size(128);
  model.set_intermediate_size(200);
  model.set_heads(2);
  model.set_kv_heads(2);
  model.set_vocab_size(258);
  model.set_sequence_length(8);
  config.mutable_synchronization()->set_fragments(fragments);
  config.mutable_synchronization()->set_inner_steps_per_round(10);
  return config;
}

ReplicaRanks::ReplicaRanks(Options options)
    : options_(std::move(options)),
      layout_(MakeModelLayout(options_.config.model())),
      map_(*FragmentMap::Create(layout_,
                                *MakeFragmentPlan(layout_, options_.config))) {
  for (RankCommunicators& communicators : Connect()) {
    orders_.push_back(
        std::make_unique<Orders>(std::move(communicators), kTimeout / 4));
  }
  std::vector<Slice> shards;
  for (int rank = 0; rank < options_.size; ++rank) {
    shards.push_back(orders_[0]->training()->shard(layout_.size, rank));
  }
  const std::vector<float> start = InitialParameters(layout_, 3);
  for (int rank = 0; rank < options_.size; ++rank) {
    masters_.emplace_back(start.begin() + shards[rank].begin,
                          start.begin() + shards[rank].end);
    changed_.push_back(false);
    const auto parts_in_host_memory =
        [snapshots = &snapshots_.emplace_back()](
            uint32_t /*fragment*/, const FragmentShare& share,
            const ReplicaOptions& part_options, const float* master) {
          return MakeHostFragmentPart(share, part_options, master, snapshots);
        };
    if (options_.before) options_.before(rank);
    auto made =
        ReplicaRank::Create({.map = map_,
                             .shards = shards,
                             .replica = options_.options,
                             .make_part = options_.parts ? options_.parts(rank)
                                                         : parts_in_host_memory,
                             .masters =
                                 [this, rank](bool changes) {
                                   if (changes) changed_[rank] = true;
                                   return masters_[rank].data();
                                 },
                             .mixes_ranks = options_.mixes_ranks,
                             .orders = orders_[rank].get()});
    if (options_.after) options_.after(rank);
    EXPECT_OK(made);
    ranks_.push_back(*std::move(made));
    if (rank == 0) continue;
    followers_.emplace_back([this, rank] {
      orders_[rank]
          ->Follow([this, rank](const Order& order) {
            return order.what == Order::What::kStep
                       ? TrainOwn(rank, order.run_step)
                       : ranks_[rank]->Follow(order);
          })
          .IgnoreError();
    });
  }
  fragments_ = ranks_[0]->Fragments();
}

ReplicaRanks::~ReplicaRanks() {
  fragments_.clear();
  // Rank 0 ends the orders of the other ranks.
  orders_[0].reset();
  for (std::thread& follower : followers_) follower.join();
}

std::vector<RankCommunicators> ReplicaRanks::Connect() {
  if (!options_.tcp) return LocalCommunicators(options_.size, &rendezvous_);
  std::vector<RankCommunicators> ranks(options_.size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options_.size; ++rank) {
    threads.emplace_back([&, rank] {
      const std::pair<const char*, std::unique_ptr<Communicator>*> all[] = {
          {"orders", &ranks[rank].orders},
          {"training", &ranks[rank].training},
          {"replica", &ranks[rank].replica}};
      for (const auto& [name, communicator] : all) {
        auto connected = ConnectTcp({.rank = rank,
                                     .size = options_.size,
                                     .name = name,
                                     .host = "127.0.0.1",
                                     .now = SteadyWallClock()},
                                    &rendezvous_);
        ASSERT_OK(connected);
        *communicator = MakeMessageCommunicator(
            {.timeout = kTimeout, .now = SteadyWallClock()},
            *std::move(connected), &rendezvous_);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

std::vector<float> ReplicaRanks::Parameters() const {
  std::vector<float> parameters;
  for (const std::vector<float>& master : masters_) {
    parameters.insert(parameters.end(), master.begin(), master.end());
  }
  return parameters;
}

void ReplicaRanks::Train(int round) {
  const Order order = {.what = Order::What::kStep,
                       .run_step = static_cast<uint64_t>(round)};
  EXPECT_OK(orders_[0]->Lead(order, [&] { return TrainOwn(0, round); }));
}

absl::Status ReplicaRanks::TrainOwn(int rank, uint64_t round) {
  const float frequency = 0.37f + 0.11f * static_cast<float>(round);
  int64_t i = 0;
  for (int before = 0; before < rank; ++before) i += masters_[before].size();
  for (float& value : masters_[rank]) {
    value += 0.001f * std::sin(static_cast<float>(i++ % 1009) * frequency);
  }
  return absl::OkStatus();
}

std::string EncodeAll(FragmentReplica& fragment, const CodecSpec& spec) {
  std::string buffer(MaxEncodedBytes(spec, fragment.size()), 0);
  const auto room = absl::MakeSpan(&buffer[0], buffer.size());
  EncodedBytes ready;
  // Encodes in pieces, as a sender does.
  for (uint64_t want = 20'000; !ready.complete; want += 20'000) {
    const auto progress = fragment.Encode(want, room);
    EXPECT_OK(progress);
    if (!progress.ok()) return "";
    EXPECT_TRUE(progress->complete || progress->ready >= want);
    EXPECT_GE(progress->ready, ready.ready);
    ready = *progress;
  }
  buffer.resize(ready.ready);
  return buffer;
}

std::string UpdateOf(const CodecSpec& spec, uint64_t size, int round) {
  std::vector<float> change(size);
  for (uint64_t i = 0; i < size; ++i) {
    change[i] = 0.002f * std::cos(static_cast<float>(i % 2003) *
                                  (0.21f + static_cast<float>(round)));
  }
  return Encode(spec, change).value();
}

namespace {

void RunRound(ReplicaRanks& ranks, int round, ReplicaTrace& trace) {
  const ReplicaOptions& options = ranks.options();
  ranks.Train(round);
  for (uint32_t id = 0; id < ranks.map().fragments(); ++id) {
    FragmentReplica& fragment = ranks.fragment(id);
    ASSERT_OK(fragment.TakeSnapshot());
    // ECQ's rate changes on all ranks at once.
    ASSERT_OK(fragment.BeginContribution(round == 2 ? 1.25 : 0));
  }
  ranks.Train(100 + round);
  for (uint32_t id = 0; id < ranks.map().fragments(); ++id) {
    FragmentReplica& fragment = ranks.fragment(id);
    trace.encodings.push_back(EncodeAll(fragment, options.uplink));
    // The coordinator does not merge one contribution: its error is forgotten.
    const bool merged = round != 1;
    ASSERT_OK(fragment.EndContribution(merged));
    const std::string update =
        UpdateOf(options.downlink, fragment.size(), round);
    ASSERT_OK(fragment.Decode(absl::string_view(update).substr(0, 30'000)));
    if (round == 2) {
      // The update breaks off, and comes again.
      ASSERT_OK(fragment.DropUpdate());
    }
    auto digest = fragment.FinishUpdate(update);
    ASSERT_OK(digest);
    if (round == 3) {
      std::vector<float> values(fragment.size(), 0.25f);
      ASSERT_OK(fragment.ReplaceAnchor(values));
      digest = Digest128(absl::MakeConstSpan(values));
    }
    trace.digests.push_back(*digest);
    ASSERT_OK(fragment.Apply(merged));
    std::vector<float>& anchor = trace.anchors.emplace_back(fragment.size());
    ASSERT_OK(fragment.ReadAnchor(absl::MakeSpan(anchor)));
    // The digest is that of the applied anchor.
    EXPECT_EQ(Digest128(absl::MakeConstSpan(anchor)), *digest);
  }
  trace.parameters.push_back(ranks.Parameters());
}

}  // namespace

ReplicaTrace RunRounds(ReplicaRanks& ranks, int rounds) {
  ReplicaTrace trace;
  for (int round = 0; round < rounds; ++round) RunRound(ranks, round, trace);
  return trace;
}

namespace {

struct Case {
  std::string name;
  ReplicaOptions options;
  int fragments = 1;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {"FP32", {}},
      {"BF16", {.uplink = {.format = v1::BF16}}, 3},
      {"INT4 with entropy coding",
       {.uplink = {.format = v1::INT4, .entropy_coded = true},
        .downlink = {.format = v1::INT8}},
       3},
      {"INT4", {.uplink = {.format = v1::INT4, .block_size = 64}}, 2},
      {"E3M0, error feedback, entropy coded",
       {.uplink = {.format = v1::E3M0, .entropy_coded = true},
        .error_feedback = 0.95f,
        .downlink = {.format = v1::INT8}},
       4},
      {"ECQ, error feedback",
       {.uplink = {.format = v1::ECQ, .entropy_coded = true},
        .error_feedback = 1,
        .downlink = {.format = v1::ECQ, .entropy_coded = true}}},
      {"INT8", {.uplink = {.format = v1::INT8}}, 3},
      {"E3M0, error feedback",
       {.uplink = {.format = v1::E3M0, .block_size = 128},
        .error_feedback = 0.9f}},
  };
  return cases;
}

}  // namespace

void ExpectRanksDoWhatOneDoes(const std::vector<int>& sizes,
                              ReplicaRanks::Options several) {
  for (const Case& each : Cases()) {
    several.config = SeveralStrips(each.fragments);
    several.options = each.options;
    ReplicaRanks one({.config = several.config, .options = each.options});
    const ReplicaTrace want = RunRounds(one, 4);
    for (const int size : sizes) {
      SCOPED_TRACE(absl::StrCat(each.name, ", ", size, " ranks"));
      several.size = size;
      ReplicaRanks ranks(several);
      const ReplicaTrace got = RunRounds(ranks, 4);
      EXPECT_EQ(got.encodings, want.encodings);
      EXPECT_EQ(got.digests, want.digests);
      EXPECT_EQ(got.anchors, want.anchors);
      EXPECT_EQ(got.parameters, want.parameters);
    }
  }
}

}  // namespace causeway
