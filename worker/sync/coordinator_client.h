// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator as an island sees it. Each call makes one blocking try;
// retries are up to the caller (worker/outer_loop).
//
// Errors are those documented in proto/coordinator.proto, and UNAVAILABLE or
// DEADLINE_EXCEEDED when the coordinator cannot be reached. Thread-safe.
#ifndef WORKER_SYNC_COORDINATOR_CLIENT_H_
#define WORKER_SYNC_COORDINATOR_CLIENT_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "worker/sync/incoming_bytes.h"
#include "worker/sync/streamed_encoding.h"

namespace causeway {

// A download that can be resumed after a break: call the fetch again with the
// same object.
template <typename Response>
struct Download {
  // The coordinator's first response.
  Response description;
  // The encoding of an update, or parameters in little-endian fp32.
  IncomingBytes bytes;
};
using UpdateDownload = Download<v1::FetchUpdateResponse>;
using ParametersDownload = Download<v1::FetchParametersResponse>;

// The control stream. One thread may write while another reads.
class ControlStream {
 public:
  virtual ~ControlStream() = default;
  // Both return false once the stream is broken; Finish then says why.
  virtual bool Write(const v1::SessionRequest& request) = 0;
  virtual bool Read(v1::SessionResponse* response) = 0;
  virtual absl::Status Finish() = 0;
  // Makes Read and Write return. Thread-safe.
  virtual void Cancel() = 0;
};

// A FetchUpdate call in progress. Not thread-safe. Destruction cancels the
// call.
class UpdateStream {
 public:
  virtual ~UpdateStream() = default;
  // Receives the update into `download`, with which the call was opened, and
  // verifies its length and digest without decoding it. Calls `progress` after
  // each piece; its errors end the call. If an earlier try turns out to be
  // useless, resets `download` and fails. Call once. NOT_FOUND: the coordinator
  // no longer keeps the update; `download` describes the merge.
  virtual absl::Status Receive(UpdateDownload& download,
                               absl::FunctionRef<absl::Status()> progress) = 0;
};

class CoordinatorClient {
 public:
  virtual ~CoordinatorClient() = default;

  virtual absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) = 0;

  virtual std::unique_ptr<ControlStream> OpenSession() = 0;

  // Offers the contribution, uploads the bytes that the coordinator lacks, and
  // meanwhile completes an incomplete encoding. Sets the header's object to the
  // encoding's. An incomplete encoding was never offered, so its bytes follow
  // the offer at once. Uploads go one after the other. Calls `sent` when all
  // bytes are sent, before the verdict comes, unless nothing had to be sent.
  // The verdict is ACCEPTED or LATE.
  virtual absl::StatusOr<v1::ContributeResponse> Contribute(
      v1::ContributionHeader header, StreamedEncoding& encoding,
      absl::FunctionRef<void()> sent) = 0;

  // Asks for the bytes of an update that `download` lacks. Refuses an update of
  // more than `max_bytes`.
  virtual std::unique_ptr<UpdateStream> FetchUpdate(
      const v1::FetchUpdateRequest& request, uint64_t max_bytes,
      const UpdateDownload& download) = 0;

  // Verifies the parameters against head.digest. If the bytes of an earlier try
  // turn out to be useless, resets `download` and fails.
  virtual absl::Status FetchParameters(
      const v1::FetchParametersRequest& request, uint64_t max_bytes,
      ParametersDownload& download) = 0;

  virtual absl::Status Leave(const v1::LeaveRequest& request) = 0;

  // Cancels current calls and refuses later ones with CANCELLED, except Leave.
  virtual void Shutdown() = 0;

  // Payload bytes sent and received, without framing.
  virtual uint64_t bytes_up() const = 0;
  virtual uint64_t bytes_down() const = 0;

  // Fills in the figures of `progress` on the links.
  virtual void ReportLinks(v1::IslandProgress& progress) const = 0;
};

}  // namespace causeway

#endif  // WORKER_SYNC_COORDINATOR_CLIENT_H_
