// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Queries a coordinator's Status service. Every call but WatchEvents ends
// within five seconds. Only one thread may use a client at a time.
//
// Errors: UNAVAILABLE or DEADLINE_EXCEEDED, with the address, if no coordinator
// answers; otherwise the service's own (proto/status.proto).
#ifndef CLI_STATUS_CLIENT_H_
#define CLI_STATUS_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "proto/status.grpc.pb.h"

namespace causeway {

// A coordinator's answers, given at about the same moment.
struct StatusSnapshot {
  v1::RunStatus run;
  v1::ListIslandsResponse islands;
  v1::ListFragmentsResponse fragments;
};

class StatusClient {
 public:
  // `address` has gRPC's form: "host:port", "unix:path";
  // common/transport/credentials.h makes `credentials`. Connects on the first
  // call, and again after a restart of the coordinator.
  explicit StatusClient(std::string address,
                        const std::shared_ptr<grpc::ChannelCredentials>&
                            credentials = grpc::InsecureChannelCredentials());

  // Fetches the status. With `departed`, the list includes islands that left or
  // were evicted.
  absl::StatusOr<StatusSnapshot> Fetch(bool departed);

  // Calls `consume` with the recorded events after `after_id`, oldest first,
  // and with `follow` then with every new event as it happens. OK at the end of
  // the recorded events, or when `consume` has returned false.
  absl::Status WatchEvents(
      uint64_t after_id, bool follow,
      const std::function<bool(const v1::Event&)>& consume);

 private:
  absl::Status Explain(const grpc::Status& status) const;

  const std::string address_;
  const std::unique_ptr<v1::Status::Stub> stub_;
};

}  // namespace causeway

#endif  // CLI_STATUS_CLIENT_H_
