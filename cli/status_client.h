// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Asks a coordinator's Status service. Every call but WatchEvents ends within
// five seconds. One thread at a time.
//
// Errors: UNAVAILABLE or DEADLINE_EXCEEDED if no coordinator answers, with its
// address; otherwise what the service answers (proto/status.proto).
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

// What a coordinator said at about one moment.
struct StatusSnapshot {
  v1::RunStatus run;
  v1::ListIslandsResponse islands;
  v1::ListFragmentsResponse fragments;
};

class StatusClient {
 public:
  // `address` as gRPC takes it: "host:port", "unix:path"; `credentials` as
  // common/transport/credentials.h makes them. Connects on the first call, and
  // again after a coordinator was restarted.
  explicit StatusClient(std::string address,
                        const std::shared_ptr<grpc::ChannelCredentials>&
                            credentials = grpc::InsecureChannelCredentials());

  // With `departed`, islands that left or were evicted are listed as well.
  absl::StatusOr<StatusSnapshot> Fetch(bool departed);

  // Calls `consume` with the recorded events after `after_id`, oldest first,
  // and with `follow` then with every new one as it happens. OK at the end of
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
