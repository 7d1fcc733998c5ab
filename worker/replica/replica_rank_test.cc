// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Replicas of several ranks against that of one rank: the same bytes go to the
// coordinator, and the same parameters, anchors and digests come out.
#include "worker/replica/replica_rank.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/checksum.h"
#include "common/clock.h"
#include "common/model_layout.h"
#include "common/status_macros.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/mixing.h"
#include "proto/run_config.pb.h"
#include "quantization/codec.h"
#include "worker/collective/gloo_transport.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/fragment_share.h"
#include "worker/replica/host_fragment_part.h"
#include "worker/replica/snapshot_pool.h"

namespace {

// Bytes that live in large pieces, over all threads.
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

void* operator new(size_t bytes) {
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  live_bytes += Large(memory);
  return memory;
}
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete(void* memory, size_t) noexcept { Release(memory); }

namespace causeway {
namespace {

using testing::HasSubstr;

enum class Kind { kThreads, kProcesses };

// Fragments of two to seven strips, none of which is a multiple of one.
v1::RunConfig Config(int fragments) {
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

// The ranks of an island, whose training threads are the test's.
class Ranks {
 public:
  Ranks(Kind kind, int size, const v1::RunConfig& config,
        const ReplicaOptions& options)
      : layout_(MakeModelLayout(config.model())),
        map_(*FragmentMap::Create(layout_, *MakeFragmentPlan(layout_, config))),
        snapshots_(size) {
    Connect(kind, size);
    std::vector<Slice> shards;
    for (int rank = 0; rank < size; ++rank) {
      shards.push_back(communicators_[0]->shard(layout_.size, rank));
    }
    const std::vector<float> start = InitialParameters(layout_, 3);
    for (int rank = 0; rank < size; ++rank) {
      masters_.emplace_back(start.begin() + shards[rank].begin,
                            start.begin() + shards[rank].end);
      const int64_t before = live_bytes;
      auto made =
          ReplicaRank::Create({.map = map_,
                               .shards = shards,
                               .replica = options,
                               .make_part = PartsOnHost(rank),
                               .communicator = communicators_[rank].get()},
                              masters_[rank].data());
      EXPECT_OK(made);
      ranks_.push_back(*std::move(made));
      part_bytes_.push_back(live_bytes - before);
    }
    fragments_ = ranks_[0]->Fragments(
        {.take_snapshot = [this](uint32_t fragment,
                                 bool eager) -> absl::Status {
           for (size_t rank = 0; rank < ranks_.size(); ++rank) {
             RETURN_IF_ERROR(ranks_[rank]->TakeSnapshot(fragment, eager,
                                                        masters_[rank].data()));
           }
           return absl::OkStatus();
         },
         .apply = [this](uint32_t fragment,
                         const UpdateUse& use) -> absl::Status {
           for (size_t rank = 0; rank < ranks_.size(); ++rank) {
             RETURN_IF_ERROR(
                 ranks_[rank]->Apply(fragment, use, masters_[rank].data()));
           }
           return absl::OkStatus();
         }});
  }
  ~Ranks() {
    fragments_.clear();
    // Rank 0 lets the others go.
    ranks_.clear();
  }

  const FragmentMap& map() const { return map_; }
  FragmentReplica& fragment(uint32_t id) { return *fragments_[id]; }
  ReplicaRank& rank(int rank) { return *ranks_[rank]; }
  const std::vector<int64_t>& part_bytes() const { return part_bytes_; }

  // Of the whole model.
  std::vector<float> Parameters() const {
    std::vector<float> parameters;
    for (const std::vector<float>& master : masters_) {
      parameters.insert(parameters.end(), master.begin(), master.end());
    }
    return parameters;
  }
  // Training, in a way of its own in every round.
  void Train(int round) {
    int64_t i = 0;
    for (std::vector<float>& master : masters_) {
      for (float& value : master) {
        value += 0.001f * std::sin(static_cast<float>(i % 1009) *
                                   (0.37f + 0.11f * static_cast<float>(round)));
        ++i;
      }
    }
  }

 private:
  FragmentPartFactory PartsOnHost(int rank) {
    return [snapshots = &snapshots_[rank]](
               uint32_t fragment, const FragmentShare& share,
               const ReplicaOptions& options, const float* master) {
      return MakeHostFragmentPart(fragment, share, options, master, snapshots);
    };
  }
  void Connect(Kind kind, int size) {
    std::vector<std::unique_ptr<Transport>> transports(size);
    if (kind != Kind::kProcesses || size == 1) {
      transports = MakeLocalTransports(size);
    } else {
      std::vector<std::thread> threads;
      for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
          auto connected = ConnectGloo(
              {.rank = rank, .size = size, .host = "127.0.0.1"}, &rendezvous_);
          ASSERT_OK(connected);
          transports[rank] = *std::move(connected);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    for (std::unique_ptr<Transport>& transport : transports) {
      communicators_.push_back(MakeMessageCommunicator(
          {.timeout = absl::Minutes(5), .now = SteadyWallClock()},
          std::move(transport), &rendezvous_));
    }
  }

  const ModelLayout layout_;
  const FragmentMap map_;
  LocalRendezvous rendezvous_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<SnapshotPool> snapshots_;
  std::vector<std::vector<float>> masters_;
  std::vector<std::unique_ptr<ReplicaRank>> ranks_;
  std::vector<int64_t> part_bytes_;
  std::vector<std::unique_ptr<FragmentReplica>> fragments_;
};

// What the outside sees of some rounds.
struct Trace {
  std::vector<std::string> encodings;
  std::vector<std::string> digests;
  std::vector<std::vector<float>> anchors;
  std::vector<std::vector<float>> parameters;
};

std::string EncodeAll(FragmentReplica& fragment, const CodecSpec& spec) {
  std::string buffer(MaxEncodedBytes(spec, fragment.size()), 0);
  const auto room = absl::MakeSpan(&buffer[0], buffer.size());
  EncodedBytes ready;
  // In pieces, as it is sent.
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

// An update of this round, the same for any number of ranks.
std::string Update(const CodecSpec& spec, uint64_t size, int round) {
  std::vector<float> change(size);
  for (uint64_t i = 0; i < size; ++i) {
    change[i] = 0.002f * std::cos(static_cast<float>(i % 2003) *
                                  (0.21f + static_cast<float>(round)));
  }
  return Encode(spec, change).value();
}

void RunRound(Ranks& ranks, const ReplicaOptions& options, int round,
              Trace& trace) {
  ranks.Train(round);
  for (uint32_t id = 0; id < ranks.map().fragments(); ++id) {
    FragmentReplica& fragment = ranks.fragment(id);
    ASSERT_OK(fragment.TakeSnapshot(/*eager=*/round % 2 == 0));
    ASSERT_OK(fragment.BeginContribution(round));
  }
  ranks.Train(100 + round);
  for (uint32_t id = 0; id < ranks.map().fragments(); ++id) {
    FragmentReplica& fragment = ranks.fragment(id);
    trace.encodings.push_back(EncodeAll(fragment, options.uplink));
    // One of them is not merged, and its error is forgotten.
    const bool merged = round != 1;
    ASSERT_OK(fragment.EndContribution(merged));
    const std::string update = Update(options.downlink, fragment.size(), round);
    ASSERT_OK(fragment.Decode(absl::string_view(update).substr(0, 30'000)));
    if (round == 2) {
      // It breaks off, and comes again.
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
    ASSERT_OK(fragment.Apply({.includes_island = merged,
                              .is_next = round != 2,
                              .island_share = merged ? 0.4 : 0}));
    std::vector<float>& anchor = trace.anchors.emplace_back(fragment.size());
    ASSERT_OK(fragment.ReadAnchor(absl::MakeSpan(anchor)));
    // Whatever was applied is what the digest was of.
    EXPECT_EQ(Digest128(absl::MakeConstSpan(anchor)), *digest);
  }
  trace.parameters.push_back(ranks.Parameters());
}

Trace RunRounds(Ranks& ranks, const ReplicaOptions& options, int rounds) {
  Trace trace;
  for (int round = 0; round < rounds; ++round) {
    RunRound(ranks, options, round, trace);
  }
  return trace;
}

struct Case {
  std::string name;
  ReplicaOptions options;
  int fragments = 1;
};

std::vector<Case> Cases() {
  const auto stochastic = [](uint64_t seed) {
    return EncodeOptions{.rounding = Rounding::kStochastic, .seed = seed};
  };
  v1::OuterOptimizerConfig outer;
  outer.set_algorithm(v1::OuterOptimizerConfig::NESTEROV);
  outer.set_merge(v1::OuterOptimizerConfig::MEAN);
  outer.set_learning_rate(0.7);
  outer.set_momentum(0.9);
  std::vector<Case> cases = {
      {"FP32", {}},
      {"BF16", {.uplink = {.format = v1::BF16}, .mixing = 0.5f}, 3},
      {"NF4 with entropy coding",
       {.uplink = {.format = v1::NF4, .entropy_coded = true},
        .downlink = {.format = v1::INT8}},
       3},
      {"INT4, stochastic",
       {.uplink = {.format = v1::INT4, .block_size = 64},
        .uplink_options = stochastic(77)},
       2},
      {"INT2, error feedback, stochastic, entropy coded",
       {.uplink = {.format = v1::INT2, .entropy_coded = true},
        .uplink_options = stochastic(5),
        .error_feedback = 0.95f,
        .downlink = {.format = v1::FP8_E4M3},
        .mixing = 0.25f},
       4},
      {"ECQ, error feedback",
       {.uplink = {.format = v1::ECQ, .entropy_coded = true},
        .error_feedback = 1,
        .downlink = {.format = v1::ECQ, .entropy_coded = true}}},
      {"E2M1, eager",
       {.uplink = {.format = v1::E2M1}, .mixing = 0.3f, .eager = outer},
       3},
      {"E3M0, error feedback",
       {.uplink = {.format = v1::E3M0, .block_size = 128},
        .error_feedback = 0.9f}},
  };
  return cases;
}

class ReplicaRankTest : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(, ReplicaRankTest,
                         testing::Values(Kind::kThreads, Kind::kProcesses),
                         [](const auto& info) {
                           return info.param == Kind::kThreads ? "Threads"
                                                               : "Gloo";
                         });

void ExpectRanksDoWhatOneDoes(Kind kind, const std::vector<int>& sizes) {
  for (const Case& each : Cases()) {
    const v1::RunConfig config = Config(each.fragments);
    Ranks one(Kind::kThreads, 1, config, each.options);
    const Trace want = RunRounds(one, each.options, 4);
    for (const int size : sizes) {
      SCOPED_TRACE(absl::StrCat(each.name, ", ", size, " ranks"));
      Ranks several(kind, size, config, each.options);
      const Trace got = RunRounds(several, each.options, 4);
      EXPECT_EQ(got.encodings, want.encodings);
      EXPECT_EQ(got.digests, want.digests);
      EXPECT_EQ(got.anchors, want.anchors);
      EXPECT_EQ(got.parameters, want.parameters);
    }
  }
}

TEST_P(ReplicaRankTest, RanksDoTogetherWhatOneDoesAlone) {
  ExpectRanksDoWhatOneDoes(GetParam(), {2, 3});
}

// One rank against the codec and the mixing themselves.
TEST(ReplicaTest, ARankEncodesThePseudoGradientAndMixes) {
  const ReplicaOptions options{
      .uplink = {.format = v1::INT8},
      .uplink_options = {.rounding = Rounding::kStochastic, .seed = 11},
      .downlink = {.format = v1::BF16},
      .mixing = 0.25f};
  const v1::RunConfig config = Config(1);
  Ranks one(Kind::kThreads, 1, config, options);
  const std::vector<float> anchor = one.Parameters();
  one.Train(0);
  std::vector<float> gradient(anchor.size());
  PseudoGradient(anchor, one.Parameters(), absl::MakeSpan(gradient));
  EncodeOptions encode = options.uplink_options;
  encode.seed ^= 4 * 0x9e3779b97f4a7c15;
  ASSERT_OK_AND_ASSIGN(const std::string want,
                       Encode(options.uplink, gradient, encode));
  FragmentReplica& fragment = one.fragment(0);
  ASSERT_OK(fragment.TakeSnapshot(false));
  ASSERT_OK(fragment.BeginContribution(4));
  EXPECT_EQ(EncodeAll(fragment, options.uplink), want);
  ASSERT_OK(fragment.EndContribution(true));

  const std::string update = Update(options.downlink, fragment.size(), 0);
  std::vector<float> new_anchor(anchor.size());
  ASSERT_OK(Decode(options.downlink, update, absl::MakeSpan(new_anchor)));
  for (size_t i = 0; i < anchor.size(); ++i) {
    new_anchor[i] = anchor[i] + new_anchor[i];
  }
  std::vector<float> mixed = one.Parameters();
  Mix(new_anchor, 0.25f, absl::MakeSpan(mixed));
  ASSERT_OK_AND_ASSIGN(const std::string digest, fragment.FinishUpdate(update));
  EXPECT_EQ(digest, Digest128(absl::MakeConstSpan(new_anchor)));
  ASSERT_OK(fragment.Apply({.includes_island = true, .is_next = true}));
  EXPECT_EQ(one.Parameters(), mixed);
}

TEST_P(ReplicaRankTest, AnchorsAreSharded) {
  const v1::RunConfig config = Config(3);
  const auto model = static_cast<double>(MakeModelLayout(config.model()).size);
  for (const int size : {1, 2, 4}) {
    Ranks ranks(GetParam(), size, config, {});
    for (const int64_t bytes : ranks.part_bytes()) {
      EXPECT_NEAR(static_cast<double>(bytes) * size / model, 4, 0.2)
          << size << " ranks";
    }
  }
}

TEST_P(ReplicaRankTest, ForeignBytesThatAreNoEncodingAreRefused) {
  const ReplicaOptions options{
      .downlink = {.format = v1::NF4, .entropy_coded = true}};
  Ranks ranks(GetParam(), 2, Config(1), options);
  FragmentReplica& fragment = ranks.fragment(0);
  const std::string update = Update(options.downlink, fragment.size(), 0);
  EXPECT_THAT(fragment.FinishUpdate(
                  absl::string_view(update).substr(0, update.size() - 1)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  // The ranks have not heard of it.
  ASSERT_OK(fragment.DropUpdate());
  EXPECT_OK(fragment.FinishUpdate(update));
}

TEST_P(ReplicaRankTest, WhenARankGivesUpTheOthersSayWhy) {
  Ranks ranks(GetParam(), 3, Config(1), {});
  FragmentReplica& fragment = ranks.fragment(0);
  ASSERT_OK(fragment.TakeSnapshot(false));
  ranks.rank(2).Abort(absl::ResourceExhaustedError("no memory for the part"));
  EXPECT_THAT(fragment.BeginContribution(0),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("rank 2 has given up: no memory")));
  // And so it stays.
  EXPECT_THAT(fragment.ReadAnchor({}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("rank 2")));
}

TEST_P(ReplicaRankTest, AbortedOnRank0ItFailsForThatReason) {
  Ranks ranks(GetParam(), 2, Config(1), {});
  ranks.rank(0).Abort(absl::UnavailableError("rank 1 is dead"));
  EXPECT_THAT(
      ranks.fragment(0).BeginContribution(0),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1 is dead")));
}

}  // namespace
}  // namespace causeway
