// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides which processes take part in an island whose number of processes may
// change: its crew. One process leads: process 0, or its successor
// (succession.h). Each other process asks the leader's rendezvous for a place,
// under a key of its own, until it gets one. The leader sees who asks, chooses
// the crew and gives out the places. A process without a place keeps asking, as
// a spare.
//
//   the leader                              the others
//   CrewLeader leader(rules, server, now);  auto place = AwaitPlace(...);
//   leader.Choose(ranks, allowed, pause);   // place->rank of place->size
//   ...
//   if (leader.CanGrow()) ...
#ifndef WORKER_COLLECTIVE_CREW_H_
#define WORKER_COLLECTIVE_CREW_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/tcp_rendezvous.h"

namespace causeway {

inline constexpr int kNoProcess = -1;

struct CrewRules {
  // The number of processes that the island wants, and the fewest with which it
  // trains.
  int size = 1;
  int least = 1;
  int leader = 0;
  // The leader waits this long for all processes before it begins without some.
  absl::Duration shrink_after = absl::Seconds(30);
  // The leader waits for no more processes than this.
  int awaited = std::numeric_limits<int>::max();
  // The processes that get no place before these times, because the network
  // does not join them with another one, or they slow the others down. Until
  // the choice, only the time spent waiting counts. `awaited` does not count
  // them.
  std::map<int, absl::Time> avoided;
  // The ranks of each process; 0 before the first crew. Later a process with
  // another number of ranks is refused, and disturbs no crew.
  int ranks = 0;
};

// Returns the least time between two choices of a crew if no rank has failed,
// so that a process that comes and goes, or is slow now and then, does not keep
// the others from training.
absl::Duration QuietTime(const CrewRules& rules);

// Returns whether the ranks of this many processes can share a batch evenly.
using CrewSizeAllowed = std::function<bool(int processes)>;

// Returns the largest allowed size of a crew that has at most `most` processes,
// or 0.
int LargestCrew(const CrewRules& rules, int most,
                const CrewSizeAllowed& allowed);

// Returns the crew in the order of ranks, the leader first, if the processes in
// `present`, which include the leader, are there and it has waited for
// `waited`. Returns nothing if it must wait longer.
std::vector<int> ChooseCrew(const CrewRules& rules,
                            const std::set<int>& present,
                            const CrewSizeAllowed& allowed,
                            absl::Duration waited);

// Returns the processes that an island trains without if those in `present` are
// there.
std::vector<int> MissingFrom(const CrewRules& rules,
                             const std::set<int>& present);

// The leader's part. Not thread-safe.
class CrewLeader {
 public:
  // Waits for a moment. Returns false to give up.
  using Pause = std::function<bool()>;

  // `server` is new, has the clock `now`, and outlives this.
  CrewLeader(const CrewRules& rules, RendezvousServer* server, Clock now);

  // Returns the leader and the processes that ask for a place.
  std::set<int> Present();

  // Waits until there are enough processes for a crew.
  //   DEADLINE_EXCEEDED  There are too few, after minutes of waiting in this
  //                      and earlier calls.
  //   CANCELLED          `pause` returned false.
  absl::Status AwaitEnough(const Pause& pause);

  // Waits for a crew of an allowed size, and gives its places out. Each process
  // must have `ranks` ranks, as the leader has. Returns the crew's size. Call
  // once. Errors are those of AwaitEnough, and
  //   INVALID_ARGUMENT     No size is allowed.
  //   FAILED_PRECONDITION  A process has another number of ranks, and there was
  //                        no crew before. AwaitPlace returns the same there.
  absl::StatusOr<int> Choose(int ranks, const CrewSizeAllowed& allowed,
                             const Pause& pause);

  // Returns the crew and the processes that ask for a place.
  std::set<int> WithSpares();
  // Returns whether a larger crew could be chosen now. False in the QuietTime
  // after the choice.
  bool CanGrow();
  // Returns the size of the crew that would be chosen now without one process
  // of this crew, or 0.
  int SizeWithoutOne();
  // Says, while the ranks of the crew still run, that they start again at the
  // next server: with more processes, or without process `left_out` for the
  // time `quiet` after NextRules, because ranks may take some time to end.
  absl::Status SayStartAgain();
  absl::Status SayStartAgain(int left_out, absl::Duration quiet);
  // Returns the rules for the next server's crew, which starts now.
  CrewRules NextRules();

