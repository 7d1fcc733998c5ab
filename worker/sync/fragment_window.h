// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What an island has trained since a fragment's anchor and no merged
// contribution contains: the books by which each token counts once.
//
// Problem: an island that begins with a checkpoint does not know what the
// process before has handed in after the checkpoint was made. To contribute it
// again would count it twice; to leave it out could lose it.
// Idea: the island's join fenced that process off, so what it had handed in is
// part of a version up to the one of the round that was open then, or of none.
// Of such an update the coordinator says whether a contribution of the island
// is part of it that the island has not named (includes_other). That is
//   * what was in flight when the checkpoint was made, if it is the update from
//     the checkpoint's own version: nothing else was sent against that;
//   * or else a later contribution. It held all that was in the window of the
//     checkpoint and not merged, as no contribution leaves anything out.
// After the latter nothing of earlier processes is left in the window, and what
// was trained since the restart goes, too: it is the same training again.
//
// Updates that are skipped, as they are no longer kept, are asked about all the
// same: the coordinator never forgets whom it has merged.
//
// Pure rules, for one thread.
#ifndef WORKER_SYNC_FRAGMENT_WINDOW_H_
#define WORKER_SYNC_FRAGMENT_WINDOW_H_

#include <cstdint>

#include "proto/coordinator.pb.h"
#include "proto/island.pb.h"

namespace causeway {

// The step from one version of the anchor to another.
struct FragmentUpdate {
  uint64_t from_version = 0;
  v1::FragmentHead head;
  // Whether the contribution that was handed over is part of it.
  bool includes_island = false;
  // Of that contribution in the merge; 0 if there is none.
  double island_share = 0;
  // Whether another contribution of this island is part of the step to
  // from_version + 1, or of one of the further steps that were skipped: of
  // those that may have a contribution of an earlier process.
  bool includes_other = false;
  bool skipped_include_other = false;
};

class FragmentWindow {
 public:
  struct Training {
    uint64_t tokens = 0;
    // Of these, by an earlier process of the island.
    uint64_t restored_tokens = 0;
    uint64_t inner_steps = 0;

    friend bool operator==(const Training&, const Training&) = default;
    Training& operator-=(const Training& part) {
      tokens -= part.tokens;
      restored_tokens -= part.restored_tokens;
      inner_steps -= part.inner_steps;
      return *this;
    }
  };

  FragmentWindow() = default;
  // Of a process that begins with the run's parameters, and joined when
  // `joined_version` was the fragment's newest, or before.
  explicit FragmentWindow(uint64_t joined_version)
      : others_until_(joined_version + 1) {}
  // The same of one that begins with a checkpoint.
  FragmentWindow(const v1::IslandCheckpoint::Fragment& saved,
                 uint64_t joined_version);

  // A step; `tokens` is 0 if the island passed over it.
  void Add(uint64_t tokens);

  const Training& training() const { return training_; }
  bool empty() const { return training_.tokens == 0; }
  // Up to this version, updates may have training of the checkpoint that an
  // earlier process has handed in; 0 if none may.
  uint64_t earlier_until() const { return restored_ ? others_until_ : 0; }
  // Whether nothing is left but what is in flight.
  bool all_sent() const { return training_.tokens == sent_.tokens; }

  // All of it is handed over.
  void Send() { sent_ = training_; }
  // The update is applied, and nothing is in flight any more. Takes what it
  // contains out of the window; false if that is nothing.
  bool Settle(const FragmentUpdate& update);

  // Against an anchor of `version`.
  void Save(uint64_t version, v1::IslandCheckpoint::Fragment& saved) const;

 private:
  Training training_;
  // The part of it that is in flight.
  Training sent_;
  // Updates up to this version may contain what earlier processes handed in,
  uint64_t others_until_ = 0;
  // and that may be training of the checkpoint.
  bool restored_ = false;
  // What was in flight when the checkpoint was made, until the next update.
  Training forgotten_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_FRAGMENT_WINDOW_H_
