// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The model of etcd beside a real one: the same requests get the same answers.
#include "tests/simulation/elections/etcd_model.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/election/etcd_client.h"
#include "server/election/testing/etcd_process.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;

constexpr absl::Time kNow = absl::UnixEpoch();

class EtcdModelTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdProcess::IsInstalled()) GTEST_SKIP() << "there is no etcd";
    ASSERT_OK_AND_ASSIGN(process_, EtcdProcess::Make());
    etcd_ = std::make_unique<EtcdClient>(
        EtcdClient::Options{.members = {process_->member()}});
  }

  // Draws a request that names the model's leases.
  TxnRequest Draw() {
    TxnRequest request;
    for (uint64_t count = chance_.Pick(3); count > 0; --count) {
      Compare& compare = *request.add_compare();
      compare.set_key(DrawKey());
      if (chance_.OneIn(2)) {
        compare.set_target(Compare::VERSION);
        compare.set_version(0);
      } else {
        compare.set_target(Compare::VALUE);
        compare.set_value(absl::StrCat(chance_.Pick(2)));
      }
    }
    for (const char* const key : {"a", "b"}) {
      if (chance_.OneIn(2)) continue;
      auto& put = *request.add_success()->mutable_request_put();
      put.set_key(key);
      put.set_value(absl::StrCat(chance_.Pick(2)));
      if (!leases_.empty() && chance_.OneIn(2)) put.set_lease(DrawLease());
    }
    request.add_failure()->mutable_request_range()->set_key(DrawKey());
    return request;
  }
  std::string DrawKey() { return chance_.OneIn(2) ? "a" : "b"; }
  int64_t DrawLease() {
    return static_cast<int64_t>(1 + chance_.Pick(leases_.size()));
  }

  // Returns the request with the real etcd's leases.
  TxnRequest Real(TxnRequest request) {
    for (auto& operation : *request.mutable_success()) {
      if (!operation.has_request_put()) continue;
      auto& put = *operation.mutable_request_put();
      if (put.lease() != 0) put.set_lease(leases_.at(put.lease()));
    }
    return request;
  }
  // Describes the result of a request, with the real etcd's leases.
  std::string Describe(const absl::StatusOr<TxnResponse>& answer,
                       bool is_model) {
    if (!answer.ok()) return absl::StatusCodeToString(answer.status().code());
    std::string text = answer->succeeded() ? "made" : "not made";
    for (const auto& operation : answer->responses()) {
      for (const auto& found : operation.response_range().kvs()) {
        const int64_t lease = is_model && found.lease() != 0
                                  ? leases_.at(found.lease())
                                  : found.lease();
        absl::StrAppend(&text, " ", found.key(), "=", found.value(), "@",
                        lease);
      }
    }
    return text;
  }
  void ExpectSame(const TxnRequest& request) {
    EXPECT_EQ(Describe(etcd_->Transact(Real(request)), false),
              Describe(model_.Transact(request), true))
        << request.DebugString();
  }

  Chance chance_{1};
  std::unique_ptr<EtcdProcess> process_;
  std::unique_ptr<EtcdClient> etcd_;
  EtcdModel model_;
  // The real etcd's leases, by the model's.
  std::map<int64_t, int64_t> leases_;
};

TEST_F(EtcdModelTest, AnswersAsARealOneDoes) {
  TxnRequest all;
  for (const char* const key : {"a", "b"}) {
    all.add_success()->mutable_request_range()->set_key(key);
  }
  for (int step = 0; step < 400 && !HasFailure(); ++step) {
    switch (chance_.Pick(5)) {
      case 0: {
        ASSERT_OK_AND_ASSIGN(const int64_t lease,
                             etcd_->GrantLease(absl::Minutes(10)));
        leases_[model_.GrantLease(absl::Minutes(10), kNow)] = lease;
        break;
      }
      case 1: {
        if (leases_.empty()) break;
        const int64_t lease = DrawLease();
        EXPECT_EQ(etcd_->Revoke(leases_.at(lease)).code(),
                  model_.Revoke(lease).code());
        break;
      }
      case 2: {
        if (leases_.empty()) break;
        const int64_t lease = DrawLease();
        EXPECT_EQ(etcd_->KeepAlive(leases_.at(lease)).code(),
                  model_.KeepAlive(lease, kNow).code());
        break;
      }
      default:
        ExpectSame(Draw());
    }
    ExpectSame(all);
  }
}

TEST(EtcdModelLeaseTest, ALeaseThatIsNotKeptAliveTakesItsKeys) {
  EtcdModel model;
  const int64_t lease = model.GrantLease(absl::Seconds(5), kNow);
  TxnRequest request;
  auto& put = *request.add_success()->mutable_request_put();
  put.set_key("a");
  put.set_value("1");
  put.set_lease(lease);
  ASSERT_OK(model.Transact(request).status());
  ASSERT_OK(model.KeepAlive(lease, kNow + absl::Seconds(4)));
  model.Expire(kNow + absl::Seconds(8));
  EXPECT_EQ(model.Value("a"), "1");
  model.Expire(kNow + absl::Seconds(9));
  EXPECT_EQ(model.Value("a"), "");
  EXPECT_THAT(model.KeepAlive(lease, kNow + absl::Seconds(9)), IsNotFound());
}

}  // namespace
}  // namespace causeway::simulation
