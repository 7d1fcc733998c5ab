// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides what must be durable before an answer is given. The rules of the run
// (server/rules/coordinator.h) decide what changes; the journal holds back the
// answers that rest on a change until the log has it. The host of the log
// handles one event at a time:
//
//   const Journal::Entry entry = journal.Enter(effects, now);
//   absl::Status written;
//   if (entry.batch != nullptr) {
//     written = journal.Written(log.Apply(*entry.batch));
//   }
//   // Carry the effects out, even if the write failed: a round that has closed
//   // must be merged.
//   return Journal::Answer(entry, written, result);
//
// Changes that could not be written stay, and are written first the next time:
// no answer may rest on a membership that a restart would not know.
//
// If the outcome of a write is unknown, the log refuses all others until the
// host has found it out and called Reconciled.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_JOURNAL_H_
#define SERVER_RULES_JOURNAL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/rules/coordinator.h"
#include "server/rules/event_limiter.h"
#include "server/rules/log_batch.h"

namespace causeway {

class Journal {
 public:
  // The part of an event that concerns the log.
  struct Entry {
    // True if the event changes what must be durable.
    bool changes = false;
    // The changes to write before the event is answered; null if there are
    // none. Valid until the next call.
    const LogBatch* batch = nullptr;
    // The new events in the batch.
    absl::Span<const CoordinatorEvent> events;
  };

  // Takes what must be durable out of an event's effects. Sets `view_changed`
  // in them if there are new events for people.
  Entry Enter(Effects& effects, absl::Time now);
  // Adds a snapshot to the next entry.
  void AddSnapshot(SnapshotRecord snapshot) {
    unwritten_.snapshots.push_back(std::move(snapshot));
  }

  // Notes the outcome of writing an entry's batch. Returns OK if all entries
  // are durable, and otherwise UNAVAILABLE: any error is this machine's fault,
  // so islands continue and retry.
  absl::Status Written(const absl::Status& outcome);

  // Returns the answer to an event: its `result`, or the error of a failed
  // write that the result rests on.
  template <typename Result>
  static Result Answer(const Entry& entry, const absl::Status& written,
                       Result result) {
    if (MayTell(entry, written, result.ok())) return result;
    return written;
  }

  // --- Commits of outer steps (server/rules/commit_sequence.h), one at a time
  // for each fragment.

  // Begins the commit of the version in `commit`, in which the contributions
  // have these shares. Returns the batch for the log.
  //   UNAVAILABLE  The coordinator has stood down.
  absl::StatusOr<LogBatch> BeginCommit(const Coordinator& coordinator,
                                       const ClosedRound& closed,
                                       const OuterStepOutcome& outcome,
                                       absl::Span<const float> shares,
                                       CommitRecord commit);
  // Returns the outcome of the fragment's commit, whose write ended with
  // `unknown`; nullopt until Reconciled has told it.
  std::optional<absl::Status> OutcomeOfCommit(
      uint32_t fragment, const absl::Status& unknown) const;

  // Notes the outcome of a write that was in doubt.
  void Reconciled(const DoubtfulWrite& write, Effects& effects);

 private:
  static bool MayTell(const Entry& entry, const absl::Status& written,
                      bool succeeded);

  EventLimiter event_limiter_;
  // Changes that may not be in the log yet.
  LogBatch unwritten_;
  // The number of events in `unwritten_` that may be in the log already,
  // because the outcome of its last write is unknown.
  std::optional<size_t> doubtful_events_;
  // Maps a fragment to whether its commit that was in doubt was found.
  std::map<uint32_t, bool> commits_found_;
};

}  // namespace causeway

#endif  // SERVER_RULES_JOURNAL_H_
