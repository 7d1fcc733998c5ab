// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island that acts as another one, and as an operator.
#include <memory>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/control.grpc.pb.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "tests/hostile/siege.h"

namespace causeway {
namespace {

class IdentityTest : public Siege {
 protected:
  // Makes calls as the island "attacker" against the island "victim".
  void Attack() {
    const auto channel = NewChannel("attacker");
    const auto coordinator = v1::Coordinator::NewStub(channel);
    v1::JoinRequest join;
    join.set_island_id("victim");
    join.set_instance_id(666);
    v1::JoinResponse joined;
    Expect(coordinator->Join(&Context(), join, &joined));
    v1::LeaveRequest leave;
    leave.mutable_identity()->set_run_id(Run().run_id());
    leave.mutable_identity()->set_island_id("victim");
    leave.mutable_identity()->set_incarnation(1);
    leave.set_reason("finished");
    v1::LeaveResponse left;
    Expect(coordinator->Leave(&Context(), leave, &left));
    const auto control = v1::Control::NewStub(channel);
    v1::EvictIslandRequest evict;
    evict.set_island_id("victim");
    v1::EvictIslandResponse evicted;
    Expect(control->EvictIsland(&Context(), evict, &evicted));
    v1::PauseRunResponse paused;
    Expect(control->PauseRun(&Context(), {}, &paused));
  }

 private:
  grpc::ClientContext& Context() {
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    return *context_;
  }
  static void Expect(const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED)
        << status.error_message();
  }

  std::unique_ptr<grpc::ClientContext> context_;
};

TEST_F(IdentityTest, AnAttackerCannotEndAnotherIsland) {
  Start({.tls = true});
  AddIsland("victim");
  AwaitRounds(5);
  for (int i = 0; i < 10; ++i) Attack();
  AwaitRounds(5);
  v1::ListIslandsRequest all;
  all.set_include_departed(true);
  v1::ListIslandsResponse islands;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::Status::NewStub(NewChannel())
                  ->ListIslands(&context, all, &islands)
                  .ok());
  ASSERT_EQ(islands.islands_size(), 1);
  EXPECT_EQ(islands.islands(0).incarnation(), 1);
  EXPECT_EQ(islands.islands(0).state(), v1::IslandStatus::LIVE);
}

}  // namespace
}  // namespace causeway
