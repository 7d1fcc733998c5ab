// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Transfers of an island's bulk data: contributions up, updates and parameters
// down. They are striped over connections, paced if a rate is given, and
// metered.
#ifndef WORKER_SYNC_BULK_TRANSFERS_H_
#define WORKER_SYNC_BULK_TRANSFERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/transport/bulk_stream.h"
#include "common/transport/link_meter.h"
#include "common/transport/pacer.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.pb.h"
#include "worker/sync/bulk_lanes.h"
#include "worker/sync/call_group.h"
#include "worker/sync/coordinator_channel.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/incoming_bytes.h"
#include "worker/sync/near_follower.h"
#include "worker/sync/streamed_encoding.h"

namespace causeway {

// Thread-safe.
class BulkTransfers {
 public:
  // Each of `channels` has its own connection. `calls` outlives the object.
  BulkTransfers(const GrpcCoordinatorClientOptions& options,
                std::vector<std::shared_ptr<grpc::Channel>> channels,
                CallGroup* calls);

  // Starts to connect, so that the first transfer need not wait.
  void Connect() { bulk_.Connect(); }
  // Uses other channels, as many as before, for later transfers.
  void Replace(std::vector<std::shared_ptr<grpc::Channel>> channels) {
    bulk_.Replace(std::move(channels));
    bulk_.Connect();
  }

  // See CoordinatorClient. `round_trip` is the least of the link; 0 if unknown.
  absl::StatusOr<v1::ContributeResponse> Contribute(
      v1::ContributionHeader header, StreamedEncoding& encoding,
      absl::Duration round_trip, absl::FunctionRef<void()> sent);
  std::unique_ptr<UpdateStream> FetchUpdate(
      const v1::FetchUpdateRequest& request, uint64_t max_bytes,
      const UpdateDownload& download);
  absl::Status FetchParameters(const v1::FetchParametersRequest& request,
                               uint64_t max_bytes,
                               ParametersDownload& download);

  // Payload bytes sent and received, without framing.
  uint64_t bytes_up() const { return up_.bytes(); }
  uint64_t bytes_down() const { return down_.bytes(); }
  // This end's figures on the links.
  v1::LinkUse UplinkUse() const;
  v1::LinkUse DownlinkUse() const { return down_.Use(); }

 private:
  using Lanes = std::vector<std::unique_ptr<BulkLane>>;

  class UpdateTransfer;
  struct Upload;

  // --- Up. ---

  bool SendHeader(Upload& upload, StreamedEncoding& encoding, bool with_chunk);
  absl::Status Broken(const grpc::Status& status) const;
  absl::StatusOr<v1::ContributeResponse> ReadVerdict(BulkStream& stream) const;
  absl::Status ReadAnswer(Upload& upload) const;
  std::unique_ptr<BulkLane> OpenUploadLane(const v1::ContributionHeader& header,
                                           absl::Duration timeout);
  absl::StatusOr<bool> SendChunks(Upload& upload, StreamedEncoding& encoding);
  void Pace(uint64_t bytes);

  // --- Down. ---

  struct Incoming {
    Lanes lanes;
    // The sender, for errors.
    std::string peer;
    // Is true if the answer may come long after the request.
    bool waits = false;
    // The longest time without a message.
    absl::Duration patience = absl::InfiniteDuration();
  };
  template <typename Request>
  Incoming OpenDownload(Request request, uint64_t max_bytes,
                        NearFollower::Link* near = nullptr);
  template <typename Response>
  absl::Status Receive(
      const Incoming& incoming, IncomingBytes& bytes,
      absl::FunctionRef<absl::Status(const Response&)> describe,
      absl::FunctionRef<absl::Status()> progress);
  template <typename Request, typename Response>
  absl::Status ReceiveFrom(const std::string& follower, Request request,
                           uint64_t max_bytes, Download<Response>& download,
                           absl::FunctionRef<absl::Status()> progress);
  template <typename Request, typename Response>
  absl::Status ReceiveWhole(const Incoming& incoming, const Request& request,
                            uint64_t max_bytes, Download<Response>& download,
                            absl::FunctionRef<void()> described,
                            absl::FunctionRef<absl::Status()> progress);

  uint64_t ChunkBytes(double bytes_per_second) const;

  const GrpcCoordinatorClientOptions options_;
  CallGroup* const calls_;
  BulkLanes bulk_;
  // Held by the upload whose turn it is.
  absl::Mutex uploads_;
  // Paces that upload.
  Pacer pacer_;
  NearFollower near_;
  LinkMeter up_;
  LinkMeter down_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_BULK_TRANSFERS_H_
