// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The replicas of an island of several ranks, whose training threads are those
// of Orders, and rounds of the outer loop with them. Any number of ranks must
// leave the same trace.
//
//   ReplicaRanks ranks({.size = 3, .config = config, .options = options});
//   const ReplicaTrace trace = RunRounds(ranks, 4);
#ifndef WORKER_REPLICA_TESTING_REPLICA_RANKS_H_
#define WORKER_REPLICA_TESTING_REPLICA_RANKS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/model_layout.h"
#include "outer_optimizer/fragment_plan.h"
#include "proto/run_config.pb.h"
#include "quantization/codec.h"
#include "worker/collective/rendezvous.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/fragment_replica.h"
#include "worker/replica/orders.h"
#include "worker/replica/replica_rank.h"
#include "worker/replica/snapshot_pool.h"

namespace causeway {

// Fragments of two to seven strips, none of which is a multiple of one.
v1::RunConfig SeveralStrips(int fragments);

class ReplicaRanks {
 public:
  struct Options {
    int size = 1;
    v1::RunConfig config;
    ReplicaOptions options;
    // Whether the ranks are connected as processes are; else they are threads.
    bool gloo = false;
    // How a rank's parts are made; in host memory if null.
    std::function<FragmentPartFactory(int rank)> parts;
    // Called before and after each rank is made; may be null.
    std::function<void(int rank)> before;
    std::function<void(int rank)> after;
  };

  explicit ReplicaRanks(Options options);
  ~ReplicaRanks();

  const ReplicaOptions& options() const { return options_.options; }
  const FragmentMap& map() const { return map_; }
  FragmentReplica& fragment(uint32_t id) { return *fragments_[id]; }
  Orders& orders(int rank) { return *orders_[rank]; }
  // Whether the masters have been changed.
  bool changed(int rank) const { return changed_[rank]; }

  // The whole model's. The orders for training before it must have been done on
  // all ranks, as they are when an order for the replica is.
  std::vector<float> Parameters() const;
  // A step of training, in a way of its own in every round.
  void Train(int round);

 private:
  absl::Status TrainOwn(int rank, uint64_t round);
  std::vector<RankCommunicators> Connect();

  const Options options_;
  const ModelLayout layout_;
  const FragmentMap map_;
  LocalRendezvous rendezvous_;
  std::vector<std::unique_ptr<Orders>> orders_;
  std::deque<SnapshotPool> snapshots_;
  std::vector<std::vector<float>> masters_;
  std::deque<bool> changed_;
  std::vector<std::unique_ptr<ReplicaRank>> ranks_;
  std::vector<std::unique_ptr<FragmentReplica>> fragments_;
  std::vector<std::thread> followers_;
};

// The fragment's encoding, fetched in pieces, as it is sent.
std::string EncodeAll(FragmentReplica& fragment, const CodecSpec& spec);

// An update of this round, the same for any number of ranks.
std::string UpdateOf(const CodecSpec& spec, uint64_t size, int round);

// What the outside sees of some rounds.
struct ReplicaTrace {
  std::vector<std::string> encodings;
  std::vector<std::string> digests;
  std::vector<std::vector<float>> anchors;
  std::vector<std::vector<float>> parameters;
};
// Contributions and updates of all fragments, one of which is not merged, comes
// again from the beginning, or is replaced by an anchor.
ReplicaTrace RunRounds(ReplicaRanks& ranks, int rounds);

// Expects so many ranks to do what one does in host memory, with several ways
// of encoding. The rest of `several` says how the ranks are made.
void ExpectRanksDoWhatOneDoes(const std::vector<int>& sizes,
                              ReplicaRanks::Options several);

}  // namespace causeway

#endif  // WORKER_REPLICA_TESTING_REPLICA_RANKS_H_
