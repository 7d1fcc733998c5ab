// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Brings the verdicts of the supervisors of an island's hosts on ranks to rank
// 0, which alone talks to the coordinator.
//
// A supervisor knows more than the ranks: which process was killed, by which
// signal, and for how long one was stopped. It leaves its verdict to the ranks
// that it starts next (worker/collective/rank_stamps.h). Ranks other than rank
// 0 write it into rank 0's table before they connect, and rank 0 reads it there
// when all are connected.
//
//   rank 0                          the others
//   Verdicts verdicts(table, 4);    ShareVerdict(number, table);
//   ... connects                    ... connects
//   verdicts.Take()
#ifndef WORKER_COLLECTIVE_VERDICTS_H_
#define WORKER_COLLECTIVE_VERDICTS_H_

#include <optional>
#include <set>

#include "proto/coordinator.pb.h"
#include "worker/collective/rendezvous.h"

namespace causeway {

// Returns one trouble with the texts of both, and with the rank and kind of
// `first`, if there is one.
std::optional<v1::RankTrouble> Joined(std::optional<v1::RankTrouble> first,
                                      std::optional<v1::RankTrouble> second);

// Tells rank 0, in whose table this process has the number `process`, the
// verdict of this host's supervisor. Does nothing without a supervisor or a
// verdict, or if another process of the host has told it.
void ShareVerdict(int process, Rendezvous* table);

// Rank 0's side. For use by one thread.
class Verdicts {
 public:
  // `table`, of this process, outlives this, and serves processes with numbers
  // below `processes`. It is null if there are no others.
  Verdicts(Rendezvous* table, int processes)
      : table_(table), processes_(processes) {}

  // Returns the verdict of this host's supervisor and the verdicts that other
  // processes have shared, each once. Does not wait.
  std::optional<v1::RankTrouble> Take();

 private:
  Rendezvous* const table_;
  const int processes_;
  // The processes that have shared a verdict.
  std::set<int> heard_;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_VERDICTS_H_
