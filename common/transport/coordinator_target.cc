// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/coordinator_target.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "common/transport/socket_address.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// Only the coordinator that leads the run is healthy in this service.
constexpr char kServiceConfig[] = R"({
  "loadBalancingConfig": [{"round_robin": {}}],
  "healthCheckConfig": {"serviceName": "causeway.v1.Coordinator"}
})";

// Returns the socket addresses of a host, as texts in order.
absl::StatusOr<std::vector<std::string>> ResolveOne(
    const std::string& address) {
  ASSIGN_OR_RETURN(const Addresses found, Resolve(address, 0));
  std::vector<std::string> resolved;
  for (const addrinfo* each = found.get(); each != nullptr;
       each = each->ai_next) {
    sockaddr_storage storage = {};
    std::memcpy(&storage, each->ai_addr, each->ai_addrlen);
    resolved.push_back(AddressText(storage));
  }
  // A name server may give them in another order each time.
  std::sort(resolved.begin(), resolved.end());
  return resolved;
}

bool IsIPv6(absl::string_view address) {
  return absl::StartsWith(address, "[");
}

// Returns gRPC's name of these socket addresses. All must be of one family, so
// next to IPv6 addresses IPv4 ones are written as IPv6.
std::string UriOf(std::vector<std::string> addresses) {
  if (absl::c_none_of(addresses, IsIPv6)) {
    return absl::StrCat("ipv4:", absl::StrJoin(addresses, ","));
  }
  for (std::string& address : addresses) {
    if (IsIPv6(address)) continue;
    const absl::string_view host = HostOf(address);
    address = absl::StrCat("[::ffff:", host, "]", address.substr(host.size()));
  }
  return absl::StrCat(
      "ipv6:", absl::StrReplaceAll(absl::StrJoin(addresses, ","),
                                   {{"[", "%5B"}, {"]", "%5D"}, {"%", "%25"}}));
}

}  // namespace

bool HasHostAndPort(absl::string_view address) {
  return PortOf(address) > 0 && absl::c_none_of(address, absl::ascii_isspace);
}

bool AreSeveral(absl::string_view addresses) {
  return absl::StrContains(addresses, ',');
}

absl::Status CheckCoordinators(absl::string_view addresses) {
  if (!AreSeveral(addresses)) {
    for (const char* const scheme : {"http://", "https://"}) {
      if (!absl::StartsWithIgnoreCase(addresses, scheme)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", addresses, "\" is not host:port: leave ", scheme, " out"));
    }
    if (HasHostAndPort(addresses) || absl::StrContains(addresses, ":/")) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("\"", addresses, "\" is not host:port"));
  }
  const std::vector<absl::string_view> all = absl::StrSplit(addresses, ',');
  if (all.size() > kMaxCoordinators) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", addresses, "\" has ", all.size(),
                     " addresses; allowed: up to ", kMaxCoordinators));
  }
  std::set<absl::string_view> seen;
  for (const absl::string_view address : all) {
    if (!HasHostAndPort(address)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", addresses, "\" has \"", address,
          "\", which is not host:port; allowed: host:port[,host:port...], "
          "without spaces"));
    }
    if (!seen.insert(address).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", addresses, "\" has the address ", address, " twice"));
    }
  }
  return absl::OkStatus();
}

CoordinatorTarget::CoordinatorTarget(const std::string& addresses)
    : uri_(addresses) {
  if (!AreSeveral(addresses)) return;
  std::vector<Host> hosts;
  for (const absl::string_view name : absl::StrSplit(addresses, ',')) {
    Host& host = hosts.emplace_back(Host{.name = std::string(name)});
    absl::StatusOr<std::vector<std::string>> found = ResolveOne(host.name);
    if (found.ok()) {
      host.addresses = *std::move(found);
    } else {
      LOG(WARNING) << found.status().message()
                   << "; going without that address for now";
    }
  }
  *this = CoordinatorTarget(std::move(hosts));
}

CoordinatorTarget::CoordinatorTarget(std::vector<Host> hosts)
    : hosts_(std::move(hosts)), authority_(hosts_.front().name) {
  for (const Host& host : hosts_) {
    for (const std::string& address : host.addresses) {
      if (!absl::c_linear_search(resolved_, address)) {
        resolved_.push_back(address);
      }
    }
  }
  // gRPC keeps trying to resolve a name.
  uri_ = resolved_.empty() ? authority_ : UriOf(resolved_);
}

CoordinatorTarget CoordinatorTarget::Again() const {
  if (hosts_.empty()) return *this;
  std::vector<Host> hosts = hosts_;
  for (Host& host : hosts) {
    absl::StatusOr<std::vector<std::string>> found = ResolveOne(host.name);
    if (found.ok()) host.addresses = *std::move(found);
  }
  return CoordinatorTarget(std::move(hosts));
}

bool CoordinatorTarget::IsName() const {
  return resolved_.empty() && HasHostAndPort(uri_) &&
         !Resolve(uri_, AI_NUMERICHOST).ok();
}

std::shared_ptr<grpc::Channel> CoordinatorTarget::Connect(
    const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    grpc::ChannelArguments arguments) const {
  return ConnectTo(uri_, credentials, std::move(arguments));
}

std::vector<CoordinatorTarget::OneAddress> CoordinatorTarget::ConnectEach(
    const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const grpc::ChannelArguments& arguments) const {
  std::vector<OneAddress> each;
  if (resolved_.size() < 2) return each;
  for (const std::string& address : resolved_) {
    each.push_back(
        {address, ConnectTo(UriOf({address}), credentials, arguments)});
  }
  return each;
}

std::shared_ptr<grpc::Channel> CoordinatorTarget::ConnectTo(
    const std::string& uri,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    grpc::ChannelArguments arguments) const {
  if (!authority_.empty()) {
    arguments.SetServiceConfigJSON(kServiceConfig);
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, authority_);
  }
  // gRPC would ask a proxy of the environment for "a:1,b:2", or for an address
  // that only this machine has.
  if (!authority_.empty() || IsLoopback(uri)) {
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  }
  // Another machine may have taken the name over. gRPC's default is 30 s.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1'000);
  return grpc::CreateCustomChannel(uri, credentials, arguments);
}

}  // namespace causeway
