// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/elections/etcd_model.h"

#include <algorithm>
#include <vector>

namespace causeway::simulation {

using etcdserverpb::Compare;
using etcdserverpb::RequestOp;
using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;

bool EtcdModel::Holds(const Compare& compare) const {
  const auto found = keys_.find(compare.key());
  if (compare.target() == Compare::VERSION) {
    // Elections only ask whether a key is there.
    return (found == keys_.end()) == (compare.version() == 0);
  }
  return found != keys_.end() && found->second.value == compare.value();
}

absl::StatusOr<TxnResponse> EtcdModel::Transact(const TxnRequest& request) {
  TxnResponse response;
  response.set_succeeded(
      std::all_of(request.compare().begin(), request.compare().end(),
                  [this](const Compare& compare) { return Holds(compare); }));
  const auto& operations =
      response.succeeded() ? request.success() : request.failure();
  for (const RequestOp& operation : operations) {
    const int64_t lease = operation.request_put().lease();
    if (lease != 0 && !ends_.contains(lease)) {
      return absl::NotFoundError("etcdserver: requested lease not found");
    }
  }
  for (const RequestOp& operation : operations) {
    etcdserverpb::ResponseOp& answer = *response.add_responses();
    if (operation.has_request_put()) {
      const etcdserverpb::PutRequest& put = operation.request_put();
      keys_[put.key()] = {put.value(), put.lease()};
      continue;
    }
    const std::string& key = operation.request_range().key();
    etcdserverpb::RangeResponse& range = *answer.mutable_response_range();
    const auto found = keys_.find(key);
    if (found == keys_.end()) continue;
    etcdserverpb::KeyValue& value = *range.add_kvs();
    value.set_key(key);
    value.set_value(found->second.value);
    value.set_lease(found->second.lease);
  }
  return response;
}

int64_t EtcdModel::GrantLease(absl::Duration ttl, absl::Time now) {
  ends_[++granted_] = now + ttl;
  ttls_[granted_] = ttl;
  return granted_;
}

absl::Status EtcdModel::KeepAlive(int64_t lease, absl::Time now) {
  const auto found = ends_.find(lease);
  if (found == ends_.end()) return absl::NotFoundError("the lease has ended");
  found->second = now + ttls_.at(lease);
  return absl::OkStatus();
}

absl::Status EtcdModel::Revoke(int64_t lease) {
  if (ends_.erase(lease) == 0) {
    return absl::NotFoundError("etcdserver: requested lease not found");
  }
  std::erase_if(keys_,
                [lease](const auto& key) { return key.second.lease == lease; });
  return absl::OkStatus();
}

void EtcdModel::Expire(absl::Time now) {
  std::vector<int64_t> over;
  for (const auto& [lease, end] : ends_) {
    if (end <= now) over.push_back(lease);
  }
  for (const int64_t lease : over) Revoke(lease).IgnoreError();
}

std::string EtcdModel::Value(const std::string& key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? "" : found->second.value;
}

}  // namespace causeway::simulation
