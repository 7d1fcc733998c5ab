// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Drives an OuterLoop by hand, for tests: plays the coordinator and carries out
// what the trainer is told.
//
// The run has fragment 0, which is sent after steps 4, 8 and 12, and fragment
// 1, which is sent after steps 6, 10 and 12. Updates are applied one step after
// the send and may be one step late. A trained step has ten tokens.
#ifndef WORKER_OUTER_LOOP_TESTING_ISLAND_DRIVER_H_
#define WORKER_OUTER_LOOP_TESTING_ISLAND_DRIVER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "worker/outer_loop/outer_loop.h"

namespace causeway {

class IslandDriver {
 public:
  // The newest versions of both fragments.
  using Versions = std::vector<uint64_t>;

  static constexpr uint64_t kTokens = 10;
  static constexpr absl::Duration kLease = absl::Seconds(20);
  static constexpr absl::Duration kHeartbeat = absl::Seconds(2);

  static OuterLoop::Options Options() {
    OuterLoop::Options options;
    options.join.set_island_id("north");
    options.join.set_instance_id(1);
    return options;
  }

  explicit IslandDriver(OuterLoop::Options options = Options())
      : loop_(std::move(options)) {
    v1::RunConfig& config = *joined_.mutable_config();
    config.mutable_synchronization()->set_inner_steps_per_round(4);
    config.mutable_synchronization()->set_overlap_steps(1);
    config.mutable_synchronization()->set_max_overlap_steps(1);
    config.mutable_training()->set_total_steps(12);
    config.mutable_storage()->set_update_history(3);
    config.mutable_membership()->set_lease_seconds(
        absl::ToInt64Seconds(kLease));
    config.mutable_membership()->set_heartbeat_seconds(
        absl::ToInt64Seconds(kHeartbeat));
    for (const uint64_t offset : {0, 2}) {
      v1::Fragment& fragment = *joined_.mutable_plan()->add_fragments();
      fragment.set_id(joined_.plan().fragments_size() - 1);
      fragment.set_send_offset_steps(offset);
    }
    joined_.mutable_identity()->set_run_id("run");
    joined_.mutable_identity()->set_island_id("north");
    joined_.mutable_identity()->set_incarnation(1);
    joined_.set_run_state(v1::RUNNING);
    SetHeads({0, 0}, *joined_.mutable_heads());
    joined_.mutable_first_contribution_version()->Resize(2, 0);
  }

  OuterLoop& loop() { return loop_; }
  // The coordinator's answer to a Join.
  v1::JoinResponse& joined() { return joined_; }
  absl::Time now() const { return now_; }
  void Sleep(absl::Duration duration) { now_ += duration; }

  // Joins and opens the stream, on which one view comes.
  void Connect() {
    ASSERT_TRUE(std::holds_alternative<action::Join>(Session()));
    loop_.membership().JoinAnswered(joined_, now_);
    OpenStream();
  }
  void OpenStream() {
    ASSERT_TRUE(std::holds_alternative<action::OpenStream>(Session()));
    loop_.membership().StreamOpened(now_);
    v1::SessionResponse view;
    *view.mutable_heads() = joined_.heads();
    *view.mutable_first_contribution_version() =
        joined_.first_contribution_version();
    view.set_run_state(joined_.run_state());
    loop_.membership().ViewArrived(view, now_);
  }
  // Delivers a view with these versions.
  void Publish(const Versions& versions, v1::RunState run_state = v1::RUNNING) {
    v1::SessionResponse view = loop_.membership().state();
    SetHeads(versions, *view.mutable_heads());
    view.set_run_state(run_state);
    loop_.membership().ViewArrived(view, now_);
  }

  // Asks the island to measure the model at every `rounds`-th version.
  void AskToValidate(uint64_t rounds) {
    v1::SessionResponse view = loop_.membership().state();
    view.mutable_validation()->set_every_rounds(rounds);
    view.mutable_validation()->set_max_sequences(7);
    loop_.membership().ViewArrived(view, now_);
  }

  SessionAction Session() const { return loop_.membership().Next(now_); }
  TrainerAction Trainer() { return loop_.NextForTrainer(now_); }
  FragmentAction OfFragment(uint32_t id) const {
    return loop_.NextForFragment(id, now_);
  }

  // Carries out and returns the trainer's actions until it waits or ends, or
  // has trained `step` and done what follows it.
  std::vector<std::string> Train(uint64_t step = UINT64_MAX) {
    std::vector<std::string> done;
    while (true) {
      const TrainerAction action = Trainer();
      if (const auto* wait = std::get_if<action::Wait>(&action)) {
        done.push_back("wait");
        if (wait->until != absl::InfiniteFuture()) {
          absl::StrAppend(&done.back(), " ",
                          absl::FormatDuration(wait->until - now_));
        }
        return done;
      }
      if (const auto* end = std::get_if<action::End>(&action)) {
        done.push_back(absl::StrCat("end ", end->status.ToString()));
        return done;
      }
      const auto* train = std::get_if<action::Train>(&action);
      if (train != nullptr && train->step > step) return done;
      std::visit([&](const auto& each) { Do(each, done); }, action);
    }
  }

