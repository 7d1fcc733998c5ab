// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The training since a fragment's anchor that no merged contribution contains:
// the books by which each token counts once.
//
// Problem: an island that begins with a checkpoint does not know what the
// process before has handed in after the checkpoint was made. To contribute it
// again would count it twice; to leave it out could lose it.
// Idea: an island's training is one series, and its contributions are pieces of
// it, one after the other. The coordinator never forgets whom it has merged,
// and says of each update how much training of the island is part of it that
// the island has not named. So much of the window, from its beginning, is
// merged. What lies beyond the end of the window was trained after the
// checkpoint was made; if the island has trained since, that is the same
// training again, and it goes, too.
//
// The island's join fenced the process before off. What that one had handed in
// is part of a version up to the one of the round that was open then, or of
// none. Updates that are skipped, as they are no longer kept, are asked about
// all the same.
//
// Pure rules, for one thread.
#ifndef WORKER_OUTER_LOOP_FRAGMENT_WINDOW_H_
#define WORKER_OUTER_LOOP_FRAGMENT_WINDOW_H_

#include <cstdint>

#include "proto/coordinator.pb.h"
#include "proto/island.pb.h"

namespace causeway {

struct FragmentUpdate;

class FragmentWindow {
 public:
  struct Training {
    uint64_t tokens = 0;
    // The tokens among these that an earlier process of the island has trained.
    uint64_t restored_tokens = 0;
    uint64_t inner_steps = 0;

    friend bool operator==(const Training&, const Training&) = default;
    Training& operator+=(const Training& more);
    // Takes `part` away from the beginning; takes all if there is less.
    Training& operator-=(const Training& part);
  };

  // The window of a process that begins with the run's parameters.
  FragmentWindow() = default;
  // The window of a process that begins with a checkpoint. `joined_version` is
  // the fragment's newest version when the process joined, or a later one.
  FragmentWindow(const v1::IslandCheckpoint::Fragment& saved,
                 uint64_t joined_version);

  // Adds a step that trained `tokens` tokens; 0 if the island passed over it.
  void Add(uint64_t tokens);

  const Training& training() const { return training_; }
  bool empty() const { return training_.tokens == 0; }
  // Whether all of the window is in flight.
  bool all_sent() const { return training_.tokens == sent_.tokens; }
  // The last version whose update may contain training that an earlier process
  // has handed in; 0 if there is no such version.
  uint64_t earlier_until() const { return earlier_until_; }

  // All of the window is handed over.
  void Send() { sent_ = training_; }
  // The update is applied, and nothing is in flight any more. Takes the
  // training that it contains out of the window. Returns false if it contains
  // none.
  bool Settle(const FragmentUpdate& update);

  void Save(v1::IslandCheckpoint::Fragment& saved) const;

 private:
  Training training_;
  // The part of it that is in flight.
  Training sent_;
  uint64_t earlier_until_ = 0;
};

// The change from one version of the anchor to another.
struct FragmentUpdate {
  uint64_t from_version = 0;
  v1::FragmentHead head;
  // Whether it contains the contribution that was handed over.
  bool includes_island = false;
  // The training of the island in it that an earlier process handed over.
  FragmentWindow::Training other;
};

}  // namespace causeway

#endif  // WORKER_OUTER_LOOP_FRAGMENT_WINDOW_H_
