// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The process of an island that follows the protocol: the real outer loop
// (worker/outer_loop/outer_loop.h), with worker/island.h and worker/sync around
// it in virtual time. The class decides nothing itself. Training is counting
// steps (tests/simulation/contents.h).
#ifndef TESTS_SIMULATION_ISLAND_H_
#define TESTS_SIMULATION_ISLAND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "outer_optimizer/sync_schedule.h"
#include "proto/coordinator.pb.h"
#include "proto/island.pb.h"
#include "tests/simulation/actor_loop.h"
#include "tests/simulation/commit_account.h"
#include "tests/simulation/contents.h"
#include "tests/simulation/process.h"
#include "tests/simulation/replica.h"
#include "tests/simulation/session.h"
#include "tests/simulation/transfers.h"

namespace causeway::simulation {

// The state that an island's processes have left on its disk.
struct Checkpoint {
  struct Fragment {
    v1::FragmentHead head;
    Contents anchor;
    // The training in the parameters beyond the anchor.
    std::vector<Interval> beyond;
  };
  v1::IslandCheckpoint position;
  std::vector<Fragment> fragments;
  // The last process that was a member.
  uint64_t last_process = 0;
};

class Island {
 public:
  // Starts the process of island number `island`. It continues from
  // `checkpoint` if that has a value, and keeps its own state there; null if
  // islands keep none.
  Island(const Parts& parts, uint32_t island,
         std::optional<Checkpoint>* checkpoint);
  Island(const Island&) = delete;
  Island& operator=(const Island&) = delete;

  Process& process() { return process_; }
  // Returns whether it has seen the run's end.
  bool finished() const { return finished_; }
  // Describes where it is, for people.
  std::string Describe() const;
  // Asks it to leave, either at once or after contributing what it has trained.
  void RequestLeave();

 private:
  OuterLoop::Options LoopOptions() const;
  uint64_t instance() const { return process_.number + 1; }
  uint64_t TokensPerStep() const;
  v1::IslandProgress Progress() const;

  absl::Time Step();
  void Do(const action::Wait&) {}
  void Do(const action::End& end);
  void Do(const action::FetchParameters& fetch);
  void Do(const action::Begin& begin);
  void Do(const action::Train& train);
  void Do(const action::TakeSnapshot& snapshot);
  void Do(const action::Apply& apply);
  void Do(const action::Validate& validate);
  void Do(const action::Save& save);

  // Tells the core that the current action is done.
  template <typename Event>
  void Done(Event event) {
    busy_ = false;
    loop_.Tell(event);
  }
  // Runs `action` at once, or a little later, so that others may act in
  // between.
  void Soon(EventLoop::Action action);
  void Begin(const action::Begin& begin);
  void SaveState(const v1::IslandCheckpoint& position);
  // Compares the replica's contents with the core's knowledge, and both with
  // the commits.
  void Check(uint32_t fragment);
  // Checks that the island does not train in a pause, when it must leave, or
  // further ahead of an update than the schedule allows.
  void CheckMayTrain(uint64_t step);
  // Returns whether the trainer wants to settle before the step. The next time,
  // checks that it did.
  bool SettlesFirst(uint64_t step);
  // Checks that an island that leaves in order has contributed what it has
  // trained, or had no time to.
  void CheckHandedIn();
  void Leave(const absl::Status& status);

  Process process_;
  std::optional<Checkpoint>* const checkpoint_;
  // The schedule, for checks.
  const SyncSchedule schedule_;
  // The checkpoint with which the process began, if any.
  std::optional<Checkpoint> resumed_;
  ActorLoop loop_;
  Session session_;
  bool busy_ = false;
  bool finished_ = false;
  // The time when the core was first asked to leave.
  absl::Time asked_to_leave_ = absl::InfiniteFuture();
  // If true, it was asked to leave before it could train.
  bool left_before_ready_ = false;
  // The number of steps that this process has trained.
  uint64_t trained_ = 0;
  // The step before which the trainer settled last.
  uint64_t settled_step_ = 0;
  // The last measurement of the merged model.
  std::optional<v1::Validation> validation_;
  // The step at which each fragment's contribution in flight was sent.
  std::vector<uint64_t> sent_at_;
  // The downloaded parameters by fragment, until there are replicas.
  std::vector<Contents> fetched_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<std::unique_ptr<Transfers>> transfers_;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_ISLAND_H_
