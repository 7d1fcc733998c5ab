// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One fragment's traffic with the coordinator, on a thread of its own, so that
// training goes on beside it and several fragments can be in flight.
//
// Problem: the anchor (the fragment's global values this island holds) must
// advance through exactly the versions the coordinator committed, while
// uploads break off, rounds close late or without us, and the coordinator or
// our own membership may be replaced at any moment.
// Idea: the link keeps no record of what it told whom. It compares the
// anchor's version with the newest published head, offers the contribution
// that is due (idempotent, so offering again is harmless), and otherwise
// fetches the update from the anchor's version to the next. Whether our
// contribution is part of that update is for the coordinator to say.
//
//   IDLE --Send--> SENDING --sent--> AWAITING --head moved--> FETCHING
//   --> READY --Advance--> IDLE         (IDLE --head moved--> FETCHING)
//
// A round trip may be longer than many inner steps, so the link does not wait
// for what it can ask for: bytes follow the first offer of a contribution at
// once, and the update is asked for when the last byte has gone, so that it
// sets out as soon as it is made.
//
// Bulk data is worked on while it moves: the beginning of a contribution is
// sent while the rest is encoded, and an update is decoded while it comes in.
//
// Values are the replica's affair (worker/replica/fragment_replica.h).
//
// The training thread calls Send, ready and Advance; see each for when. The
// link's thread has a low priority, so that it takes what training leaves.
#ifndef WORKER_SYNC_FRAGMENT_LINK_H_
#define WORKER_SYNC_FRAGMENT_LINK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "quantization/codec.h"
#include "worker/replica/fragment_replica.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/fragment_window.h"
#include "worker/sync/island_session.h"
#include "worker/sync/streamed_encoding.h"

namespace causeway {

// What a snapshot of the fragment has learnt since the anchor.
struct FragmentSnapshot {
  FragmentWindow::Training training;
  // Cut short because the island leaves.
  bool partial = false;
};

class FragmentLink {
 public:
  struct Options {
    uint32_t fragment = 0;
    // Those of the replica.
    CodecSpec uplink;
    CodecSpec downlink;
    // FragmentWindow::earlier_until.
    uint64_t earlier_until = 0;
    // Seeds the jitter of the back-off.
    uint64_t seed = 0;
  };

  // The anchor of `replica` has the values at `head`. replica, client and
  // session outlive the link.
  FragmentLink(Options options, v1::FragmentHead head, FragmentReplica* replica,
               CoordinatorClient* client, IslandSession* session);
  // Stops the thread; a call under way ends when the client is shut down.
  ~FragmentLink();

  // --- For the training thread. ---

  // Of the anchor.
  uint64_t version() const { return version_; }

  // Hands over the replica's last snapshot as a contribution against the
  // anchor; nothing else of this fragment may be under way (in_flight() is
  // false).
  void Send(FragmentSnapshot snapshot);

  // Whether a contribution was handed over and its update not yet applied.
  bool in_flight() const;
  // Whether the coordinator has what was handed over: nothing is lost if the
  // island ends now.
  bool accepted() const;
  // Whether an update waits to be applied.
  bool ready() const;
  // Waits until an update is ready, the link has failed, or the timeout.
  // True if an update is ready.
  bool AwaitReady(absl::Duration timeout) const;

  // The update that is ready, for the replica to apply; the link leaves the
  // replica alone until Advance.
  FragmentUpdate update() const;
  // It has been applied: the anchor is at its version.
  void Advance();

  // Why the link cannot go on; OK while it can.
  absl::Status status() const;

 private:
  struct Contribution {
    StreamedEncoding encoding;
    FragmentSnapshot snapshot;
    bool offered = false;
  };

  void Run();
  absl::Status Begin(const FragmentSnapshot& snapshot);
  // Ends the contribution under way, if there is one.
  absl::Status End(bool merged);
  // Passes on an error of the replica, after which there is no other try.
  absl::Status Replica(absl::Status status);
  // Does one thing that is due; false if nothing is.
  absl::StatusOr<bool> Step(const IslandView& view);
  bool MayOffer(const IslandView& view) const;
  absl::Status Contribute(const IslandView& view);
  // Asks for the update from the anchor's version to the next; if `wait`, also
  // before there is one.
  std::unique_ptr<UpdateStream> FetchUpdate(const IslandView& view, bool wait);
  // The one that was asked for, or is asked for now.
  absl::StatusOr<FragmentUpdate> DownloadUpdate(const IslandView& view);
  // Decodes what has come of the update since the last call.
  absl::Status DecodeUpdate();
  // The parameters for an update that cannot be had or does not fit.
  absl::StatusOr<FragmentUpdate> DownloadInstead(const IslandView& view,
                                                 absl::string_view reason);
  // Whether a contribution of an earlier process is part of an update that is
  // skipped on the way to version `head`.
  absl::StatusOr<bool> SkippedIncludeOther(const IslandView& view,
                                           uint64_t head);
  // The whole fragment at its newest version, as an update.
  absl::StatusOr<FragmentUpdate> DownloadParameters(const IslandView& view);

  const Options options_;
  FragmentReplica* const replica_;
  CoordinatorClient* const client_;
  IslandSession* const session_;

  // Written by Advance only, while the thread is at rest.
  uint64_t version_;

  // The thread's own: the contribution under way and the connection it was
  // last offered on.
  std::optional<Contribution> contribution_;
  std::optional<uint64_t> offered_on_connection_;
  // The update that the contribution under way will be part of, asked for as
  // soon as the contribution was sent.
  std::unique_ptr<UpdateStream> expected_;
  UpdateDownload update_download_;
  // Whether the description of update_download_ has been checked.
  bool update_described_ = false;
  ParametersDownload parameters_download_;
  bool replica_failed_ = false;

  mutable absl::Mutex mu_;
  std::optional<FragmentSnapshot> to_send_ ABSL_GUARDED_BY(mu_);
  bool in_flight_ ABSL_GUARDED_BY(mu_) = false;
  bool accepted_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<FragmentUpdate> ready_ ABSL_GUARDED_BY(mu_);
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_FRAGMENT_LINK_H_
