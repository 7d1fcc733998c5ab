// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One fragment of a simulated island's replica. It records which training its
// parameters contain (tests/simulation/contents.h), where worker/replica has
// values. It obeys every order, right or wrong; the checker sees the fate of
// the training.
#ifndef TESTS_SIMULATION_REPLICA_H_
#define TESTS_SIMULATION_REPLICA_H_

#include <cstdint>
#include <vector>

#include "proto/fragment.pb.h"
#include "tests/simulation/contents.h"

namespace causeway::simulation {

class Replica {
 public:
  // `processes` are the island's so far, this one last. The parameters contain
  // `anchor`, which is what `head` contains, and `restored`, which earlier
  // processes have trained.
  Replica(std::vector<uint32_t> processes, v1::FragmentHead head,
          Contents anchor, std::vector<Interval> restored);

  const v1::FragmentHead& head() const { return head_; }
  const Contents& anchor() const { return anchor_; }
  // Returns the training in the parameters beyond the anchor; training in both
  // is in the parameters twice.
  const std::vector<Interval>& beyond() const { return beyond_; }
  // Returns the training that the parameters contained, in the anchor or beyond
  // it, when the process began.
  const Contents& at_start() const { return at_start_; }
  // Returns the steps that this process trained and did not give up.
  uint64_t trained() const { return trained_; }
  // Returns the steps that it gave up, except those that were lost because the
  // snapshot of an earlier process's contribution was missing.
  uint64_t given_up() const { return given_up_; }
  const std::vector<Interval>& snapshot() const { return snapshot_; }

  void Train();
  void TakeSnapshot() { snapshot_ = beyond_; }
  // Takes the next anchor, from an update or from parameters in its place.
  void Prepare(v1::FragmentHead head, Contents anchor);
  // Makes the parameters contain the anchor's training only once. Mixing keeps
  // only what was trained since the snapshot, so all before it that was not
  // merged is lost, and everything if there is no snapshot. A rebase keeps
  // everything.
  void Apply(bool includes_island);
  // Gives up training beyond the anchor that another process of the island has
  // also contributed, so that `left` steps stay.
  void GiveUpTo(uint64_t left);

 private:
  void Mix(bool merged);
  // Takes training beyond the anchor out, so that `left` steps stay. Returns
  // the number of steps taken out.
  uint64_t DropTo(uint64_t left);

  const std::vector<uint32_t> processes_;
  const uint32_t process_;
  v1::FragmentHead head_;
  Contents anchor_;
  std::vector<Interval> beyond_;
  Contents at_start_;
  uint64_t trained_ = 0;
  uint64_t given_up_ = 0;
  std::vector<Interval> snapshot_;
  v1::FragmentHead next_head_;
  Contents next_anchor_;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_REPLICA_H_
