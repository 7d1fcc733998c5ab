// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// How islands and tools find the run's coordinator, whose place a follower may
// take. They name it by one address, or by those of the coordinator and its
// followers: "a.example:7070,b.example:7070". With several, gRPC keeps a
// connection to each, and makes calls at the one that reports the service
// causeway.v1.Coordinator as healthy: that is the one that leads the run.
//
// Names of several hosts are resolved once; gRPC resolves the name of a single
// one, again after a connection has failed. A certificate that is to name the
// host (ClientTlsFiles::tls_ca) must name the first of several.
#ifndef COMMON_TRANSPORT_COORDINATOR_TARGET_H_
#define COMMON_TRANSPORT_COORDINATOR_TARGET_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/grpcpp.h"

namespace causeway {

inline constexpr int kMaxCoordinators = 8;

// Returns INVALID_ARGUMENT unless `addresses` is a single address or a list of
// at most kMaxCoordinators different ones, each host:port. A single one is not
// looked at: gRPC knows more forms ("unix:PATH").
absl::Status CheckCoordinators(absl::string_view addresses);

// Returns whether `address` is host:port, without spaces.
bool HasHostAndPort(absl::string_view address);

// Returns whether `addresses` are several.
bool AreSeveral(absl::string_view addresses);

class CoordinatorTarget {
 public:
  // Resolves the hosts of several addresses, which may take as long as the name
  // service. A host that is not known is left out, and the log says so.
  explicit CoordinatorTarget(const std::string& addresses);

  // Returns a channel with these credentials. `arguments` may leave out all
  // that is said above.
  std::shared_ptr<grpc::Channel> Connect(
      const std::shared_ptr<grpc::ChannelCredentials>& credentials,
      grpc::ChannelArguments arguments = {}) const;

  // The target in gRPC's form.
  const std::string& uri() const { return uri_; }

 private:
  std::string uri_;
  // The first of several addresses; empty if there is only one.
  std::string authority_;
};

}  // namespace causeway

#endif  // COMMON_TRANSPORT_COORDINATOR_TARGET_H_
