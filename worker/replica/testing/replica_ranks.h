// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs rounds of the outer loop with the replicas of an island of several
// ranks, which train on the threads of Orders. The trace must not depend on the
// number of ranks.
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

#include "common/tensors/model_layout.h"
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

// Returns a configuration with fragments of two to seven strips; no fragment's
// size is a multiple of a strip's.
v1::RunConfig SeveralStrips(int fragments);

class ReplicaRanks {
 public:
  struct Options {
    int size = 1;
    v1::RunConfig config;
    ReplicaOptions options;
    // Is true if TCP connects the ranks, as between processes.
    bool tcp = false;
    bool mixes_ranks = false;
    // Makes a rank's parts; if null they are in host memory.
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
  bool changed(int rank) const { return changed_[rank]; }

  // Returns the whole model's parameters. All ranks must have carried out the
  // earlier orders for training, as they have after an order for the replica.
  std::vector<float> Parameters() const;
  // Makes a training step, a different one in every round.
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

// Returns the fragment's encoding, fetched in pieces as a sender does.
std::string EncodeAll(FragmentReplica& fragment, const CodecSpec& spec);

// Returns an update for this round, the same for any number of ranks.
std::string UpdateOf(const CodecSpec& spec, uint64_t size, int round);

// All that is visible outside after some rounds.
struct ReplicaTrace {
  std::vector<std::string> encodings;
  std::vector<std::string> digests;
  std::vector<std::vector<float>> anchors;
  std::vector<std::vector<float>> parameters;
};
// Runs contributions and updates of all fragments. In some rounds a
// contribution is not merged, and an update comes again from the beginning or
// is replaced by an anchor.
ReplicaTrace RunRounds(ReplicaRanks& ranks, int rounds);

// Expects islands of `sizes` ranks to do the same as one rank in host memory,
// in several formats. `several` has the other options of the ranks.
void ExpectRanksDoWhatOneDoes(const std::vector<int>& sizes,
                              ReplicaRanks::Options several);

}  // namespace causeway

#endif  // WORKER_REPLICA_TESTING_REPLICA_RANKS_H_
