// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One fragment's traffic with the coordinator.
//
// Problem: the anchor (the fragment's global values that this island holds)
// must advance through exactly the versions that the coordinator committed,
// although uploads break off, rounds close late or without us, and the
// coordinator or our membership may be replaced at any moment. Idea: the
// exchange keeps no record of past messages. It compares the anchor's version
// with the newest published head, offers the contribution that is due (offers
// are idempotent), and otherwise fetches the update from the anchor's version
// to the next. The coordinator says whether our contribution is part of that
// update.
//
//   IDLE --Send--> SENDING --sent--> AWAITING --head moved--> FETCHING
//   --> READY --Advance--> IDLE         (IDLE --head moved--> FETCHING)
//
// A round trip may be longer than many inner steps, so the exchange asks for
// the update as soon as the last byte of the contribution is sent. The
// coordinator can then send the update as soon as it is made.
//
// Pure rules: no thread, socket or clock. Not thread-safe.
#ifndef WORKER_OUTER_LOOP_FRAGMENT_EXCHANGE_H_
#define WORKER_OUTER_LOOP_FRAGMENT_EXCHANGE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/backoff.h"
#include "proto/coordinator.pb.h"
#include "worker/outer_loop/actions.h"
#include "worker/outer_loop/fragment_window.h"
#include "worker/outer_loop/island_membership.h"

namespace causeway {

// The answer to ReceiveUpdate.
struct UpdateAnswer {
  // NOT_FOUND if the update is no longer kept.
  absl::Status status;
  // Is true if any bytes of the update have arrived.
  bool began = false;
  // The description of the update, as in FetchUpdateResponse; default values if
  // it has not arrived.
  v1::FragmentHead head;
  bool includes_island = false;
  FragmentWindow::Training other;
  // The Digest128 of the anchor after the update, if the status is OK.
  std::string anchor_digest;
};

class FragmentExchange {
 public:
  struct Options {
    uint32_t fragment = 0;
    // FragmentWindow::earlier_until() of the fragment's window.
    uint64_t earlier_until = 0;
    // Seeds the jitter of the back-off.
    uint64_t seed = 0;
  };

  // `version` is the version of the replica's anchor.
  FragmentExchange(Options options, uint64_t version);

  // Returns the next action of the fragment's actor.
  FragmentAction Next(const IslandMembership& membership, absl::Time now) const;

  // --- Events of the fragment's actor. ---

  // Notes that the last byte of the contribution, whose encoding has `digest`,
  // is sent. Returns the request for the update that will contain it. The host
  // sends the request at once, and receives the update when ordered to.
  v1::FetchUpdateRequest ContributionSent(const IslandMembership& membership,
                                          std::string digest);
  // Notes that a try to contribute has ended. A failure voids the request from
  // ContributionSent. `digest` is empty until all of the contribution is
  // encoded.
  void ContributionAnswered(
      const action::Contribute& contribute,
      const absl::StatusOr<v1::ContributeResponse>& response,
      std::string digest, absl::Time now);
  void UpdateAnswered(const UpdateAnswer& answer, absl::Time now);
  // Notes that the parameters at `head` are the replica's new anchor, or that
  // fetching them failed.
  void ParametersAnswered(const absl::StatusOr<v1::FragmentHead>& head,
                          absl::Time now);
  // `merged` is the part of the island's training in the update that was asked
  // about. After NOT_FOUND the replica cannot be used: SaysVersionIsLost.
  void MergedAnswered(const absl::StatusOr<FragmentWindow::Training>& merged,
                      absl::Time now);
  void ContributionEnded();

  // --- Events of the trainer. ---

  // Hands over the replica's last snapshot as a contribution against the
  // anchor. Requires: in_flight() is false.
  void Send(const FragmentWindow::Training& training, bool partial);
  // Notes that the trainer has applied the update. Requires: ready().
  void Advance();

  // --- Views. ---

  // The version of the anchor.
  uint64_t version() const { return version_; }
  // Returns whether a contribution was handed over whose update is not applied.
  bool in_flight() const { return in_flight_; }
  // Returns whether the coordinator has accepted the handed-over contribution,
  // so that it is not lost if the island ends now. A coordinator that was
  // restarted has forgotten what it accepted, and answers on another
  // connection.
  bool accepted(const IslandMembership& membership) const;
  // Returns whether an update waits for the trainer. Until it is applied, the
  // fragment's actor rests.
  bool ready() const { return step_ == Step::kReady; }
  // Requires: ready().
  const AnchorChange& update() const { return update_; }
  // Returns OK, or why the exchange cannot continue.
  const absl::Status& failure() const { return failure_; }

 private:
  struct Contribution {
    FragmentWindow::Training training;
    bool partial = false;
    bool offered = false;
    // The encoding's digest; empty while the encoding is incomplete, and so
    // cannot have been accepted.
    std::string digest;
  };
  // The exchange's progress to its next version.
  enum class Step {
    // No update has arrived.
    kNone,
    // The update is no longer kept or does not fit; the parameters are fetched.
    kFetchParameters,
    // The coordinator is asked about the updates that the parameters skip.
    kAsk,
    // The update has arrived; the replica ends its contribution.
    kEndContribution,
    // The update waits for the trainer.
    kReady,
  };

  bool MayOffer(const IslandMembership& membership) const;
  v1::FetchUpdateRequest UpdateRequest(const IslandMembership& membership,
                                       uint64_t from_version) const;
  // Notes that the update or its replacement is complete.
  void Arrived();
  void Retry(const absl::Status& status, absl::Time now);

  const Options options_;
  Backoff backoff_;
  // The time of the next try, after a failure.
  absl::Time not_before_ = absl::InfinitePast();
  absl::Status failure_;

  uint64_t version_;
  std::optional<Contribution> contribution_;
  // The connection on which the contribution was last offered successfully, and
  // the island's identity then.
  std::optional<uint64_t> offered_on_;
  v1::IslandIdentity offered_as_;
  bool in_flight_ = false;
  bool accepted_ = false;
  // Is true if the host has asked for the update that will contain the
  // contribution.
  bool expecting_ = false;
  Step step_ = Step::kNone;
  AnchorChange update_;
  // In kAsk, the version whose update is asked about.
  uint64_t ask_version_ = 0;
};

}  // namespace causeway

#endif  // WORKER_OUTER_LOOP_FRAGMENT_EXCHANGE_H_
