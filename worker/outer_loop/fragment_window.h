// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Accounts for the training since a fragment's anchor that no merged
// contribution contains, so that each token counts once.
//
// Problem: an island that begins with a checkpoint does not know what the
// previous process handed in after the checkpoint was made. Contributing it
// again would count it twice; leaving it out could lose it. Idea: an island's
// training is one series, and its contributions are consecutive pieces of it.
// The coordinator remembers all merges, and says for each update how much
// training of the island it contains besides the contribution that the island
// names. That much training is removed from the start of the window. Training
// beyond the window was done after the checkpoint was made. If the island has
// trained since, it has repeated that training, which is removed, too.
//
// The parameters cannot keep all of the rest: the snapshot of the contribution
// died with the previous process, so the merged training cannot be taken out of
// them. They keep what was trained since a snapshot of this process, or become
// the anchor. What they lose leaves the window, too, because a contribution
// must not claim training that it does not contain.
//
// The island's join fenced off the previous process. Training that it had
// handed in is part of the version of the round open at the join, of an earlier
// version, or of none. The island also asks about updates that it skips because
// they are no longer kept.
//
// Pure rules, for one thread.
#ifndef WORKER_OUTER_LOOP_FRAGMENT_WINDOW_H_
#define WORKER_OUTER_LOOP_FRAGMENT_WINDOW_H_

#include <cstdint>

#include "proto/coordinator.pb.h"
#include "proto/island.pb.h"

namespace causeway {

struct AnchorChange;

class FragmentWindow {
 public:
  struct Training {
    uint64_t tokens = 0;
    // Counts the tokens among them that an earlier process trained.
    uint64_t restored_tokens = 0;
    uint64_t inner_steps = 0;

    friend bool operator==(const Training&, const Training&) = default;
    Training& operator+=(const Training& more);
    // Removes `part` from the start, or everything if no tokens or no steps
    // would be left.
    Training& operator-=(const Training& part);
  };

  // Makes the window of a process that begins with the run's parameters.
  FragmentWindow() = default;
  // Makes the window of a process that begins with a checkpoint.
  // `joined_version` is the fragment's newest version when the process joined,
  // or a later one.
  FragmentWindow(const v1::IslandCheckpoint::Fragment& saved,
                 uint64_t joined_version);

  // Adds a step that trained `tokens` tokens; 0 if the island skipped it.
  void Add(uint64_t tokens);

  const Training& training() const { return training_; }
  bool empty() const { return training_.tokens == 0; }
  // Returns whether all of the window is in flight.
  bool all_sent() const { return training_.tokens == sent_.tokens; }
  // Returns the last version whose update may contain training that an earlier
  // process handed in, or 0.
  uint64_t earlier_until() const { return earlier_until_; }

  // Notes that all of the window is handed over.
  void Send() { sent_ = training_; }
  // Notes that the update is applied, so that nothing is in flight, and removes
  // the training that it contains from the window, and that which is lost with
  // it. Returns false if it contains none.
  bool Settle(const AnchorChange& update);

  void Save(v1::IslandCheckpoint::Fragment& saved) const;

 private:
  Training training_;
  // The part of the window that is in flight.
  Training sent_;
  uint64_t earlier_until_ = 0;
};

// The change from one version of the anchor to another.
struct AnchorChange {
  uint64_t from_version = 0;
  v1::FragmentHead head;
  // Is true if the update contains the handed-over contribution.
  bool includes_island = false;
  // The island's training in the update that an earlier process handed over.
  FragmentWindow::Training other;
};

}  // namespace causeway

#endif  // WORKER_OUTER_LOOP_FRAGMENT_WINDOW_H_
