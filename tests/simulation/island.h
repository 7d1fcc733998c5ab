// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The process of an island that follows the protocol: worker/island.h and
// worker/sync/fragment_synchronizer.h in virtual time. Joins, loads its
// parameters, trains, and sends and applies by the run's schedule. Training is
// counting steps (tests/simulation/contents.h).
#ifndef TESTS_SIMULATION_ISLAND_H_
#define TESTS_SIMULATION_ISLAND_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/backoff.h"
#include "outer_optimizer/sync_schedule.h"
#include "proto/coordinator.pb.h"
#include "tests/simulation/contents.h"
#include "tests/simulation/link.h"
#include "tests/simulation/process.h"
#include "tests/simulation/session.h"

namespace causeway::simulation {

class Island {
 public:
  // Starts the process of island number `island`.
  Island(const Parts& parts, uint32_t island);
  Island(const Island&) = delete;
  Island& operator=(const Island&) = delete;

  Process& process() { return process_; }
  // Whether it has seen the run's end.
  bool finished() const { return finished_; }
  // Leaves the run and ends.
  void Leave();

 private:
  struct Fragment {
    std::unique_ptr<Link> link;
    // Steps that the anchor does not contain; of them, those in flight.
    uint64_t window = 0;
    uint64_t sent = 0;
    uint64_t apply_step = 0;
  };
  // What came of waiting for an update.
  enum class Awaited { kNothingYet, kApplied, kNothingToCome };

  void Load(const v1::JoinResponse& joined);
  // Fetches fragments from anchors_.size() on.
  void FetchNext();
  void MakeLinks();
  void AwaitStart();
  void TrainStep();
  void AfterStep();
  // Goes on with what follows a step, as far as it can without waiting.
  void Continue();
  void Finish();
  void Send(uint32_t id);
  Awaited TryApply(uint32_t id);
  void Apply(uint32_t id);
  void Check(uint32_t id);
  uint64_t Newest(uint32_t id) const;
  bool RunIsOver() const;
  void Wake();
  void Fail(const absl::Status& status);

  Process process_;
  const SyncSchedule schedule_;
  Session session_;
  Backoff load_backoff_;

  v1::JoinResponse joined_;
  std::vector<Contents> anchors_;
  std::vector<Fragment> fragments_;
  bool started_ = false;
  bool finished_ = false;
  // On the run's schedule, and of this process.
  uint64_t step_ = 0;
  uint64_t trained_ = 0;
  // After a step, until the next one begins: what was sent so far.
  bool synchronizing_ = false;
  std::vector<SyncSchedule::Send> sends_;
  size_t next_send_ = 0;
  bool rebased_ = false;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_ISLAND_H_
