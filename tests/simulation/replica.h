// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One fragment of a simulated island's replica: which training its parameters
// contain (tests/simulation/contents.h), as worker/replica would have the
// values. It does what it is told, right or wrong; the checker sees what has
// become of the training.
#ifndef TESTS_SIMULATION_REPLICA_H_
#define TESTS_SIMULATION_REPLICA_H_

#include <cstdint>
#include <vector>

#include "proto/fragment.pb.h"
#include "tests/simulation/contents.h"
#include "worker/replica/fragment_part.h"

namespace causeway::simulation {

class Replica {
 public:
  // `processes` are those of the island so far, this one last. The parameters
  // contain `anchor`, which is what `head` contains, and `restored`, which
  // earlier processes have trained.
  Replica(std::vector<uint32_t> processes, v1::FragmentHead head,
          Contents anchor, std::vector<Interval> restored);

  const v1::FragmentHead& head() const { return head_; }
  const Contents& anchor() const { return anchor_; }
  // What the parameters contain beyond the anchor, or as well as it, if they do
  // so twice.
  const std::vector<Interval>& beyond() const { return beyond_; }
  // Training that the parameters contained when the process began: in the
  // anchor or beyond it.
  const Contents& at_start() const { return at_start_; }
  // Steps of this process that were trained, but for those that were given up.
  uint64_t trained() const { return trained_; }
  // Steps that were given up.
  uint64_t given_up() const { return given_up_; }
  const std::vector<Interval>& snapshot() const { return snapshot_; }

  void Train();
  void TakeSnapshot() { snapshot_ = beyond_; }
  // An update, or parameters in its place, have come: the next anchor.
  void Prepare(v1::FragmentHead head, Contents anchor);
  // Mixing pulls the parameters onto the anchor: they contain only once what
  // the anchor contains, and if nothing of the island was merged, the snapshot
  // is lost. A rebase keeps all that they contain.
  void Apply(const UpdateUse& use);
  // Of what the parameters contain beyond the anchor, some is the same training
  // again as another process of the island has contributed: `left` steps stay.
  void GiveUpTo(uint64_t left);

 private:
  void Mix(bool merged);

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
