// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One fragment's traffic with the coordinator.
//
// Problem: the anchor (the fragment's global values that this island holds)
// must advance through exactly the versions that the coordinator committed,
// while uploads break off, rounds close late or without us, and the coordinator
// or our own membership may be replaced at any moment.
// Idea: the exchange keeps no record of what it told whom. It compares the
// anchor's version with the newest published head, offers the contribution that
// is due (this is idempotent, so that offering again is harmless), and
// otherwise fetches the update from the anchor's version to the next. The
// coordinator says whether our contribution is part of that update.
//
//   IDLE --Send--> SENDING --sent--> AWAITING --head moved--> FETCHING
//   --> READY --Advance--> IDLE         (IDLE --head moved--> FETCHING)
//
// A round trip may be longer than many inner steps, so the exchange does not
// wait for what it can ask for: the update is asked for when the last byte of
// the contribution has gone, so that it sets out as soon as it is made.
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

// What came of ReceiveUpdate.
struct UpdateAnswer {
  // NOT_FOUND: the update is no longer kept.
  absl::Status status;
  // Whether any of its bytes have come.
  bool began = false;
  // The description, as far as it has come, as in FetchUpdateResponse.
  v1::FragmentHead head;
  bool includes_island = false;
  double island_share = 0;
  FragmentWindow::Training other;
  // If the status is OK: the Digest128 of the anchor after the update.
  std::string anchor_digest;
};

class FragmentExchange {
 public:
  struct Options {
    uint32_t fragment = 0;
    // FragmentWindow::earlier_until.
    uint64_t earlier_until = 0;
    // Seeds the jitter of the back-off.
    uint64_t seed = 0;
  };

  // `version` is that of the replica's anchor.
  FragmentExchange(Options options, uint64_t version);

  // Returns what the fragment's actor is to do now. Changes nothing.
  FragmentAction Next(const IslandMembership& membership, absl::Time now) const;

  // --- Events of the fragment's actor. ---

  // The contribution is sent, and its digest is known. Returns the request for
  // the update that it will be part of: the host asks for it at once, and
  // receives it when it is told to.
  v1::FetchUpdateRequest ContributionSent(const IslandMembership& membership,
                                          std::string digest);
  // A try to contribute has ended; if it failed, what was asked for by
  // ContributionSent is void. `digest` is empty if it is not known.
  void ContributionAnswered(
      const action::Contribute& contribute,
      const absl::StatusOr<v1::ContributeResponse>& response,
      std::string digest, absl::Time now);
  void UpdateAnswered(const UpdateAnswer& answer, absl::Time now);
  // The replica's new anchor are the parameters at this head.
  void ParametersAnswered(const absl::StatusOr<v1::FragmentHead>& head,
                          absl::Time now);
  // Of the island's training, so much is part of the update that was asked
  // about.
  void MergedAnswered(const absl::StatusOr<FragmentWindow::Training>& merged,
                      absl::Time now);
  void ContributionEnded();

  // --- Events of the trainer. ---

  // Hands over the replica's last snapshot as a contribution against the
  // anchor. Requires: in_flight() is false.
  void Send(const FragmentWindow::Training& training, bool partial);
  // The update that was ready is applied. Requires: ready().
  void Advance();

  // --- Views. ---

  // The version of the anchor.
  uint64_t version() const { return version_; }
  // Whether a contribution was handed over and its update not yet applied.
  bool in_flight() const { return in_flight_; }
  // Whether the coordinator has what was handed over: nothing of it is lost if
  // the island ends now.
  bool accepted() const { return accepted_; }
  // Whether an update waits to be applied; the actor is at rest meanwhile.
  bool ready() const { return step_ == Step::kReady; }
  // Requires: ready().
  const FragmentUpdate& update() const { return update_; }
  // Why the exchange cannot go on; OK while it can.
  const absl::Status& failure() const { return failure_; }

 private:
  struct Contribution {
    FragmentWindow::Training training;
    bool partial = false;
    bool offered = false;
    // Of the encoding; empty while it is not complete: then nobody has accepted
    // it.
    std::string digest;
  };
  // How far the step to the next version is.
  enum class Step {
    // Nothing of it is there.
    kNone,
    // The update cannot be had or does not fit: fetch the parameters.
    kFetchParameters,
    // Ask about the updates that the parameters skip.
    kAsk,
    // The contribution under way is over.
    kEndContribution,
    kReady,
  };

  bool MayOffer(const IslandMembership& membership) const;
  v1::FetchUpdateRequest UpdateRequest(const IslandMembership& membership,
                                       uint64_t from_version) const;
  // The step is complete, but for the end of the contribution under way.
  void Arrived();
  void Retry(const absl::Status& status, absl::Time now);

  const Options options_;
  Backoff backoff_;
  // Of the next try of what failed.
  absl::Time not_before_ = absl::InfinitePast();
  absl::Status failure_;

  uint64_t version_;
  std::optional<Contribution> contribution_;
  // The connection on which it was last offered with success.
  std::optional<uint64_t> offered_on_;
  bool in_flight_ = false;
  bool accepted_ = false;
  // The host has asked for the update that the contribution will be part of.
  bool expecting_ = false;
  Step step_ = Step::kNone;
  FragmentUpdate update_;
  // With kAsk: the version whose update is asked about.
  uint64_t ask_version_ = 0;
};

}  // namespace causeway

#endif  // WORKER_OUTER_LOOP_FRAGMENT_EXCHANGE_H_
