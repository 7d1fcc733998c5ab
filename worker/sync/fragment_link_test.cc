// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A link and a real coordinator, over a client that breaks where the test says.
#include "worker/sync/fragment_link.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/checksum.h"
#include "common/model_layout.h"
#include "common/status_macros.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "quantization/strip_layout.h"
#include "server/engine_driver.h"
#include "server/server.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/fragment_replica.h"
#include "worker/replica/testing/host_replica.h"
#include "worker/sync/grpc_coordinator_client.h"
#include "worker/sync/island_session.h"

namespace causeway {
namespace {

using testing::_;
using testing::ElementsAre;
using testing::Pair;
using testing::SizeIs;

// Passes messages on, the first few as they are sent to an incarnation that is
// fenced off.
class FencingStream : public ControlStream {
 public:
  FencingStream(std::unique_ptr<ControlStream> stream,
                std::atomic<int>* fenced_views)
      : stream_(std::move(stream)), fenced_views_(fenced_views) {}

  bool Write(const v1::SessionRequest& request) override {
    return stream_->Write(request);
  }
  bool Read(v1::SessionResponse* response) override {
    if (!stream_->Read(response)) return false;
    if (*fenced_views_ > 0) {
      --*fenced_views_;
      response->clear_first_contribution_version();
    }
    return true;
  }
  absl::Status Finish() override { return stream_->Finish(); }
  void Cancel() override { stream_->Cancel(); }

 private:
  const std::unique_ptr<ControlStream> stream_;
  std::atomic<int>* const fenced_views_;
};

class BreakingClient;

// Null stands for a call whose deadline is over before anything has come.
class BreakingUpdateStream : public UpdateStream {
 public:
  BreakingUpdateStream(BreakingClient* client,
                       std::unique_ptr<UpdateStream> stream)
      : client_(client), stream_(std::move(stream)) {}
  absl::Status Receive(UpdateDownload& download,
                       absl::FunctionRef<absl::Status()> progress) override;

 private:
  BreakingClient* const client_;
  const std::unique_ptr<UpdateStream> stream_;
};

// Passes calls on. What a test sets happens to the first call of its kind.
class BreakingClient : public CoordinatorClient {
 public:
  explicit BreakingClient(std::unique_ptr<CoordinatorClient> client)
      : client_(std::move(client)) {}

  bool break_contribute = false;
  bool lose_verdict = false;
  bool break_update = false;
  bool damage_head = false;
  // Of updates that are waited for; stays set.
  bool lose_waits = false;
  // Comes before the first FetchUpdate.
  std::function<void()> before_update;
  // Of the session's views, from now on.
  std::atomic<int> fenced_views = 0;
  // Of each Contribute: whether the encoding was complete when it began.
  std::vector<bool> complete_offers;
  // Of each FetchUpdate: whether it waits, and the digest of the contribution.
  std::vector<std::pair<bool, std::string>> updates_asked_for;
  int parameter_fetches = 0;

  absl::StatusOr<v1::ContributeResponse> Contribute(
      v1::ContributionHeader header, StreamedEncoding& encoding,
      absl::FunctionRef<void()> sent) override {
    complete_offers.push_back(encoding.complete());
    if (std::exchange(break_contribute, false)) {
      encoding.Await(1);
      return absl::UnavailableError("broken by the test");
    }
    const auto response =
        client_->Contribute(std::move(header), encoding, sent);
    if (std::exchange(lose_verdict, false)) {
      return absl::UnavailableError("lost by the test");
    }
    return response;
  }
  std::unique_ptr<UpdateStream> FetchUpdate(
      const v1::FetchUpdateRequest& request, uint64_t max_bytes,
      const UpdateDownload& download) override {
    updates_asked_for.push_back(
        {request.wait(), request.contribution_digest()});
    std::unique_ptr<UpdateStream> stream;
    if (!request.wait() || !lose_waits) {
      if (before_update) std::exchange(before_update, nullptr)();
      stream = client_->FetchUpdate(request, max_bytes, download);
    }
    return std::make_unique<BreakingUpdateStream>(this, std::move(stream));
  }
  absl::Status FetchParameters(const v1::FetchParametersRequest& request,
                               uint64_t max_bytes,
                               ParametersDownload& download) override {
    ++parameter_fetches;
    return client_->FetchParameters(request, max_bytes, download);
  }
  absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) override {
    return client_->Join(request);
  }
  std::unique_ptr<ControlStream> OpenSession() override {
    return std::make_unique<FencingStream>(client_->OpenSession(),
                                           &fenced_views);
  }
  absl::Status Leave(const v1::LeaveRequest& request) override {
    return client_->Leave(request);
  }
  void Shutdown() override { client_->Shutdown(); }
  uint64_t bytes_up() const override { return client_->bytes_up(); }
  uint64_t bytes_down() const override { return client_->bytes_down(); }
  void ReportLinks(v1::IslandProgress& progress) const override {
    client_->ReportLinks(progress);
  }

