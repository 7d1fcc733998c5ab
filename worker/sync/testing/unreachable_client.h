// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A client for tests that override what they need.
#ifndef WORKER_SYNC_TESTING_UNREACHABLE_CLIENT_H_
#define WORKER_SYNC_TESTING_UNREACHABLE_CLIENT_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/sync/coordinator_client.h"

namespace causeway {

// Reaches no coordinator: calls are UNAVAILABLE, and streams are null.
class UnreachableClient : public CoordinatorClient {
 public:
  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest&) override {
    return Nobody();
  }
  std::unique_ptr<ControlStream> OpenSession() override { return nullptr; }
  absl::StatusOr<v1::ContributeResponse> Contribute(
      v1::ContributionHeader, StreamedEncoding&,
      absl::FunctionRef<void()>) override {
    return Nobody();
  }
  std::unique_ptr<UpdateStream> FetchUpdate(const v1::FetchUpdateRequest&,
                                            uint64_t,
                                            const UpdateDownload&) override {
    return nullptr;
  }
  absl::Status FetchParameters(const v1::FetchParametersRequest&, uint64_t,
                               ParametersDownload&) override {
    return Nobody();
  }
  absl::Status Leave(const v1::LeaveRequest&) override { return Nobody(); }
  void Shutdown() override {}
  uint64_t bytes_up() const override { return 0; }
  uint64_t bytes_down() const override { return 0; }
  void ReportLinks(v1::IslandProgress&) const override {}

 private:
  static absl::Status Nobody() { return absl::UnavailableError("nobody"); }
};

}  // namespace causeway

#endif  // WORKER_SYNC_TESTING_UNREACHABLE_CLIENT_H_
