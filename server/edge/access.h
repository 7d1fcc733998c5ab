// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides who may call what. A table in access.cc has each method's roles and
// precedence; other methods are refused. Islands act under their own names
// only. docs/security.md describes the roles.
//
//   Access access({.run = "r",
//                  .certificates = true,
//                  .now = now,
//                  .wall_clock = wall_clock});
//   const Caller caller = access.Identify(path, *context);
//   RETURN_IF_ERROR(caller.Check());          // when the call begins
//   RETURN_IF_ERROR(caller.Check(request));   // for each of its requests
#ifndef SERVER_EDGE_ACCESS_H_
#define SERVER_EDGE_ACCESS_H_

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/transport/identity.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "server/edge/connections.h"
#include "server/rules/coordinator.h"
#include "server/rules/quiet_count.h"

namespace causeway {

// The parts of a client's certificate that are checked besides its names.
struct ClientCertificate {
  // In lower-case hexadecimal digits, two for each byte.
  std::string serial;
  absl::Time expires;
};

class Access;
struct AccessRule;

// The caller and the method of a call. Thread-safe; its Access must outlive it.
class Caller {
 public:
  // Checks that the caller may call the method now. Records refusals as events,
  // except UNAVAILABLE. Without certificates, every caller may call every
  // method of the table.
  //   UNAUTHENTICATED    There is no certificate, or none with an identity, or
  //                      it was revoked.
  //   UNAVAILABLE        The certificate has expired since the connection was
  //                      made. The caller should connect again with a new one.
  //   PERMISSION_DENIED  The identity is of another run, or its role may not
  //                      call the method.
  absl::Status Check() const;
  // Also checks a request.
  //   PERMISSION_DENIED  It names an island that the caller is not.
  absl::Status Check(const google::protobuf::Message& request) const;

  // UNAUTHENTICATED without a certificate that has an identity.
  const absl::StatusOr<Identity>& identity() const { return identity_; }
  // Returns the caller's name for people, such as "operator anna", or its
  // address if it has no identity.
  std::string Name() const;
  // Returns the load up to which the call is served.
  Precedence precedence() const;
  // Returns the caller's address and port.
  const std::string& peer() const { return peer_; }
  const ClientCertificate& certificate() const { return certificate_; }

 private:
  friend class Access;

  explicit Caller(const Access* access) : access_(access) {}

  absl::Status CheckIdentity() const;
  absl::Status CheckIslands(const google::protobuf::Message& request) const;

  const Access* access_;
  std::string method_;
  // Null if the method is not in the table.
  const AccessRule* rule_ = nullptr;
  std::string peer_;
  absl::StatusOr<Identity> identity_ =
      absl::UnauthenticatedError("callers need no certificate");
  ClientCertificate certificate_;
};

class Access {
 public:
  struct Options {
    // RunConfig.name.
    std::string run;
    // Is true if certificates identify clients. If not, every caller is unknown
    // and may call everything.
    bool certificates = false;
    Clock now;
    // The wall clock, by which certificates expire. Not used without them.
    Clock wall_clock;
    // Checks whether an unexpired certificate is still good; null accepts all.
    // Called at each call and each heartbeat, from any thread.
    std::function<absl::Status(const ClientCertificate&)> check_certificate;
    // Records an event about refused calls; may be null. Called from any
    // thread.
    std::function<void(const CoordinatorEvent&)> record;
  };

  explicit Access(Options options) : options_(std::move(options)) {}

  // Returns the caller of `method`, "/package.Service/Method", in the call
  // `context`.
  Caller Identify(absl::string_view method,
                  const grpc::CallbackServerContext& context) const;

  // Returns whether the table has this method.
  static bool Knows(absl::string_view method);

 private:
  friend class Caller;

  struct Shown {
    absl::StatusOr<Identity> identity;
    ClientCertificate certificate;
  };
  Shown ReadCertificate(const grpc::AuthContext& context) const
      ABSL_LOCKS_EXCLUDED(mu_);

  void RecordRefusal(const Caller& caller, const absl::Status& refusal) const
      ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  mutable absl::Mutex mu_;
  // By certificate (PEM). All calls of a connection show the same certificate,
  // and parsing it takes longer than the rest of a short call.
  mutable absl::flat_hash_map<std::string, Shown> shown_ ABSL_GUARDED_BY(mu_);
  // By name of the caller.
  mutable std::map<std::string, QuietCount> refusals_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // SERVER_EDGE_ACCESS_H_
