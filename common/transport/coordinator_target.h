// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds the run's coordinator for islands and tools, even after a follower has
// taken over. They name one address, or those of the coordinator and its
// followers: "a.example:7070,b.example:7070". With several, gRPC keeps a
// connection to each, and calls the one that reports the service
// causeway.v1.Coordinator as healthy, which leads the run.
//
// gRPC resolves a single name, and again after a connection has failed. Names
// of several hosts are resolved here, and anew by Again. A certificate that
// must name the host (ClientTlsFiles::tls_ca) must name the first of several.
#ifndef COMMON_TRANSPORT_COORDINATOR_TARGET_H_
#define COMMON_TRANSPORT_COORDINATOR_TARGET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/grpcpp.h"

namespace causeway {

inline constexpr int kMaxCoordinators = 8;

// Returns INVALID_ARGUMENT unless `addresses` is a single address or a list of
// at most kMaxCoordinators different ones, each host:port. A single one may
// have another form of gRPC's with a path ("unix:/PATH", "dns:///NAME"). A host
// alone is refused, because gRPC would assume a wrong port.
absl::Status CheckCoordinators(absl::string_view addresses);

// Returns whether `address` is host:port, without spaces.
bool HasHostAndPort(absl::string_view address);

// Returns whether `addresses` names several addresses.
bool AreSeveral(absl::string_view addresses);

class CoordinatorTarget {
 public:
  // Resolves the hosts of several addresses, which may take as long as the name
  // service. Logs and leaves out unknown hosts.
  explicit CoordinatorTarget(const std::string& addresses);

  // Resolves the hosts of several addresses anew. A host that is not known now
  // keeps the addresses that it had.
  CoordinatorTarget Again() const;

  // Returns a channel with these credentials. `arguments` are additional ones.
  std::shared_ptr<grpc::Channel> Connect(
      const std::shared_ptr<grpc::ChannelCredentials>& credentials,
      grpc::ChannelArguments arguments = {}) const;

  struct OneAddress {
    std::string address;
    // Connected only while the coordinator there leads the run.
    std::shared_ptr<grpc::Channel> channel;
  };
  // Returns a channel to each of several known addresses; none if there is only
  // one.
  std::vector<OneAddress> ConnectEach(
      const std::shared_ptr<grpc::ChannelCredentials>& credentials,
      const grpc::ChannelArguments& arguments) const;

  // Returns whether gRPC itself resolves the name of a host.
  bool IsName() const;

  // The target in gRPC's form.
  const std::string& uri() const { return uri_; }

 private:
  // A host with its port, and the socket addresses that were found for it.
  struct Host {
    std::string name;
    std::vector<std::string> addresses;
  };

  explicit CoordinatorTarget(std::vector<Host> hosts);
  std::shared_ptr<grpc::Channel> ConnectTo(
      const std::string& uri,
      const std::shared_ptr<grpc::ChannelCredentials>& credentials,
      grpc::ChannelArguments arguments) const;

  std::string uri_;
  // Several hosts, and all socket addresses that were found for them.
  std::vector<Host> hosts_;
  std::vector<std::string> resolved_;
  // The first of several addresses; empty if there is only one.
  std::string authority_;
};

}  // namespace causeway

#endif  // COMMON_TRANSPORT_COORDINATOR_TARGET_H_
