// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Network namespaces without names, and the TAP devices in them. Only a
// descriptor and the processes in it hold a namespace, so nothing is left when
// they end, however they end. Linux only; needs CAP_SYS_ADMIN and
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

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/wan/descriptor.h"

namespace causeway {

class NetworkNamespace {
 public:
  // While it lives, the thread that made it is in the namespace; only that
  // thread may destroy it.
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

  // Makes an empty namespace, with only loopback up, and TCP buffers of up to
  // 64 MiB, as on hosts that are tuned for long paths.
  //   PERMISSION_DENIED  this process may not make namespaces.
  static absl::StatusOr<NetworkNamespace> Create();

  // Moves the calling thread into the namespace. Threads and processes that it
  // starts there stay inside.
  absl::StatusOr<Scope> Enter() const;

  // Returns where `nsenter --net` finds it while this object lives.
  std::string path() const;

 private:
  explicit NetworkNamespace(Descriptor descriptor)
      : descriptor_(std::move(descriptor)) {}

  Descriptor descriptor_;
};

// These functions act on the namespace of the calling thread.

// Makes TCP connections use this congestion control. FAILED_PRECONDITION if the
// kernel does not have it, or not for namespaces.
absl::Status SetCongestionControl(absl::string_view name);

// Returns the congestion control that TCP connections use.
absl::StatusOr<std::string> CongestionControl();

// Passes on packets that are for other hosts.
absl::Status ForwardPackets();

// Makes a TAP device (Ethernet frames, at most `mtu` bytes of payload) with
// this IPv4 address in a network of 24 bits, and sets it up. It disappears when
// the descriptor, which does not block, is closed.
absl::StatusOr<Descriptor> OpenTap(const std::string& name,
                                   const std::string& address, int mtu);

// Checks that this process may make namespaces with TAP devices in them.
// PERMISSION_DENIED, with the reason, if it may not. Leaves nothing behind.
absl::Status CheckPermitted();

// Runs a program that needs such namespaces. Returns its exit code (ExitCode);
// 77, with the reason on stderr, if this process may not make them.
int RunIfPermitted(absl::string_view program,
                   absl::FunctionRef<absl::Status()> run);

}  // namespace causeway

#endif  // TESTS_WAN_NETWORK_NAMESPACE_H_
