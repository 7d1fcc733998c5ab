// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Shows what the ranks of a host are doing and since when, in memory that they
// share with their supervisor (worker/supervisor). A stamp costs a reading of
// the clock and an atomic store; without a supervisor, the load of a pointer.
//
//   supervisor                        each process
//   RankStampPage::Create()           OpenRankStamps(now);      // in main
//   setenv(kRankStampsVariable, page->path())
//   page->rank(3).lanes[...]          const RankSectionScope scope(
//                                         3, RankLane::kTraining,
//                                         RankSection::kStep);
//
// Processes have different clocks. So a process also writes, ten times a
// second, its clock's time as a beat: a section has lasted from its stamp to
// the beat, and a process whose beat stands still does not run.
#ifndef WORKER_COLLECTIVE_RANK_STAMPS_H_
#define WORKER_COLLECTIVE_RANK_STAMPS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/transport/field_limits.h"
#include "proto/coordinator.pb.h"

namespace causeway {

// The environment variable with the path of the page.
inline constexpr char kRankStampsVariable[] = "CAUSEWAY_RANK_STAMPS";

// The sequences of sections of a rank. Each is stamped by one thread at a time.
enum class RankLane {
  kTraining,
  kTrainingCollective,
  kReplica,
  kReplicaCollective,
};
inline constexpr int kRankLanes = 4;

enum class RankSection : uint8_t {
  kNone,
  // Parameters and replica are made, restored or saved.
  kState,
  kStep,
  kValidation,
  kSnapshot,
  kApply,
  // A contribution is encoded, or an update is decoded.
  kEncoding,
  kCollective,
};
inline constexpr int kRankSections = 8;

// Returns the section's name for people.
absl::string_view RankSectionName(RankSection section);

// The stamps of a rank. Times are in microseconds of its process's clock.
struct RankStamps {
  struct Lane {
    // The time when the lane's section began, shifted left by 8 bits, and the
    // section; 0 if there is none.
    std::atomic<uint64_t> now;
    // Counts the sections that the lane has begun.
    std::atomic<uint64_t> count;
    // The longest time in each section, without the first rounds.
    std::array<std::atomic<uint64_t>, kRankSections> longest;
  };

  void Clear();

  // The process; 0 before the rank has stamped anything.
  std::atomic<uint32_t> process;
  std::atomic<uint64_t> beat;
  // The last step of the run that the rank has completed.
  std::atomic<uint64_t> step;
  // Counts the rounds that the rank has completed since its start.
  std::atomic<uint64_t> rounds;
  std::array<Lane, kRankLanes> lanes;
};

// The number of first rounds, in which sections take longer.
inline constexpr uint64_t kFirstRounds = 5;

class RankStampPage {
 public:
  // Makes an empty page, for all ranks that an island can have.
  static absl::StatusOr<std::unique_ptr<RankStampPage>> Create();
  // Maps the page of another live process.
  static absl::StatusOr<std::unique_ptr<RankStampPage>> Open(
      const std::string& path);
  ~RankStampPage();
  RankStampPage(const RankStampPage&) = delete;
  RankStampPage& operator=(const RankStampPage&) = delete;

  // Returns a path under which processes of the same user can open a page that
  // this process has made.
  std::string path() const;

  // `rank` is less than kMostRanks.
  RankStamps& rank(int rank) { return memory_->ranks[rank]; }
  // The instance_id of the island's process that is a member of the run, or 0.
  std::atomic<uint64_t>& member() { return memory_->member; }
  // The process that the island's next crew leaves out (CrewRules::avoided), or
  // -1. TakeAvoided also resets it.
  void SetAvoided(int process) { memory_->avoided = process + 1; }
  int TakeAvoided() { return memory_->avoided.exchange(0) - 1; }
  // The processes, each less than kMostRanks, that later crews of the island
  // leave out, because an audit has found that they compute wrong numbers.
  void SetCorrupt(int process) { memory_->corrupt[process] = true; }
  bool IsCorrupt(int process) const { return memory_->corrupt[process]; }
  // Resets and returns IsCorrupt: later processes may have other numbers.
  bool TakeCorrupt(int process) {
    return memory_->corrupt[process].exchange(false);
  }
  // The supervisor's number of processes if it has given up, otherwise 0; only
  // the supervisor sets it. A process that leads the island then only tells the
  // coordinator and the processes of other hosts so.
  std::atomic<int>& gave_up() { return memory_->gave_up; }
  // Says whether rank 0 has nothing left to do.
  std::atomic<bool>& left() { return memory_->left; }
  // Says whether a process ends because others of the island have not come.
  std::atomic<bool>& others_missing() { return memory_->others_missing; }
  // Says whether the island has ended in order without handing in its state, so
  // that its next start needs the recent checkpoint.
  std::atomic<bool>& keeps_checkpoint() { return memory_->keeps_checkpoint; }
  // The supervisor's verdict on a rank, until a rank takes it to report it. The
  // first of several counts. One thread sets verdicts; if several processes
  // take a verdict at the same time, one gets it.
  void SetVerdict(const v1::RankTrouble& verdict);
  std::optional<v1::RankTrouble> TakeVerdict();
  // Removes the verdict. No process may take it meanwhile.
  void DropVerdict() { memory_->verdict_bytes = 0; }
  // Clears all but member(), gave_up(), the avoided process, the corrupt ones
  // and the verdict. No process may use the page.
  void Clear();

 private:
  static constexpr size_t kMostVerdictBytes = 1024;
  static constexpr uint32_t kTaking = 1U << 31;

  struct Memory {
    std::atomic<uint64_t> member;
    // The avoided process + 1, or 0.
    std::atomic<int> avoided;
    std::atomic<bool> corrupt[kMostRanks];
    std::atomic<int> gave_up;
    std::atomic<bool> left;
    std::atomic<bool> others_missing;
    std::atomic<bool> keeps_checkpoint;
    // The number of bytes in `verdict`, set after they are written; with
    // kTaking while a process reads them.
    std::atomic<uint32_t> verdict_bytes;
    char verdict[kMostVerdictBytes];
    RankStamps ranks[kMostRanks];
  };

  RankStampPage(int file, Memory* memory) : file_(file), memory_(memory) {}
  static absl::StatusOr<std::unique_ptr<RankStampPage>> Map(int file);

  const int file_;
  Memory* const memory_;
};

// Opens the page that the environment names, if any, for the rest of the
// process's life, and beats there.
absl::Status OpenRankStamps(Clock now);

// Returns the page that was opened, or null.
RankStampPage* OpenedRankStamps();

// Takes the verdict from that page, if there is one.
std::optional<v1::RankTrouble> TakeOpenedVerdict();

// Stamps that `rank` begins `section`, and at its destruction that the section
// has ended. Does nothing without a page.
class RankSectionScope {
 public:
  RankSectionScope(int rank, RankLane lane, RankSection section);
  ~RankSectionScope();
  RankSectionScope(const RankSectionScope&) = delete;
  RankSectionScope& operator=(const RankSectionScope&) = delete;

 private:
  RankStamps* const stamps_;
  RankStamps::Lane* const lane_;
  const RankSection section_;
  const uint64_t begin_;
};

// Stamps that `rank` has completed the run's `step`. One that it has only begun
// is no progress: an island that joins again takes its step from the others,
// and may die in it each time.
void StampStep(int rank, uint64_t step);

// Stamps that `rank` has completed a round.
void StampRound(int rank);

// Stamps that this process ends because others of the island have not come,
// which is no failure of this host.
void StampOthersMissing();

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_RANK_STAMPS_H_
