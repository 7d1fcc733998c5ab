// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The bulk data of one fragment of a simulated island:
// worker/sync/fragment_actor.h in virtual time, over the messages of the
// protocol.
#ifndef TESTS_SIMULATION_TRANSFERS_H_
#define TESTS_SIMULATION_TRANSFERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "tests/simulation/actor_loop.h"
#include "tests/simulation/coordinator_host.h"
#include "tests/simulation/network.h"
#include "tests/simulation/replica.h"

namespace causeway::simulation {

class Transfers {
 public:
  // `loop` and `replica` outlive the object.
  Transfers(ActorLoop* loop, Replica* replica);

  // Returns whether the coordinator has accepted everything in the parameters
  // beyond the anchor.
  bool HasHandedIn() const { return accepted_ == replica_->beyond(); }

 private:
  // One attempt of Contribute.
  struct Upload {
    action::Contribute order;
    v1::ContributionHeader header;
    std::shared_ptr<Lane> up = std::make_shared<Lane>();
    std::shared_ptr<Lane> down = std::make_shared<Lane>();
    // If true, an error has ended the stream on the coordinator's side.
    bool refused = false;
    // If true, the stream has ended on the island's side.
    bool ended = false;
  };
  // The update that the contribution will be part of.
  struct Expected {
    std::optional<absl::StatusOr<FetchedUpdate>> answer;
    bool awaited = false;
  };

  absl::Time Step();
  void Do(const action::Wait&) {}
  void Do(const action::End&) {}
  void Do(const action::Contribute& contribute);
  void Do(const action::ReceiveUpdate& receive);
  void Do(const action::FetchParameters& fetch);
  void Do(const action::AskWhatIsMerged& ask);
  void Do(const action::EndContribution& end);

  FragmentExchange& exchange() {
    return loop_->core().exchange(replica_->head().fragment());
  }
  // Tells the core the result of the current action.
  template <typename Event>
  void Done(Event event) {
    busy_ = false;
    loop_->Tell(event);
  }
  // Checks that the new contribution is what the snapshot contains.
  void CheckClaims(const v1::ContributionHeader& header);
  std::string Digest() const;
  void SendRest(const std::shared_ptr<Upload>& upload, uint64_t offset);
  // Returns the answer's way back from the coordinator.
  CoordinatorHost::Reply<v1::ContributeResponse> Answer(
      const std::shared_ptr<Upload>& upload);
  void Hear(const std::shared_ptr<Upload>& upload,
            const absl::StatusOr<v1::ContributeResponse>& response);
  void End(const std::shared_ptr<Upload>& upload,
           const absl::StatusOr<v1::ContributeResponse>& response);
  void ExpectUpdate();
  void FetchUpdate(const v1::FetchUpdateRequest& request,
                   CoordinatorHost::Reply<FetchedUpdate> done) const;
  void Received(const absl::StatusOr<FetchedUpdate>& fetched);

  ActorLoop* const loop_;
  Process* const process_;
  Replica* const replica_;
  bool busy_ = false;
  // The current contribution; its size and digest are known once it is
  // complete.
  std::string encoding_;
  bool complete_ = false;
  std::shared_ptr<Expected> expected_;
  // The last intervals that the coordinator accepted.
  std::vector<Interval> accepted_;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_TRANSFERS_H_