  // Tells the processes of the crew that the ranks have ended because of an
  // error and, if `for_good`, all processes that the island has ended for good.
  void SayFailed(const absl::Status& status, bool for_good = false);

  // Returns the process that has `rank` among all ranks of the crew.
  int ProcessWithRank(int rank);

  // Waits up to `timeout` until the processes of the crew no longer need the
  // server, because their ranks have ended. Does not wait for process `lost` of
  // the crew and for processes that the network does not reach.
  void AwaitDone(absl::Duration timeout, int lost = 0);

  // Tells the processes without a place that the island has ended: in order if
  // `why` is empty, otherwise for good.
  void Dismiss(absl::string_view why = "");
  // Repeats Dismiss until `others` processes have heard it, or `pause` returns
  // false.
  void DismissAll(int others, absl::string_view why, const Pause& pause);

 private:
  struct Asker {
    uint64_t calls = 0;
    absl::Time seen_at = absl::InfinitePast();
    // It has a place, or was refused.
    bool is_answered = false;
  };

  // Returns whether the process gets no place now.
  bool IsAvoided(int process) const;
  // Return the keys of processes that ask and have no answer, by process. Keys
  // has only processes that may get a place, and refuses those that never may.
  std::map<int, std::string> AllKeys();
  std::map<int, std::string> Keys();
  // Like Dismiss, but does not wait, and returns AllKeys().
  std::map<int, std::string> DismissAskers(absl::string_view why);
  // Returns `processes` and the processes in Keys().
  std::set<int> WithAskers(const std::vector<int>& processes);
  // Tells a process that it does not have `ranks` ranks, and returns the error.
  absl::Status Refuse(int process, const std::string& key, int ranks);
  // Refuses processes of the crew that do not have `ranks` ranks, and returns
  // the error of one.
  absl::Status CheckRanks(int ranks, const std::vector<int>& crew,
                          const std::map<int, std::string>& keys);
  absl::StatusOr<std::vector<int>> Await(const CrewSizeAllowed& allowed,
                                         const Pause& pause);
  // Does not count the time for which this process was stopped as silence.
  void Skip(absl::Duration stopped);

  CrewRules rules_;
  RendezvousServer* const server_;
  const Clock now_;
  const absl::Time started_at_;

  std::map<std::string, Asker> askers_;
  // The time for which the leader has waited for processes in all, without the
  // join and the download of parameters between two waits.
  absl::Duration waited_;
  // The chosen crew, with the arguments and the time of the choice.
  std::vector<int> crew_;
  CrewSizeAllowed allowed_;
  absl::Time chosen_at_;
  // The process of the crew to leave out of the next one, and for how long.
  int left_out_ = kNoProcess;
  absl::Duration quiet_;
};

// A place in the crew.
struct CrewPlace {
  // The number among the crew's processes, of which there are `size`.
  int rank = 0;
  int size = 1;
  std::unique_ptr<Rendezvous> table;
};

// Waits for a place for the process with number `process`, which has `ranks`
// ranks. `life` is a number that is new in each call. If an earlier life has a
// place, tells the ranks that wait to connect to it that it has ended. Returns
// nothing if the island has ended in order without it. Errors are those of
// ConnectRendezvous, which waits up to `timeout` each time that the leader does
// not answer, FAILED_PRECONDITION (CrewLeader::Choose), and ABORTED if the
// island has ended for good.
absl::StatusOr<std::optional<CrewPlace>> AwaitPlace(
    const RendezvousOptions& options, int process, int ranks, uint64_t life,
    absl::Duration timeout);

// Asks the leader why the ranks of `place` have ended in order, and then does
// SayDone. Returns nothing if they start again, otherwise the leader's error.
//   UNAVAILABLE, DEADLINE_EXCEEDED  It says nothing: the island has ended.
//   ABORTED  The island has ended for good.
absl::StatusOr<std::optional<std::string>> WhyEnded(const CrewPlace& place,
                                                    absl::Duration timeout);

// Tells the leader that the process of `place` no longer needs its server.
void SayDone(const CrewPlace& place);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_CREW_H_
