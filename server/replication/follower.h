// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Keeps a copy of another coordinator's (the leader's) run in a state directory
// (proto/replication.proto). The copy has the leader's log, the records of
// merges, and the parameters of the same outer steps, which this process makes
// itself. So leader and copy check each other: if an outer step gives other
// values here, following ends with DATA_LOSS.
//
//   ASSIGN_OR_RETURN(auto follower, Follower::Open(options));
//   follower->Follow("a.example:7070");
//   ...
//   ASSIGN_OR_RETURN(auto promoted, follower->Promote(request));
//   Engine::Start(engine_options, follower->Release());
//
// While a copy is incomplete, its directory has the file incomplete-copy, and
// no coordinator takes it up. A new log alone does not make a copy incomplete:
// it takes the old log's place once everything that it needs is there.
//
// One thread follows, and keeps reconnecting while the leader cannot be
// reached. Another makes received changes durable. Thread-safe, except that
// Follow and Pause are for one thread.
#ifndef SERVER_REPLICATION_FOLLOWER_H_
#define SERVER_REPLICATION_FOLLOWER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/os/file.h"
#include "common/os/thread_pool.h"
#include "grpcpp/grpcpp.h"
#include "proto/replication.grpc.pb.h"
#include "proto/replication.pb.h"
#include "proto/run_config.pb.h"
#include "server/buffer_pool.h"
#include "server/fragment_heads.h"
#include "server/fragment_merge.h"
#include "server/replication/change_writer.h"
#include "server/replication/published_copy.h"
#include "server/storage/state_directory.h"

namespace causeway {

class Follower {
 public:
  struct Options {
    // The credentials for calls to the leader.
    std::shared_ptr<grpc::ChannelCredentials> credentials =
        grpc::InsecureChannelCredentials();
    std::string state_dir;
    // The follower's name: 1 to 64 characters of [a-z0-9-].
    std::string name;
    // See FollowRequest.Hello.
    std::string region;
    std::string address;
    // Is true if the coordinators elect their leader (server/election). Then an
    // operator cannot promote this one.
    bool is_candidate = false;
    // The seed that spreads retries.
    uint64_t seed = 0;
    // Threads of an outer step, at least 1.
    int merge_threads = 1;
    // See Engine::Options.
    bool evictable_state = false;
  };

  struct View {
    // The address of the current or last leader, or empty.
    std::string leader;
    // The address of the leader that the log names; empty if it is no copy.
    std::string recorded_leader;
    // Empty until the run is known.
    std::string run_id;
    // The configuration that the leader runs with.
    v1::RunConfig config;
    uint64_t epoch = 0;
    // Is true if the run can continue from the directory.
    bool is_complete = false;
    // Is true while the leader sends.
    bool is_connected = false;
    // The number of changes that the copy has, and that the leader is known to
    // have.
    uint64_t changes = 0;
    uint64_t leader_changes = 0;
    // Says why the last try to follow ended; OK if none has, and after a pause.
    absl::Status problem;
    // Says why following has permanently ended; OK if it has not.
    absl::Status ended;
    // Is true once the copy has taken over.
    bool is_promoted = false;
  };

  // Opens or makes the directory. A former leader's directory becomes a copy
  // once a leader with a higher epoch is followed. Returns the errors of
  // StateDirectory::Open and of FragmentHeads::Restore.
  static absl::StatusOr<std::unique_ptr<Follower>> Open(Options options);
  // Stops following, and makes snapshots, so that the next start is quick.
  ~Follower();

  // Follows the leader at this address from now on.
  void Follow(const std::string& leader);
  // Stops following. The leader gets no more acknowledgements.
  void Pause() ABSL_LOCKS_EXCLUDED(mu_);

  View view() const {
    absl::MutexLock lock(&mu_);
    return view_;
  }
  // Checks a client's certificate against those that the leader has reported as
  // revoked. `serial` is in lower-case hexadecimal digits.
  //   UNAUTHENTICATED  It was revoked.
  absl::Status CheckCertificate(absl::string_view serial) const;
  // Returns the part of the copy that islands may read.
  PublishedCopy& published() { return published_; }
  const std::string& state_dir() const { return options_.state_dir; }
  bool is_candidate() const { return options_.is_candidate; }

  // Stops following and makes the copy the run's state directory, which an
  // Engine may take up once this object is gone. After an error it continues to
  // follow. Errors as in proto/replication.proto, and those of
  // CommitLog::TakeOver.
  absl::StatusOr<v1::PromoteResponse> Promote(
      const v1::PromoteRequest& request);
  // Does the same for a paused follower that was elected with this epoch.
  absl::Status TakeOver(uint64_t epoch);

  // Hands the directory over, so that an Engine need not read it. Only view()
  // may be called afterwards.
  OpenedRun Release();

 private:
  using Stream =
      grpc::ClientReaderWriter<v1::FollowRequest, v1::FollowResponse>;

