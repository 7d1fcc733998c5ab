// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A client of etcd (version 3.4 or newer) for elections.
//
// Calls block for at most EtcdClient::kTimeout. A failed call may have had its
// effect, and is not repeated; the next call asks the next member. Thread-safe.
#ifndef SERVER_ELECTION_ETCD_CLIENT_H_
#define SERVER_ELECTION_ETCD_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/etcd.pb.h"

namespace causeway {

class EtcdClient {
 public:
  static constexpr absl::Duration kTimeout = absl::Seconds(1);

  struct Options {
    // The members' addresses, host:port; at least one.
    std::vector<std::string> members;
    std::shared_ptr<grpc::ChannelCredentials> credentials =
        grpc::InsecureChannelCredentials();
    // An etcd user and password; empty if etcd needs none.
    std::string user;
    std::string password;
  };

  explicit EtcdClient(Options options);

  absl::StatusOr<etcdserverpb::TxnResponse> Transact(
      const etcdserverpb::TxnRequest& request);

  // Returns the new lease's id.
  absl::StatusOr<int64_t> GrantLease(absl::Duration ttl);
  // NOT_FOUND if the lease has ended.
  absl::Status KeepAlive(int64_t lease);
  absl::Status Revoke(int64_t lease);

 private:
  using Call = std::function<grpc::Status(const std::shared_ptr<grpc::Channel>&,
                                          grpc::ClientContext&)>;

  // Calls the current member, as the user.
  absl::Status Ask(const Call& call) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::string> Authenticate(
      const std::shared_ptr<grpc::Channel>& channel);

  const Options options_;
  absl::Mutex mu_;
  // A channel to each member.
  std::vector<std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mu_);
  size_t current_ ABSL_GUARDED_BY(mu_) = 0;
  // The user's token; empty if a new one is needed.
  std::string token_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // SERVER_ELECTION_ETCD_CLIENT_H_