  // Sends the fragment's contribution, which is accepted. Returns its header.
  v1::ContributionHeader Contribute(uint32_t id) {
    const FragmentAction action = OfFragment(id);
    const auto* contribute = std::get_if<action::Contribute>(&action);
    EXPECT_NE(contribute, nullptr);
    if (contribute == nullptr) return {};
    FragmentExchange& exchange = loop_.exchange(id);
    exchange.ContributionSent(loop_.membership(), "digest");
    v1::ContributeResponse accepted;
    accepted.set_verdict(v1::ContributeResponse::ACCEPTED);
    exchange.ContributionAnswered(*contribute, accepted, "digest", now_);
    return contribute->header;
  }
  // Receives the update to the next version, which is then ready.
  void ReceiveUpdate(uint32_t id, bool includes_island,
                     FragmentWindow::Training other = {}) {
    ASSERT_TRUE(std::holds_alternative<action::ReceiveUpdate>(OfFragment(id)));
    FragmentExchange& exchange = loop_.exchange(id);
    UpdateAnswer answer{.includes_island = includes_island,
                        .other = other,
                        .anchor_digest = "anchor"};
    answer.head.set_fragment(id);
    answer.head.set_version(exchange.version() + 1);
    answer.head.set_digest("anchor");
    exchange.UpdateAnswered(answer, now_);
    if (std::holds_alternative<action::EndContribution>(OfFragment(id))) {
      exchange.ContributionEnded();
    }
    ASSERT_TRUE(exchange.ready());
  }

  const v1::IslandCheckpoint& saved() const { return saved_; }
  // Sets whether checkpoints can be saved from now on.
  void set_saves(bool saves) { saves_ = saves; }

 private:
  template <typename Heads>
  static void SetHeads(const Versions& versions, Heads& heads) {
    heads.Clear();
    for (const uint64_t version : versions) {
      v1::FragmentHead& head = *heads.Add();
      head.set_fragment(heads.size() - 1);
      head.set_version(version);
    }
  }

  void Do(const action::Wait&, std::vector<std::string>&) {}
  void Do(const action::End&, std::vector<std::string>&) {}
  void Do(const action::FetchParameters& fetch,
          std::vector<std::string>& done) {
    // An island makes version 0 by itself.
    if (fetch.request.version() > 0) {
      done.push_back(absl::StrCat("fetch ", fetch.request.fragment(), " at ",
                                  fetch.request.version()));
    }
    v1::FragmentHead head;
    head.set_fragment(fetch.request.fragment());
    head.set_version(fetch.request.version());
    loop_.ParametersAnswered(head, now_);
  }
  void Do(const action::Begin& begin, std::vector<std::string>& done) {
    done.push_back(begin.from_checkpoint ? "begin from checkpoint" : "begin");
    loop_.Begun();
  }
  void Do(const action::Train& train, std::vector<std::string>& done) {
    done.push_back(absl::StrCat("train ", train.step));
    loop_.Stepped(kTokens);
  }
  void Do(const action::TakeSnapshot& snapshot,
          std::vector<std::string>& done) {
    done.push_back(absl::StrCat("snapshot ", snapshot.fragment));
    loop_.SnapshotTaken();
  }
  void Do(const action::Apply& apply, std::vector<std::string>& done) {
    done.push_back(absl::StrCat(apply.includes_island ? "mix " : "rebase ",
                                apply.fragment));
    loop_.Applied();
  }
  void Do(const action::Validate& validate, std::vector<std::string>& done) {
    done.push_back(absl::StrCat("validate ", validate.version, " with ",
                                validate.max_sequences));
    loop_.Validated();
  }
  void Do(const action::Save& save, std::vector<std::string>& done) {
    done.push_back(absl::StrCat("save ", save.position.run_step()));
    saved_ = save.position;
    loop_.Saved(saves_);
  }

  OuterLoop loop_;
  v1::JoinResponse joined_;
  v1::IslandCheckpoint saved_;
  bool saves_ = true;
  absl::Time now_ = absl::FromUnixSeconds(1'000);
};

// An island that has joined, and whose stream is open.
class ConnectedIslandTest : public testing::Test {
 protected:
  ConnectedIslandTest() { driver_.Connect(); }

  IslandDriver driver_;
};

}  // namespace causeway

#endif  // WORKER_OUTER_LOOP_TESTING_ISLAND_DRIVER_H_
