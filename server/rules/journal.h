// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides what must be durable before what may be said. The rules of the run
// (server/rules/coordinator.h) decide what changes; the journal holds back the
// answers that rest on a change until the log has it. A host, which has the
// log, handles one event at a time:
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
// Changes that could not be written stay, and go first the next time: nobody
// may hear of a membership that a restart would not know.
//
// The log may not know what became of a write. It then refuses all others
// until the host has found out, and has called Reconciled.
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
  // What an event asks of the log.
  struct Entry {
    // Whether the event has changed what is to be durable.
    bool changes = false;
    // What must be written before anybody hears of the event; null if there is
    // nothing to write. Valid until the next call.
    LogBatch* batch = nullptr;
    // The batch's events that are new.
    absl::Span<const EventRecord> events;
  };

  // Takes what is to be durable out of an event's effects, which say then that
  // the view has changed if there are new events for people.
  Entry Enter(Effects& effects, absl::Time now);
  // The next entry has the snapshot, too.
  void AddSnapshot(SnapshotRecord snapshot);

  // Notes what became of the write of an entry's batch. Returns OK if all
  // entries are durable, or UNAVAILABLE: whatever the reason, it is this
  // machine's fault, so islands go on and retry.
  absl::Status Written(const absl::Status& outcome);

  // Returns what the caller of an event hears whose result is `result`: the
  // result or, if that needs a write that has failed, the write's error.
  template <typename Result>
  static Result Answer(const Entry& entry, const absl::Status& written,
                       Result result) {
    if (MayTell(entry, written, result.ok())) return result;
    return written;
  }

  // --- Commits of outer steps (server/rules/commit_sequence.h), one at a time
  // for each fragment.

  // Begins the commit of the version that `commit` has, whose merge took the
  // contributions with these shares. Returns what the log gets.
  //   UNAVAILABLE  The coordinator has stood down.
  absl::StatusOr<LogBatch> BeginCommit(const Coordinator& coordinator,
                                       const OuterStepOrder& order,
                                       const OuterStepOutcome& outcome,
                                       absl::Span<const float> shares,
                                       CommitRecord commit);
  // Returns what became of the fragment's commit, whose write ended with
  // `unknown`; nothing as long as nobody knows.
  std::optional<absl::Status> OutcomeOfCommit(
      uint32_t fragment, const absl::Status& unknown) const;

  // Notes what became of the write of unknown outcome.
  void Reconciled(const DoubtfulWrite& write, Effects& effects);

 private:
  static bool MayTell(const Entry& entry, const absl::Status& written,
                      bool succeeded);

  EventLimiter event_limiter_;
  // What the log does not have yet, as far as is known.
  LogBatch unwritten_;
  // The number of events in `unwritten_` that may be in the log already,
  // because the outcome of the last write of it is unknown.
  std::optional<size_t> doubtful_events_;
  // By fragment, whether a commit that was in doubt was found.
  std::map<uint32_t, bool> commits_found_;
};

}  // namespace causeway

#endif  // SERVER_RULES_JOURNAL_H_
