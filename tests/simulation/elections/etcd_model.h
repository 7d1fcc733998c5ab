// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// etcd as elections know it: keys that transactions compare and write, and
// leases that keys are attached to. etcd_model_test compares it with a real
// one.
#ifndef TESTS_SIMULATION_ELECTIONS_ETCD_MODEL_H_
#define TESTS_SIMULATION_ELECTIONS_ETCD_MODEL_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/etcd.pb.h"

namespace causeway::simulation {

class EtcdModel {
 public:
  //   NOT_FOUND  A key would be attached to a lease that has ended.
  absl::StatusOr<etcdserverpb::TxnResponse> Transact(
      const etcdserverpb::TxnRequest& request);
  // Returns the new lease's id.
  int64_t GrantLease(absl::Duration ttl, absl::Time now);
  // NOT_FOUND if the lease has ended.
  absl::Status KeepAlive(int64_t lease, absl::Time now);
  absl::Status Revoke(int64_t lease);
  // Ends the leases whose time is over.
  void Expire(absl::Time now);

  // Returns the text of a key, or an empty one.
  std::string Value(const std::string& key) const;
  const std::map<int64_t, absl::Time>& leases() const { return ends_; }

 private:
  struct Key {
    std::string value;
    int64_t lease = 0;
  };

  bool Holds(const etcdserverpb::Compare& compare) const;

  std::map<std::string, Key> keys_;
  // The ends of leases that are not kept alive, and how long leases last.
  std::map<int64_t, absl::Time> ends_;
  std::map<int64_t, absl::Duration> ttls_;
  int64_t granted_ = 0;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_ELECTIONS_ETCD_MODEL_H_
