// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator as an island sees it: one blocking try per call, no retries
// (those are the caller's: worker/outer_loop).
//
// Errors are those documented in proto/coordinator.proto, and UNAVAILABLE or
// DEADLINE_EXCEEDED when the coordinator cannot be reached. Thread-safe.
#ifndef WORKER_SYNC_COORDINATOR_CLIENT_H_
#define WORKER_SYNC_COORDINATOR_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "worker/sync/incoming_bytes.h"
#include "worker/sync/streamed_encoding.h"

namespace causeway {

// A download that can be gone on with after a break: call the fetch again with
// the same object.
struct UpdateDownload {
  v1::FragmentHead head;
  v1::EncodedObject object;
  bool includes_island = false;
  // Of the island's contribution in the merge.
  double island_share = 0;
  // The tokens and inner steps of another contribution of this island in it.
  uint64_t other_tokens = 0;
  uint64_t other_inner_steps = 0;
  IncomingBytes encoded;
};

struct ParametersDownload {
  v1::FragmentHead head;
  // Little-endian fp32.
  IncomingBytes bytes;
};

// The control stream. One thread may write while another reads.
class ControlStream {
 public:
  virtual ~ControlStream() = default;
  // False once the stream is broken; then Finish says why.
  virtual bool Write(const v1::SessionRequest& request) = 0;
  virtual bool Read(v1::SessionResponse* response) = 0;
  virtual absl::Status Finish() = 0;
  // Makes Read and Write return. Any thread.
  virtual void Cancel() = 0;
};

// A FetchUpdate call under way. For one thread; its end cancels the call.
class UpdateStream {
 public:
  virtual ~UpdateStream() = default;
  // Once. Verified by length and digest, at the end; not decoded. `progress` is
  // called after each piece that has come; its error ends the call. `download`
  // is what the call was opened with. When this try finds that an earlier one
  // was of no use, it begins anew and the call fails. NOT_FOUND: the update is
  // no longer kept; what is known of the merge is in `download`.
  virtual absl::Status Receive(UpdateDownload& download,
                               absl::FunctionRef<absl::Status()> progress) = 0;
};

class CoordinatorClient {
 public:
  virtual ~CoordinatorClient() = default;

  virtual absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) = 0;

  virtual std::unique_ptr<ControlStream> OpenSession() = 0;

  // Offers the contribution and uploads what the coordinator has not got yet,
  // encoding on meanwhile if the encoding is not complete. The header's object
  // is the encoding's. One that is not complete has never been offered: its
  // bytes follow the offer at once. Uploads go one after the other, in the
  // order of the calls. `sent` is called when all is sent, before the verdict
  // has come; not if nothing had to be sent. The verdict is ACCEPTED or LATE.
  virtual absl::StatusOr<v1::ContributeResponse> Contribute(
      v1::ContributionHeader header, StreamedEncoding& encoding,
      absl::FunctionRef<void()> sent) = 0;

  // Asks for what `download` has not got yet of an update. One of more than
  // `max_bytes` is refused.
  virtual std::unique_ptr<UpdateStream> FetchUpdate(
      const v1::FetchUpdateRequest& request, uint64_t max_bytes,
      const UpdateDownload& download) = 0;

  // Verified against head.digest.
  virtual absl::Status FetchParameters(
      const v1::FetchParametersRequest& request, uint64_t max_bytes,
      ParametersDownload& download) = 0;

  virtual absl::Status Leave(const v1::LeaveRequest& request) = 0;

  // Cancels the calls under way and refuses later ones with CANCELLED, except
  // Leave.
  virtual void Shutdown() = 0;

  // Payload bytes sent and received, framing not counted.
  virtual uint64_t bytes_up() const = 0;
  virtual uint64_t bytes_down() const = 0;

  // Fills in what `progress` says of the links.
  virtual void ReportLinks(v1::IslandProgress& progress) const = 0;
};

}  // namespace causeway

#endif  // WORKER_SYNC_COORDINATOR_CLIENT_H_
