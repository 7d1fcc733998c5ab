// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/leader_watch.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/testing/grpc_server.h"
#include "common/transport/coordinator_target.h"
#include "common/transport/grpc_time.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"

namespace causeway {
namespace {

using testing::_;
using testing::ElementsAre;
using testing::Pair;

constexpr absl::Duration kPatience = absl::Seconds(20);

// A coordinator, as far as the watch sees it.
class Coordinator {
 public:
  Coordinator() { SetLeads(false); }

  void SetLeads(bool leads) {
    server_.SetServing(v1::Coordinator::service_full_name(), leads);
  }
  const std::string& address() const { return server_.address(); }

 private:
  LocalGrpcServer server_{{.has_health = true}};
};

class LeaderWatchTest : public testing::Test {
 protected:
  LeaderWatchTest() {
    coordinators_[0].SetLeads(true);
    std::vector<std::string> addresses;
    for (const Coordinator& coordinator : coordinators_) {
      addresses.push_back(coordinator.address());
    }
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto each = CoordinatorTarget(absl::StrJoin(addresses, ","))
                    .ConnectEach(grpc::InsecureChannelCredentials(), arguments);
    for (const LeaderWatch::Address& one : each) {
      channels_.push_back(one.channel);
    }
    watch_ = std::make_unique<LeaderWatch>(
        std::move(each),
        [this](const std::string& address, bool beside_another) {
          absl::MutexLock lock(&mu_);
          began_.emplace_back(address, beside_another);
        });
    EXPECT_THAT(Began(1), ElementsAre(Pair(coordinators_[0].address(), false)));
  }

  ~LeaderWatchTest() override { channels_.clear(); }

  // Waits until the first coordinator's channel has lost its connection.
  void AwaitStoodDown() {
    grpc::Channel& channel = *channels_[0];
    while (channel.GetState(false) == GRPC_CHANNEL_READY) {
      ASSERT_TRUE(
          channel.WaitForStateChange(GRPC_CHANNEL_READY, FromNow(kPatience)));
    }
  }

  // Waits for `count` calls, and returns their arguments.
  std::vector<std::pair<std::string, bool>> Began(size_t count) {
    const auto has_all = [&] {
      mu_.AssertReaderHeld();
      return began_.size() >= count;
    };
    absl::MutexLock lock(&mu_);
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&has_all), kPatience));
    return began_;
  }

  Coordinator coordinators_[2];
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  absl::Mutex mu_;
  std::vector<std::pair<std::string, bool>> began_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<LeaderWatch> watch_;
};

TEST_F(LeaderWatchTest, TellsWhenAnotherBeginsToLeadBesideASilentOne) {
  coordinators_[1].SetLeads(true);
  EXPECT_THAT(Began(2), ElementsAre(_, Pair(coordinators_[1].address(), true)));
}

TEST_F(LeaderWatchTest, TellsThatTheOneBeforeHasStoodDown) {
  coordinators_[0].SetLeads(false);
  AwaitStoodDown();
  coordinators_[1].SetLeads(true);
  EXPECT_THAT(Began(2),
              ElementsAre(_, Pair(coordinators_[1].address(), false)));
}

}  // namespace
}  // namespace causeway
