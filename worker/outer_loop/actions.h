// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The actions that the outer loop (worker/outer_loop/outer_loop.h) orders its
// host to do.
//
// Three kinds of actors carry out one action at a time: the trainer owns the
// parameters, the session keeps the membership, and one actor for each fragment
// moves bulk data. An action's comment names the event by which the actor
// answers it. Wait and End have no answer.
#ifndef WORKER_OUTER_LOOP_ACTIONS_H_
#define WORKER_OUTER_LOOP_ACTIONS_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/island.pb.h"

namespace causeway {
namespace action {

// --- For every actor. ---

// Do nothing until an event comes or the clock reaches `until`. Only the
// trainer's action says why, unless it waits for its own fetch.
struct Wait {
  absl::Time until = absl::InfiniteFuture();
  v1::Wait why;
};

// Stop. Only the trainer's action has a status: OK if the run is finished;
// CANCELLED if the island was told to leave or to stop; OUT_OF_RANGE if its
// replica has diverged; otherwise the reason why it cannot take part.
struct End {
  absl::Status status;
};

// --- For the session. ---

// Call Coordinator.Join. Answer: IslandMembership::JoinAnswered.
struct Join {
  v1::JoinRequest request;
};
// Open a control stream. Answer: IslandMembership::StreamOpened. From then on
// the session reports each view by ViewArrived, and the end of the stream by
// StreamBroke.
struct OpenStream {};
// Send a heartbeat. Answer: IslandMembership::HeartbeatSent, or StreamBroke.
struct Heartbeat {
  v1::IslandIdentity identity;
  // Is true if the island can train; sent with its progress.
  bool ready = false;
};
// Close the stream. Answer: IslandMembership::StreamEnded with its status.
struct CloseStream {
  // Is true if the stream must be cancelled, because it does not end by itself.
  bool cancel = false;
  // Is true if the coordinator has been silent for too long.
  bool is_silent = false;
};

// --- For a fragment. ---

// Offer the replica's last snapshot, and upload the part that the coordinator
// lacks. Answer: FragmentExchange::ContributionAnswered. If the last byte is
// sent before the verdict comes, the actor first calls
// FragmentExchange::ContributionSent.
struct Contribute {
  // The header, without the description of the encoding.
  v1::ContributionHeader header;
  // Is true if the snapshot was never offered, and must first be made a
  // contribution. Otherwise an earlier try broke off, and the whole
  // contribution must be encoded first, because only an upload whose header
  // describes the whole encoding can be resumed.
  bool is_new = false;
  // The connection on which the contribution is offered.
  uint64_t connection = 0;
  // If `is_new`, the bits per value that the encoding aims at; 0 if its format
  // has no such target.
  double uplink_bits = 0;
};
// Receive and decode an update. Answer: FragmentExchange::UpdateAnswered.
struct ReceiveUpdate {
  v1::FetchUpdateRequest request;
  // Is true if the host asked for the update when it had sent the contribution.
  bool is_under_way = false;
};
// Fetch a fragment's parameters. A fragment's actor makes them the new anchor
// and answers by FragmentExchange::ParametersAnswered. The trainer keeps them
// for its start, and may make version 0 itself from the run's seed; it answers
// by OuterLoop::ParametersAnswered, after OuterLoop::FetchStarted if another
// thread fetches them.
struct FetchParameters {
  v1::FetchParametersRequest request;
};
// Ask how much of this island's training an update contains, without fetching
// the update. Answer: FragmentExchange::MergedAnswered.
struct AskWhatIsMerged {
  v1::FetchUpdateRequest request;
};
// End the replica's contribution. Answer: FragmentExchange::ContributionEnded.
struct EndContribution {
  // Is true if the received update contains it.
  bool merged = false;
};

// --- For the trainer. ---

// Make the replica, from the checkpoint or from fetched parameters. Answer:
// OuterLoop::Begun.
struct Begin {
  bool from_checkpoint = false;
  // The heads of the anchors, by fragment.
  std::vector<v1::FragmentHead> heads;
};
// Train the inner step after which `step` steps of the run are complete.
// Answer: OuterLoop::Stepped.
struct Train {
  uint64_t step = 0;
};
// Take a snapshot of a fragment. Answer: OuterLoop::SnapshotTaken.
struct TakeSnapshot {
  uint32_t fragment = 0;
};
// Apply a fragment's update, which is ready. Answer: OuterLoop::Applied.
struct Apply {
  uint32_t fragment = 0;
  // Is true if the update contains the training up to the snapshot.
  bool includes_island = false;
};
// Measure the loss of the anchors, together a version of the whole model, on
// the held-out data. Answer: OuterLoop::Validated.
struct Validate {
  uint64_t version = 0;
  // The most sequences; 0 for all.
  uint32_t max_sequences = 0;
};
// Save a checkpoint. The host adds the digests of the anchors and the state of
// the inner optimizer to `position`. Answer: OuterLoop::Saved.
struct Save {
  v1::IslandCheckpoint position;
};

}  // namespace action

using SessionAction =
    std::variant<action::Wait, action::End, action::Join, action::OpenStream,
                 action::Heartbeat, action::CloseStream>;
using FragmentAction =
    std::variant<action::Wait, action::End, action::Contribute,
                 action::ReceiveUpdate, action::FetchParameters,
                 action::AskWhatIsMerged, action::EndContribution>;
using TrainerAction =
    std::variant<action::Wait, action::End, action::FetchParameters,
                 action::Begin, action::Train, action::TakeSnapshot,
                 action::Apply, action::Validate, action::Save>;

}  // namespace causeway

#endif  // WORKER_OUTER_LOOP_ACTIONS_H_