  struct Incoming {
    v1::ReplicatedObject description;
    // One of these takes the bytes.
    std::optional<AtomicFileWriter> file;
    std::optional<NewFragment> state;
    uint64_t received = 0;
  };

  // The most records that come with a new log before the old copy is discarded.
  static constexpr size_t kMostKeptRecords = 256;

  explicit Follower(Options options);

  // Makes an error of this process's own disk, which may take writes again
  // later, one after which the follower tries again.
  static absl::Status OfOwnDisk(const absl::Status& error);
  // Opens the state directory and its copy. After an error neither is open.
  absl::Status OpenDirectory() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status OpenCopy() ABSL_LOCKS_EXCLUDED(mu_);
  void Loop();
  // Follows until the stream breaks, and returns why.
  absl::Status FollowOnce();
  v1::FollowRequest Hello();
  absl::Status Handle(v1::FollowResponse& response, Stream& stream);
  absl::Status TakeRun(const v1::FollowedRun& run);
  absl::Status BeginObject(const v1::ReplicatedObject& object);
  absl::Status BeginState(const v1::ReplicatedObject& object);
  absl::Status TakeChunk(const v1::Chunk& chunk, Stream& stream);
  absl::Status EndObject(Stream& stream);
  // Keeps a record that the new log needs.
  absl::Status KeepRecord(AtomicFileWriter record);
  // Repeats the outer step of a record.
  absl::Status Repeat(const v1::FragmentHead& head, AtomicFileWriter record,
                      Stream& stream);
  absl::StatusOr<MergedFragment> MakeVersion(const v1::FragmentHead& head,
                                             const AtomicFileWriter& record,
                                             const FragmentContents& before);
  absl::Status TakeChange(v1::LogChange change);
  // Makes changes durable. Runs on the thread of the writer.
  absl::Status WriteGroup(std::vector<ReceivedChange> group, Stream& stream);
  // Tells the leader, and view(), that all changes up to this one are durable.
  void Acknowledge(uint64_t index, Stream& stream);
  // Tells the leader that this follower is at work, if it has not done so for a
  // second.
  void SayAtWork(Stream& stream);
  void Send(uint64_t durable_index, Stream& stream);
  // Notes that the copy is complete.
  absl::Status EndCatchUp();
  // Notes that a new log comes.
  absl::Status BeginCopy();
  // Marks the copy as incomplete, because its files are about to be replaced.
  absl::Status DiscardCopy();
  // Stops using the copy.
  void CloseCopy() ABSL_LOCKS_EXCLUDED(mu_);
  // Puts the new log in place, and opens the copy.
  absl::Status EndCopy();
  // Makes the copy the run's, for a paused follower.
  absl::StatusOr<v1::PromoteResponse> TakeOverPaused() ABSL_LOCKS_EXCLUDED(mu_);
  // Raises the epoch and returns it. If none is given, it becomes one more than
  // the highest that this follower has heard of.
  absl::StatusOr<uint64_t> RaiseEpoch(std::optional<uint64_t> epoch);
  // Notes a takeover that gave the log this epoch.
  void NoteTakeover(uint64_t epoch) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const Clock now_ = SteadyWallClock();

  PublishedCopy published_;

  // --- For the following thread, or for others while it does not run. ---

  std::string leader_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<StateDirectory> state_;
  // Null while the copy is incomplete.
  std::unique_ptr<FragmentHeads> heads_;
  std::optional<RunRecord> run_;
  // Is true if the directory has a copy, not its own run.
  bool is_copy_ = false;
  // The epoch of the leader whose changes this process last had all of.
  uint64_t caught_up_epoch_ = 0;
  // Is true if the leader of that epoch has lost changes since.
  bool is_ahead_ = false;
  ThreadPool pool_;
  BufferPool memory_;
  std::optional<Incoming> incoming_;
  // The time at which the leader last heard that this follower is at work, or
  // knew it because it sent a record.
  absl::Time said_at_ = absl::InfinitePast();
  // By fragment, a version that was made but whose change has not come.
  std::map<uint32_t, ReceivedVersion> ahead_;
  // Null while no call is under way.
  std::unique_ptr<ChangeWriter> writer_;
  // Is true while a new log, and what it needs, comes.
  bool is_copying_ = false;
  // Is true once the old copy is marked as incomplete. Until then it is whole
  // and in use, and the new log and records are in temporary files, which go
  // if the stream breaks.
  bool is_discarded_ = false;
  std::optional<AtomicFileWriter> log_;
  std::vector<AtomicFileWriter> records_;
  // The received states of the new copy, by fragment.
  std::map<uint32_t, SnapshotRecord> states_;

  absl::Mutex promote_mu_;
  // Is held while the stream is written to.
  absl::Mutex send_mu_;
  mutable absl::Mutex mu_;
  View view_ ABSL_GUARDED_BY(mu_);
  v1::RevokedCertificates revoked_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // The call under way; null if there is none.
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mu_) = nullptr;

  std::thread thread_;
};

}  // namespace causeway

#endif  // SERVER_REPLICATION_FOLLOWER_H_
