// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One fragment's traffic of a simulated island: worker/sync/fragment_link.h in
// virtual time, with the same decisions in the same order.
#ifndef TESTS_SIMULATION_LINK_H_
#define TESTS_SIMULATION_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/backoff.h"
#include "proto/coordinator.pb.h"
#include "tests/simulation/contents.h"
#include "tests/simulation/coordinator_host.h"
#include "tests/simulation/process.h"
#include "tests/simulation/session.h"

namespace causeway::simulation {

class Link {
 public:
  struct Callbacks {
    // An update is ready.
    std::function<void()> wake;
    std::function<void(const absl::Status&)> fail;
  };

  // `anchor` is what version `head` contains. Up to version `earlier_until`,
  // skipped updates are asked about. Process and session outlive the link.
  Link(Process* process, const Session* session, v1::FragmentHead head,
       Contents anchor, uint64_t earlier_until, Callbacks callbacks);

  uint64_t version() const { return head_.version(); }
  const v1::FragmentHead& head() const { return head_; }
  const Contents& anchor() const { return anchor_; }

  // Hands over steps; those of earlier processes make `restored` of their
  // tokens.
  void Send(std::vector<Interval> intervals, uint64_t restored_tokens,
            bool partial);
  bool in_flight() const { return in_flight_; }
  // Whether the coordinator has what was handed over.
  bool accepted() const { return accepted_; }
  bool ready() const { return ready_.has_value(); }
  // Advances the anchor.
  struct Taken {
    // The contribution that was handed over was part of it, or another one of
    // the island.
    bool includes_island = false;
    bool includes_other = false;
    bool skipped_include_other = false;
    uint64_t from_version = 0;
  };
  Taken Take();

  // Does what is due, if nothing is under way.
  void Step();

 private:
  struct Contribution {
    std::vector<Interval> intervals;
    uint64_t restored_tokens = 0;
    bool partial = false;
    std::string encoding;
    bool offered = false;
    // Its size and digest are known.
    bool complete = false;
  };
  struct Update {
    v1::FragmentHead head;
    bool includes_island = false;
    bool includes_other = false;
    bool skipped_include_other = false;
    Contents anchor;
  };
  // One try of Contribute.
  struct Upload {
    v1::ContributionHeader header;
    uint64_t connection = 0;
    std::shared_ptr<Lane> up = std::make_shared<Lane>();
    std::shared_ptr<Lane> down = std::make_shared<Lane>();
    // On the coordinator's side: an error has ended the stream.
    bool refused = false;
    // On ours: it has ended.
    bool ended = false;
  };

  // The update that the contribution will be part of, asked for as soon as it
  // was sent.
  struct Expected {
    std::optional<absl::StatusOr<FetchedUpdate>> answer;
    // The verdict on the contribution is there: nothing else is waited for.
    bool awaited = false;
  };

  bool MayOffer() const;
  void Contribute();
  void SendRest(const std::shared_ptr<Upload>& upload, uint64_t offset);
  // The answer's way back from the coordinator.
  CoordinatorHost::Reply<v1::ContributeResponse> Answer(
      const std::shared_ptr<Upload>& upload);
  void Hear(const std::shared_ptr<Upload>& upload,
            const absl::StatusOr<v1::ContributeResponse>& response);
  void End(const std::shared_ptr<Upload>& upload, const absl::Status& status);
  void FetchUpdate(const v1::FetchUpdateRequest& request,
                   CoordinatorHost::Reply<FetchedUpdate> done) const;
  // The one from the anchor's version to the next.
  v1::FetchUpdateRequest NextUpdate(bool wait) const;
  void Expect();
  void AwaitExpected();
  void Fetched(const absl::StatusOr<FetchedUpdate>& fetched);
  // `update` says what the merges include that they take the place of.
  void FetchParameters(Update update);
  // Asks about those that `update` skips, from `version` on.
  void AskAboutSkipped(Update update, uint64_t version);
  void Ready(Update update);
  // A try has failed.
  void Retry(const absl::Status& status);

  Process* const process_;
  const Session* const session_;
  const uint64_t earlier_until_;
  const Callbacks callbacks_;
  Backoff backoff_;

  v1::FragmentHead head_;
  Contents anchor_;
  std::optional<Contribution> contribution_;
  std::optional<uint64_t> offered_on_connection_;
  std::shared_ptr<Expected> expected_;
  bool in_flight_ = false;
  bool accepted_ = false;
  std::optional<Update> ready_;
  // A call or a pause is under way.
  bool busy_ = false;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_LINK_H_
