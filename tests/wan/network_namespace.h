// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Network namespaces without names: each is held by a descriptor and by the
// processes in it, so that nothing is left when they end, however they end.
// Also the TAP devices in them. Linux only; needs CAP_SYS_ADMIN and
// CAP_NET_ADMIN, which root has outside containers.
//
//   ASSIGN_OR_RETURN(NetworkNamespace island, NetworkNamespace::Create());
//   {
//     ASSIGN_OR_RETURN(NetworkNamespace::Scope scope, island.Enter());
//     // Sockets, devices and processes made here by this thread are inside.
//   }
#ifndef TESTS_WAN_NETWORK_NAMESPACE_H_
#define TESTS_WAN_NETWORK_NAMESPACE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/wan/descriptor.h"

namespace causeway {

class NetworkNamespace {
 public:
  // While it lives, the thread that made it is inside; only that thread may
  // destroy it.
  class Scope {
   public:
    Scope(Scope&&) = default;
    Scope& operator=(Scope&&) = delete;
    ~Scope();

   private:
    friend class NetworkNamespace;
    explicit Scope(Descriptor outside) : outside_(std::move(outside)) {}

    Descriptor outside_;
  };

  // An empty one, with loopback up and nothing else, and TCP buffers of up to
  // 64 MiB, as hosts have that are tuned for long paths.
  //   PERMISSION_DENIED  this process may not make namespaces.
  static absl::StatusOr<NetworkNamespace> Create();

  // Takes the calling thread inside. Threads and processes that it starts there
  // stay inside.
  absl::StatusOr<Scope> Enter() const;

 private:
  explicit NetworkNamespace(Descriptor descriptor)
      : descriptor_(std::move(descriptor)) {}

  Descriptor descriptor_;
};

// These act on the namespace the calling thread is in.

// Makes TCP connections use this congestion control. FAILED_PRECONDITION if the
// kernel does not have it, or not for namespaces.
absl::Status SetCongestionControl(absl::string_view name);

// Which one they use.
absl::StatusOr<std::string> CongestionControl();

// Makes a TAP device (Ethernet frames, at most `mtu` bytes of payload) with
// this IPv4 address in a network of 24 bits, and sets it up. It is gone when
// the descriptor, which does not block, is closed.
absl::StatusOr<Descriptor> OpenTap(const std::string& name,
                                   const std::string& address, int mtu);

// PERMISSION_DENIED, with the reason, if this process may not make namespaces
// with TAP devices in them. Leaves nothing behind.
absl::Status CheckPermitted();

}  // namespace causeway

#endif  // TESTS_WAN_NETWORK_NAMESPACE_H_
