// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What the outer loop (worker/outer_loop/outer_loop.h) tells its host to do.
//
// Three kinds of actors carry actions out, one action at a time each: the
// trainer, which owns the parameters; the session, which keeps the membership;
// and one actor for each fragment, which moves bulk data. Every action but Wait
// and End is answered by the event that its comment names.
#ifndef WORKER_OUTER_LOOP_ACTIONS_H_
#define WORKER_OUTER_LOOP_ACTIONS_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/island.pb.h"
#include "worker/replica/fragment_part.h"

namespace causeway {
namespace action {

// --- For every actor. ---

// There is nothing to do before an event comes or the clock shows `until`.
struct Wait {
  absl::Time until = absl::InfiniteFuture();
};

// The actor is done for good. The status is the trainer's: OK if the run is
// finished; CANCELLED if the island was told to leave or to stop; OUT_OF_RANGE
// if its replica has diverged; else why it cannot take part.
struct End {
  absl::Status status;
};

// --- For the session. ---

// Call Coordinator.Join; IslandMembership::JoinAnswered.
struct Join {
  v1::JoinRequest request;
};
// Open a control stream; IslandMembership::StreamOpened. From then on each view
// that comes is told by ViewArrived, and the end of them by StreamBroke.
struct OpenStream {};
// Send a heartbeat; IslandMembership::HeartbeatSent, or StreamBroke.
struct Heartbeat {
  v1::IslandIdentity identity;
};
// Close the stream; IslandMembership::StreamEnded with its status.
struct CloseStream {
  // It does not end by itself.
  bool cancel = false;
};

// --- For a fragment. ---

// Offer the replica's last snapshot, and upload what the coordinator has not
// got yet; FragmentExchange::ContributionAnswered. When all bytes have gone,
// and before the verdict has come, FragmentExchange::ContributionSent.
struct Contribute {
  // Without the description of the encoding.
  v1::ContributionHeader header;
  // Nothing of it was offered before: make the snapshot a contribution first.
  // Otherwise encode all of it first, since only a contribution that is
  // described whole can be resumed.
  bool is_new = false;
  // The connection on which it is offered.
  uint64_t connection = 0;
};
// Receive and decode an update; FragmentExchange::UpdateAnswered.
struct ReceiveUpdate {
  v1::FetchUpdateRequest request;
  // It was asked for already, when the contribution had been sent.
  bool is_under_way = false;
};
// Fetch a fragment's parameters. For a fragment: they are its new anchor;
// FragmentExchange::ParametersAnswered. For the trainer: the island begins with
// them; OuterLoop::ParametersAnswered.
struct FetchParameters {
  v1::FetchParametersRequest request;
};
// Ask how much of this island's training is part of an update, which is not
// needed itself; FragmentExchange::MergedAnswered.
struct AskWhatIsMerged {
  v1::FetchUpdateRequest request;
};
// The contribution under way is over; FragmentExchange::ContributionEnded.
struct EndContribution {
  bool merged = false;
};

// --- For the trainer. ---

// Make the replica: of the checkpoint, or of the parameters that were fetched,
// and of version 0, which is made from the run's seed, for fragments that are
// there; OuterLoop::Begun.
struct Begin {
  bool from_checkpoint = false;
  // By fragment: what the anchors are.
  std::vector<v1::FragmentHead> heads;
};
// Train the inner step that makes `step` steps of the run complete;
// OuterLoop::Stepped.
struct Train {
  uint64_t step = 0;
};
// Take a snapshot of a fragment; OuterLoop::SnapshotTaken.
struct TakeSnapshot {
  uint32_t fragment = 0;
  // The parameters may then make the expected outer step.
  bool eager = false;
};
// Apply the update of a fragment that is ready; OuterLoop::Applied.
struct Apply {
  uint32_t fragment = 0;
  UpdateUse use;
};
// Save a checkpoint; OuterLoop::Saved. `position` lacks the digests of the
// anchors, and what the trainer knows.
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
                 action::Apply, action::Save>;

}  // namespace causeway

#endif  // WORKER_OUTER_LOOP_ACTIONS_H_
