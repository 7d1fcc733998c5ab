// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The process of an island that follows the protocol: worker/island.h and
// worker/sync/fragment_synchronizer.h in virtual time. Joins, loads its
// parameters, trains, and sends and applies by the run's schedule. Training is
// counting steps (tests/simulation/contents.h).
#ifndef TESTS_SIMULATION_ISLAND_H_
#define TESTS_SIMULATION_ISLAND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

// What an island's process has left on its disk.
struct Checkpoint {
  struct Fragment {
    v1::FragmentHead head;
    Contents anchor;
    // What the anchor does not contain; of it, what was in flight.
    std::vector<Interval> window;
    std::vector<Interval> sent;
  };
  // Of the process that made it.
  uint64_t instance = 0;
  uint64_t step = 0;
  std::vector<Fragment> fragments;
};

class Island {
 public:
  // Starts the process of island number `island`, which goes on from
  // `checkpoint` if there is one, and keeps its own there; null if islands keep
  // none.
  Island(const Parts& parts, uint32_t island,
         std::optional<Checkpoint>* checkpoint);
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
    // Own steps, but for those that were given up.
    uint64_t trained = 0;
    // Before the window: steps of earlier processes, out of the checkpoint; how
    // many of the intervals are in flight, and how many were in flight when the
    // checkpoint was made.
    std::vector<Interval> restored;
    size_t restored_sent = 0;
    size_t forgotten = 0;
    // Updates up to this version may contain what earlier processes handed in,
    uint64_t others_until = 0;
    // and that may be in `restored`.
    bool may_have_forgotten = false;
  };
  // What came of waiting for an update.
  enum class Awaited { kNothingYet, kApplied, kNothingToCome };

  uint64_t TokensPerStep() const;
  // Whether the island can go on from the checkpoint.
  bool CheckpointFits(const v1::JoinResponse& joined) const;
  // The checkpoint, if it can; and leaves word of this process.
  std::optional<Checkpoint> TakeCheckpoint(const v1::JoinResponse& joined);
  void Restore(const Checkpoint& saved, const v1::JoinResponse& joined);
  void Save();
  // All that the fragment's anchor does not contain.
  std::vector<Interval> Window(uint32_t id) const;
  // Hands in what was trained, as far as it goes, and leaves.
  void HandIn();
  // HandIn for one fragment; true once it is done.
  bool HandInFragment(uint32_t id);
  void Load(const v1::JoinResponse& joined);
  // Fetches fragments from anchors_.size() on.
  void FetchNext();
  // With the windows of the checkpoint, if there is one.
  void MakeLinks(const Checkpoint* restored);
  void SplitWindow(const Checkpoint::Fragment& saved, uint32_t id);
  void AwaitStart();
  void TrainStep();
  // Whether a fragment that is sent after this step has no training in it yet.
  bool MustTrain() const;
  // `trained` is 0 if the step was passed over.
  void AfterStep(uint64_t trained);
  // Goes on with what follows a step, as far as it can without waiting.
  void Continue();
  // Whether there is nothing left to catch up with.
  bool CatchUp();
  void Finish();
  void Send(uint32_t id, bool partial = false);
  Awaited TryApply(uint32_t id);
  // The same until nothing is in flight and the fragment is at its newest
  // version.
  Awaited TryNewest(uint32_t id);
  void Apply(uint32_t id);
  // Takes what an update contains of the fragment's window out of it.
  static void Settle(const Link::Taken& taken, Fragment& fragment);
  void Check(uint32_t id);
  uint64_t Newest(uint32_t id) const;
  bool RunIsOver() const;
  void Wake();
  void Fail(const absl::Status& status);

  Process process_;
  std::optional<Checkpoint>* const checkpoint_;
  const SyncSchedule schedule_;
  Session session_;
  Backoff load_backoff_;

  v1::JoinResponse joined_;
  std::vector<Contents> anchors_;
  std::vector<Fragment> fragments_;
  bool started_ = false;
  // It began with a checkpoint, and has not applied all that it has missed.
  bool catching_up_ = false;
  bool finished_ = false;
  // It hands in what it has trained.
  bool leaving_ = false;
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
