// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_SYNC_FRAGMENT_ACTOR_H_
#define WORKER_SYNC_FRAGMENT_ACTOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "quantization/codec.h"
#include "worker/replica/fragment_replica.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/shared_outer_loop.h"
#include "worker/sync/streamed_encoding.h"

namespace causeway {

// Carries out the outer loop's orders for one fragment
// (worker/outer_loop/fragment_exchange.h) on a thread of its own, so that
// training continues meanwhile and several fragments can be in flight.
//
// It sends the beginning of a contribution while the rest is encoded, and
// decodes an update as it arrives. Its thread has a low priority, so that it
// takes only time that training leaves.
class FragmentActor {
 public:
  struct Options {
    uint32_t fragment = 0;
    // The replica's formats.
    CodecSpec uplink;
    CodecSpec downlink;
  };

  // `replica`, `client` and `loop` outlive the actor.
  FragmentActor(const Options& options, FragmentReplica* replica,
                CoordinatorClient* client, SharedOuterLoop* loop);
  // Waits for the thread, which ends once the loop was told to stop and the
  // client is shut down.
  ~FragmentActor();

 private:
  void Run();
  // Each carries out an action and reports the result to the loop. Errors are
  // those of the replica, after which nothing is retried.
  absl::Status Do(const action::Wait&) { return absl::OkStatus(); }
  absl::Status Do(const action::End&) { return absl::OkStatus(); }
  absl::Status Do(const action::Contribute& contribute);
  absl::Status Do(const action::ReceiveUpdate& receive);
  absl::Status Do(const action::FetchParameters& fetch);
  absl::Status Do(const action::AskWhatIsMerged& ask);
  absl::Status Do(const action::EndContribution& end);

  std::unique_ptr<UpdateStream> FetchUpdate(
      const v1::FetchUpdateRequest& request, UpdateDownload& download);
  // Decodes the bytes of the update that arrived since the last call.
  absl::Status DecodeUpdate();
  // Notes and returns an error of the replica.
  absl::Status Replica(absl::Status status);

  const Options options_;
  FragmentReplica* const replica_;
  CoordinatorClient* const client_;
  SharedOuterLoop* const loop_;

  std::optional<StreamedEncoding> encoding_;
  // The update that will contain the contribution, requested once the
  // contribution was sent.
  std::unique_ptr<UpdateStream> expected_;
  UpdateDownload update_;
  // Is true if the description of update_ has been checked.
  bool described_ = false;
  ParametersDownload parameters_;
  absl::Status replica_failure_;
  std::thread thread_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_FRAGMENT_ACTOR_H_
