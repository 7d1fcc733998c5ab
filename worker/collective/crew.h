// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides who takes part in an island whose number of processes may change.
// These processes are its crew.
// One process leads: process 0, or one that has succeeded it (succession.h).
// Each of the others asks the leader's rendezvous for a place, under a key of
// its own, until it gets one. The leader sees who asks, chooses the crew and
// gives out the places. A process that gets none waits on, as a spare.
//
//   the leader                              the others
//   CrewLeader leader(rules, server, now);  auto place = AwaitPlace(...);
//   leader.Choose(allowed, pause);          // place->rank of place->size
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
  // The processes that the island is to have, and the fewest with which it
  // trains.
  int size = 1;
  int least = 1;
  // The process that leads.
  int leader = 0;
  // The leader waits this long for all of them before it goes without some.
  absl::Duration shrink_after = absl::Seconds(30);
  // If more have not been seen, the leader waits for so many only.
  int awaited = std::numeric_limits<int>::max();
  // The processes that get no place before these times, because the network
  // does not join them with another one, or they slow the others down. Nobody
  // is to wait for them (`awaited`).
  std::map<int, absl::Time> avoided;
};

// Returns the least time between two choices of a crew if no rank has failed,
// so that a process that comes and goes, or is slow now and then, does not keep
// the others from training.
absl::Duration QuietTime(const CrewRules& rules);

// Returns whether the ranks of so many processes can share a batch evenly.
using CrewSizeAllowed = std::function<bool(int processes)>;

// Returns the largest allowed size of a crew that has at most `most` processes,
// or 0.
int LargestCrew(const CrewRules& rules, int most,
                const CrewSizeAllowed& allowed);

// Returns the processes that take part, in the order of their ranks, the leader
// first, if those in `present` are there, the leader among them, and it has
// waited for `waited`. Empty: it waits on.
std::vector<int> ChooseCrew(const CrewRules& rules,
                            const std::set<int>& present,
                            const CrewSizeAllowed& allowed,
                            absl::Duration waited);

// Returns the processes without which an island trains if those in `present`
// are there.
std::vector<int> MissingFrom(const CrewRules& rules,
                             const std::set<int>& present);

// The leader's part. Not thread-safe.
class CrewLeader {
 public:
  // Waits for a moment. Returns false to give up.
  using Pause = std::function<bool()>;

  // `server` is new, and outlives this.
  CrewLeader(const CrewRules& rules, RendezvousServer* server, Clock now);

  // Returns the processes that are there: the leader and who asks for a place.
  std::set<int> Present();

  // Waits until there are enough processes for a crew, and returns who is
  // there.
  //   DEADLINE_EXCEEDED  There are too few, minutes after the first call.
  //   CANCELLED          `pause` says so.
  absl::StatusOr<std::set<int>> AwaitEnough(const Pause& pause);

  // Waits for a crew of an allowed size, and gives its places out. Each process
  // must have `ranks` ranks, as the leader. Returns the crew's size. Call once.
  // Errors are those of AwaitEnough, and
  //   INVALID_ARGUMENT     No size is allowed.
  //   FAILED_PRECONDITION  A process has another number of ranks. AwaitPlace
  //                        returns the same there.
  absl::StatusOr<int> Choose(int ranks, const CrewSizeAllowed& allowed,
                             const Pause& pause);

  // Returns whether a larger crew could be chosen now. False in the QuietTime
  // after the choice.
  bool CanGrow();
  // Returns the size of the crew that would be chosen now without one process
  // of this crew, or 0.
  int SizeWithoutOne();
  // Says, while the ranks of the crew still run, that they start again at the
  // next server, with more processes, or without `left_out` until then.
  absl::Status SayStartAgain();
  absl::Status SayStartAgain(int left_out, absl::Time until);
  // Returns the rules for the next server's crew.
  CrewRules NextRules();

  // Tells the processes of the crew that the ranks have ended because of an
  // error, and if `for_good`, all processes that the island has ended for good.
  void SayFailed(const absl::Status& status, bool for_good = false);

  // Returns the process that has `rank` among all ranks of the crew.
  int ProcessWithRank(int rank);

  // Waits up to `timeout` until the processes of the crew need the server no
  // more, because their ranks have ended. Does not wait for that of rank `lost`
  // and for those that the network does not reach.
  void AwaitDone(absl::Duration timeout, int lost = 0);

  // Tells the processes that have no place that the island has ended, in order
  // if `why` is empty, and otherwise for good.
  void Dismiss(absl::string_view why = "");
  // The same, again and again until `others` have heard it, or `pause` says so.
  void DismissAll(int others, absl::string_view why, const Pause& pause);

 private:
  struct Asker {
    uint64_t calls = 0;
    absl::Time seen_at = absl::InfinitePast();
    bool has_place = false;
  };

  // Returns whether the process gets no place now.
  bool IsAvoided(int process) const;
  // Returns the keys of those who ask and have no place, by process. Keys has
  // only those that may get one.
  std::map<int, std::string> AllKeys();
  std::map<int, std::string> Keys();
  // Like Dismiss, but waits for nobody, and returns who has asked.
  std::map<int, std::string> DismissAskers(absl::string_view why);
  // Returns `processes` and those that ask and have no place.
  std::set<int> WithAskers(const std::vector<int>& processes);
  // Tells the processes of the crew that do not have `ranks` ranks so, and
  // returns the error of one.
  absl::Status CheckRanks(int ranks, const std::vector<int>& crew,
                          const std::map<int, std::string>& keys);
  absl::StatusOr<std::vector<int>> Await(const CrewSizeAllowed& allowed,
                                         const Pause& pause);
  // Leaves the time out for which this process was stopped.
  void Skip(absl::Duration stopped);

  CrewRules rules_;
  RendezvousServer* const server_;
  const Clock now_;

  std::map<std::string, Asker> askers_;
  // When the leader began to wait.
  absl::Time began_at_ = absl::InfiniteFuture();
  // The crew once it is chosen, with what it was chosen by, and when.
  std::vector<int> crew_;
  // The ranks of each of its processes.
  int ranks_ = 1;
  CrewSizeAllowed allowed_;
  absl::Time chosen_at_;
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

// Returns what the leader says, after the ranks of `place` have ended in order:
// nothing if they start again, and then tells it that this process knows that;
// otherwise its error.
//   UNAVAILABLE, DEADLINE_EXCEEDED  It says nothing: the island has ended.
//   ABORTED  The island has ended for good.
absl::StatusOr<std::optional<std::string>> WhyEnded(const CrewPlace& place,
                                                    absl::Duration timeout);

// Tells the leader that the process of `place` needs its server no more.
void SayDone(const CrewPlace& place);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_CREW_H_
