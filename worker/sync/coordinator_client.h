// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator as an island sees it: one blocking try per call, no retries
// (those are the caller's: worker/sync/island_session.h and fragment_link.h).
//
// Errors are those documented in proto/coordinator.proto, and UNAVAILABLE or
// DEADLINE_EXCEEDED when the coordinator cannot be reached. Thread-safe.
#ifndef WORKER_SYNC_COORDINATOR_CLIENT_H_
#define WORKER_SYNC_COORDINATOR_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/coordinator.pb.h"

namespace causeway {

// A download that can be gone on with after a break: call the fetch again with
// the same object.
struct UpdateDownload {
  v1::FragmentHead head;
  v1::EncodedObject object;
  bool includes_island = false;
  std::string encoded;
  // Bytes of `encoded` that have arrived.
  uint64_t received = 0;
};

struct ParametersDownload {
  v1::FragmentHead head;
  // Little-endian fp32.
  std::string bytes;
  uint64_t received = 0;
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

class CoordinatorClient {
 public:
  virtual ~CoordinatorClient() = default;

  virtual absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) = 0;

  virtual std::unique_ptr<ControlStream> OpenSession() = 0;

  // Offers the contribution and uploads what the coordinator has not got yet.
  // The verdict is ACCEPTED or LATE.
  virtual absl::StatusOr<v1::ContributeResponse> Contribute(
      const v1::ContributionHeader& header, absl::string_view encoded) = 0;

  // Verified by length and digest; not decoded.
  virtual absl::Status FetchUpdate(const v1::FetchUpdateRequest& request,
                                   UpdateDownload& download) = 0;

  // Verified against head.digest.
  virtual absl::Status FetchParameters(
      const v1::FetchParametersRequest& request,
      ParametersDownload& download) = 0;

  virtual absl::Status Leave(const v1::LeaveRequest& request) = 0;

  // Cancels the calls under way and refuses later ones with CANCELLED, except
  // Leave.
  virtual void Shutdown() = 0;

  // Payload bytes sent and received, framing not counted.
  virtual uint64_t bytes_up() const = 0;
  virtual uint64_t bytes_down() const = 0;
};

}  // namespace causeway

#endif  // WORKER_SYNC_COORDINATOR_CLIENT_H_
