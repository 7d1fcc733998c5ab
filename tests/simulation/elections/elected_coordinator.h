// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A process of a simulated coordinator. It decides with the real OfficeBook,
// Voter, Electorate, LogFeed and FeedReader. The threads and gRPC that carry
// the decisions out (server/election/election, server/elected, server/lead, the
// follower) are modelled in virtual time.
#ifndef TESTS_SIMULATION_ELECTIONS_ELECTED_COORDINATOR_H_
#define TESTS_SIMULATION_ELECTIONS_ELECTED_COORDINATOR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/election/electorate.h"
#include "server/election/office.h"
#include "server/election/office_book.h"
#include "server/replication/feed_reader.h"
#include "server/replication/log_feed.h"
#include "tests/simulation/elections/election_disk.h"
#include "tests/simulation/elections/elections_checker.h"
#include "tests/simulation/elections/surroundings.h"

namespace causeway::simulation {

class ElectedCoordinator;

// The parts that the processes of a history share, and that outlive them.
struct ElectionParts {
  const ElectionScenario* scenario;
  World* world;
  ElectionNetwork* network;
  EtcdService* etcd;
  ElectionsChecker* checker;
  std::vector<ElectionDisk>* disks;
  // The process that runs on each machine; null if none does.
  std::vector<ElectedCoordinator*>* running;
};

// A follower's connection to a leader.
struct FollowStream {
  ElectedCoordinator* follower;
  // Null until it has answered.
  ElectedCoordinator* leader = nullptr;
  uint32_t leader_machine = 0;
  absl::Time to_leader = absl::InfinitePast();
  absl::Time to_follower = absl::InfinitePast();
  // Decides what the leader sends.
  std::optional<FeedReader> reader;
  // If true, the leader counts it.
  bool has_joined = false;
  // If true, nothing arrives any more, which may not be noticed yet.
  bool is_broken = false;
  // If true, the follower has ended it.
  bool is_closed = false;
};

class ElectedCoordinator {
 public:
  // `number` is unique among all processes.
  ElectedCoordinator(const ElectionParts& parts, uint32_t machine,
                     uint64_t number);

  uint32_t machine() const { return machine_; }
  const std::string& name() const { return name_; }
  ElectionProcess& process() { return process_; }
  bool leads() const { return feed_ != nullptr; }

  void Die();
  // Breaks the streams to a machine, or all; both ends notice within `noticed`.
  void BreakStreams(std::optional<uint32_t> machine, absl::Duration noticed);

 private:
  using Stream = std::shared_ptr<FollowStream>;
  // The first message of a follower.
  struct Hello {
    std::string run_id;
    uint64_t epoch = 0;
    v1::LogPosition position;
  };

  ElectionDisk& disk() { return (*parts_.disks)[machine_]; }
  Chance& chance() { return parts_.world->chance; }
  absl::Duration WriteTime();
  // Breaks a stream; both ends notice within `noticed`.
  void Break(const Stream& stream, absl::Duration noticed);
  // Appends a change to the disk's log, and calls `done` when it is durable.
  void Append(std::shared_ptr<const v1::LogChange> change, uint64_t epoch,
              std::function<void()> done);
  // Makes a change that commits `head`, or no version.
  std::shared_ptr<const v1::LogChange> NewChange(
      uint64_t epoch, const std::optional<v1::FragmentHead>& head = {});
  // Returns the newest version that the log has or is about to get.
  uint64_t NewestVersion() const;
  void Loop();

  // --- The office (server/election/election.cc). ---

  void Ask(const etcdserverpb::TxnRequest& request,
           std::function<void(const absl::StatusOr<etcdserverpb::TxnResponse>&)>
               done);
  void GrantLease(std::function<void(const absl::StatusOr<int64_t>&)> done);
  void Revoke(int64_t lease);
  void Refresh(std::function<void()> done);
  void OfficeLoop();
  void TendLease(std::function<void()> done);
  void Write(const OfficeBook::Change& change,
             std::function<void(const absl::Status&)> done);

  // --- While the process follows (server/follow.cc, the follower). ---

  void Vote();
  void Campaign(const OfficeView& office, const Holding& holding);
  void TakeOver(uint64_t epoch);
  void Dial();
  // Notes that a stream is over, and dials again.
  void Lost(const Stream& stream);
  void Close();
  void Pause();
  // Handles the messages that arrived, in order.
  void Receive(const Stream& stream, std::function<void()> handle);
  void HandleNext();
  void TakeRun(const Stream& stream, const std::string& run_id, uint64_t epoch);
  void TakeCopy(const Stream& stream, const LogOfChanges& log);
  // Makes the outer step of a record.
  void TakeRecord(const v1::FragmentHead& head);
  void TakeChange(const Stream& stream,
                  const std::shared_ptr<const v1::LogChange>& change);
  // Writes the changes that wait, if the disk does not write others.
  void WriteGroup(const Stream& stream);
  void Acknowledge(const Stream& stream, uint64_t index);

  // --- A leader (server/lead.cc, the engine). ---

  void Lead();
  void LeadLoop();
  void Tend();
  void MakeChanges();
  // Announces the record of the next version, writes it, and commits it.
  void MakeVersion();
  void Commit(const std::shared_ptr<const v1::LogChange>& change);
  // Publishes the version that waits, if all followers in sync have it.
  void TryPublish();
  void StandDown(uint64_t epoch);
  void EndLeading();
  void Accept(const Stream& stream, const Hello& hello);
  void Send(const Stream& stream, std::function<void()> handle);
  // Sends what is new to a follower.
  void Pump(const Stream& stream);
  // Sends what is new to followers whose streams are idle.
  void PumpSome();
  void Hear(const Stream& stream, uint64_t index);
  void Leave(const Stream& stream);
  // Ends a stream of a follower.
  void Refuse(const Stream& stream);
  void TellReplaced();

  const ElectionParts parts_;
  const uint32_t machine_;
  const uint64_t number_;
  const std::string name_;
  ElectionProcess process_;
  OfficeBook book_;
  // Returns whether the disk or the outer step is busy.
  bool IsBusy() const { return is_busy_ || is_writing_; }
  bool is_busy_ = false;

  std::optional<Voter> voter_;
  bool is_campaigning_ = false;
  // The run and epoch of the copy, as far as this process knows.
  std::string run_id_;
  uint64_t epoch_ = 0;
  // The machine that this one follows.
  std::optional<uint32_t> following_;
  // Null while there is none.
  Stream stream_;
  std::deque<std::function<void()>> inbox_;
  // The version that is made, but whose change has not come.
  std::optional<v1::FragmentHead> ahead_;
  // The changes that wait for the disk, which writes others meanwhile
  // (server/replication/change_writer.h).
  LogOfChanges waiting_;
  bool is_writing_ = false;

  // The leader's feed; null if the process does not lead.
  std::unique_ptr<LogFeed> feed_;
  std::optional<Electorate> electorate_;
  bool is_tending_ = false;
  bool stood_down_ = false;
  // The changes that its log began with, and whether islands may come.
  size_t first_ = 0;
  bool is_begun_ = false;
  // The change of the version that waits for followers; 0 if none does.
  uint64_t awaited_ = 0;
  std::vector<Stream> followers_;
  // The machine of the previous leader.
  std::optional<uint32_t> replaced_;
  uint64_t changes_made_ = 0;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_ELECTIONS_ELECTED_COORDINATOR_H_