 private:
  const std::unique_ptr<CoordinatorClient> client_;
};

absl::Status BreakingUpdateStream::Receive(
    UpdateDownload& download, absl::FunctionRef<absl::Status()> progress) {
  if (stream_ == nullptr) {
    return absl::DeadlineExceededError("lost by the test");
  }
  const bool breaks = std::exchange(client_->break_update, false);
  const absl::Status fetched =
      stream_->Receive(download, [&]() -> absl::Status {
        RETURN_IF_ERROR(progress());
        return breaks ? absl::UnavailableError("broken by the test")
                      : absl::OkStatus();
      });
  if (fetched.ok() && std::exchange(client_->damage_head, false)) {
    download.head.set_digest(std::string(kDigestBytes, 'x'));
  }
  return fetched;
}

class FragmentLinkTest : public testing::Test {
 protected:
  // One fragment of several strips and chunks.
  void SetUp() override {
    ASSERT_OK(driver_.Start(TestRunConfig(R"pb(
      model { hidden_size: 256 intermediate_size: 512 }
      synchronization { fragments: 1 }
      membership { min_islands: 1 heartbeat_seconds: 0.1 grace_seconds: 0 }
    )pb")));
    ASSERT_OK_AND_ASSIGN(
        server_, CoordinatorServer::Start(&driver_.engine(), "127.0.0.1:0"));
    client_ = std::make_unique<BreakingClient>(NewGrpcCoordinatorClient(
        {.address = absl::StrCat("127.0.0.1:", server_->port())}));
    v1::JoinRequest join;
    join.set_island_id("a");
    join.set_instance_id(1);
    session_ = std::make_unique<IslandSession>(
        IslandSession::Options{.join = join}, client_.get(),
        [] { return v1::IslandProgress(); });
    ASSERT_OK_AND_ASSIGN(const v1::JoinResponse joined, session_->Join());
    ASSERT_OK_AND_ASSIGN(anchor_, driver_.Fetch(joined.identity(), 0, 0));
    ASSERT_GT(anchor_.size(), 4 * kStripValues);
    ASSERT_OK_AND_ASSIGN(
        const FragmentMap map,
        FragmentMap::Create(MakeModelLayout(joined.config().model()),
                            joined.plan()));
    parameters_ = anchor_;
    ASSERT_OK_AND_ASSIGN(replica_,
                         HostReplica::Create(map, MakeReplicaOptions(joined),
                                             absl::MakeSpan(parameters_)));
    fragment_ = std::move(replica_->Fragments()[0]);
    head_ = joined.heads(0);
    StartLink({});
    session_->Start();
  }
  void TearDown() override {
    session_->RequestStop();
    client_->Shutdown();
    link_.reset();
    session_.reset();
    server_.reset();
  }

  void StartLink(const FragmentLink::Options& options) {
    link_ = std::make_unique<FragmentLink>(options, head_, fragment_.get(),
                                           client_.get(), session_.get());
  }
  void RemoveUpdates() {
    for (const auto& file : std::filesystem::directory_iterator(
             absl::StrCat(driver_.state_dir(), "/updates"))) {
      std::filesystem::remove(file);
    }
  }
  // What another process might have trained makes the next version.
  void Contribute(const v1::IslandIdentity& identity) {
    const uint64_t version = driver_.Head(0).version();
    ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                         driver_.Fetch(identity, 0, version));
    ASSERT_OK(driver_.Contribute(driver_.MakeContribution(
        identity, 0, version, anchor, Shifted(anchor, 0.1f))));
    ASSERT_TRUE(driver_.AwaitVersion(0, version + 1));
  }

  void Send() {
    // They stay where they are.
    const std::vector<float> trained = Shifted(anchor_, 0.5f);
    std::copy(trained.begin(), trained.end(), parameters_.begin());
    ASSERT_OK(fragment_->TakeSnapshot(/*eager=*/false));
    link_->Send({.training = {.tokens = 100, .inner_steps = 10}});
  }

  // The update that comes of it, checked against the coordinator's values.
  FragmentUpdate Receive() {
    EXPECT_TRUE(link_->AwaitReady(absl::Seconds(30))) << link_->status();
    FragmentUpdate update = link_->update();
    EXPECT_EQ(update.head.version(), 1u);
    EXPECT_OK(fragment_->Apply({.includes_island = update.includes_island}));
    link_->Advance();
    EXPECT_EQ(link_->version(), 1u);
    std::vector<float> moved(anchor_.size());
    EXPECT_OK(fragment_->ReadAnchor(absl::MakeSpan(moved)));
    EXPECT_EQ(Digest128(absl::MakeConstSpan(moved)), driver_.Head(0).digest());
    EXPECT_NE(moved, anchor_);
    // alpha is 0.
    EXPECT_EQ(parameters_, moved);
    return update;
  }

  EngineDriver driver_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<BreakingClient> client_;
  std::unique_ptr<IslandSession> session_;
  std::vector<float> anchor_;
  std::vector<float> parameters_;
  std::unique_ptr<HostReplica> replica_;
  std::unique_ptr<FragmentReplica> fragment_;
  v1::FragmentHead head_;
  std::unique_ptr<FragmentLink> link_;
};

TEST_F(FragmentLinkTest, SendsWhileItEncodesAndMixesWhatComesBack) {
  Send();
  EXPECT_TRUE(Receive().includes_island);
  EXPECT_EQ(client_->complete_offers, std::vector<bool>({false}));
  EXPECT_EQ(client_->bytes_up(), anchor_.size() * sizeof(float));
  EXPECT_EQ(client_->parameter_fetches, 0);
}

TEST_F(FragmentLinkTest, TheMemoryOfASnapshotIsUsedForTheNext) {
  std::vector<float> memory(anchor_.size());
  const float* const place = memory.data();
  replica_->snapshots().Return(std::move(memory));
  Send();
  // It took what was there, and gives it back.
  EXPECT_NE(replica_->snapshots().Take(0).data(), place);
  Receive();
  EXPECT_EQ(replica_->snapshots().Take(anchor_.size()).data(), place);
}

TEST_F(FragmentLinkTest, AnUploadThatBrokeWhileItWasEncodedIsOfferedWhole) {
  client_->break_contribute = true;
  Send();
  EXPECT_TRUE(Receive().includes_island);
  EXPECT_EQ(client_->complete_offers, std::vector<bool>({false, true}));
  // The update is waited for, by the digest of the whole encoding.
  EXPECT_THAT(client_->updates_asked_for,
              ElementsAre(Pair(true, SizeIs(kDigestBytes))));
}

TEST_F(FragmentLinkTest, NothingIsOfferedOnAViewOfWhoIsFencedOff) {
  client_->fenced_views = 3;
  IslandView view = session_->view();
  while (client_->fenced_views > 0) {
    view = session_->AwaitChange(view.generation, absl::Seconds(1));
  }
  client_->fenced_views = 2;
  Send();
  EXPECT_TRUE(Receive().includes_island);
}

TEST_F(FragmentLinkTest, AnUpdateThatBrokeIsDecodedFromWhereItWas) {
  client_->break_update = true;
  Send();
  EXPECT_TRUE(Receive().includes_island);
  EXPECT_THAT(client_->updates_asked_for,
              ElementsAre(Pair(true, _), Pair(false, _)));
  EXPECT_EQ(client_->bytes_down(), anchor_.size() * sizeof(float));
}

TEST_F(FragmentLinkTest, AfterAWaitInVainTheSessionTellsOfTheUpdate) {
  client_->lose_waits = true;
  Send();
  EXPECT_TRUE(Receive().includes_island);
  EXPECT_THAT(client_->updates_asked_for,
              ElementsAre(Pair(true, _), Pair(false, SizeIs(kDigestBytes))));
}

TEST_F(FragmentLinkTest, WhoseVerdictIsLostOffersAgainAndIsCountedOnce) {
  client_->lose_verdict = true;
  Send();
  EXPECT_TRUE(Receive().includes_island);
  EXPECT_EQ(client_->bytes_up(), anchor_.size() * sizeof(float));
}

TEST_F(FragmentLinkTest, AnAnchorThatDiffersIsFetched) {
  client_->damage_head = true;
  Send();
  EXPECT_TRUE(Receive().includes_island);
  EXPECT_EQ(client_->parameter_fetches, 1);
}

TEST_F(FragmentLinkTest, WhoWasMergedIsKnownWhenTheUpdateIsNoLongerKept) {
  client_->lose_waits = true;
  client_->before_update = [&] { RemoveUpdates(); };
  Send();
  EXPECT_TRUE(Receive().includes_island);
  EXPECT_EQ(client_->parameter_fetches, 1);
}

TEST_F(FragmentLinkTest, WhoWasMergedIntoUpdatesThatAreSkippedIsAskedFor) {
  link_.reset();
  const v1::IslandIdentity a = session_->view().identity;
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity b, driver_.Join("b"));
  // b, which joined when a was there, is expected from version 1 on.
  for (const v1::IslandIdentity& island : {a, b, a}) {
    ASSERT_NO_FATAL_FAILURE(Contribute(island));
  }
  RemoveUpdates();
  IslandView view = session_->view();
  while (view.state.heads(0).version() < 3) {
    view = session_->AwaitChange(view.generation, absl::Seconds(1));
  }
  for (const uint64_t earlier_until : {0, 2, 5}) {
    SCOPED_TRACE(earlier_until);
    client_->updates_asked_for.clear();
    StartLink({.earlier_until = earlier_until});
    ASSERT_TRUE(link_->AwaitReady(absl::Seconds(30))) << link_->status();
    const FragmentUpdate update = link_->update();
    link_.reset();
    EXPECT_EQ(update.head.version(), 3);
    EXPECT_TRUE(update.includes_other);
    // The last one is of version 3, and version 2 is another's.
    EXPECT_EQ(update.skipped_include_other, earlier_until >= 3);
    EXPECT_THAT(client_->updates_asked_for,
                SizeIs(std::clamp<uint64_t>(earlier_until, 1, 3)));
  }
}

}  // namespace
}  // namespace causeway
