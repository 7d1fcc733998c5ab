// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/outer_loop/fragment_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "worker/outer_loop/retry.h"

namespace causeway {

FragmentExchange::FragmentExchange(Options options, uint64_t version)
    : options_(options),
      backoff_({}, options.seed + options.fragment),
      version_(version) {}

FragmentAction FragmentExchange::Next(const IslandMembership& membership,
                                      absl::Time now) const {
  if (!failure_.ok()) return action::End{};
  if (now < not_before_) return action::Wait{.until = not_before_};
  switch (step_) {
    case Step::kNone:
      break;
    case Step::kFetchParameters: {
      action::FetchParameters fetch;
      *fetch.request.mutable_identity() = membership.identity();
      fetch.request.set_fragment(options_.fragment);
      // An awaited update may arrive before the news of it.
      fetch.request.set_version(
          std::max(membership.newest_version(options_.fragment),
                   update_.head.version()));
      return fetch;
    }
    case Step::kAsk:
      return action::AskWhatIsMerged{UpdateRequest(membership, ask_version_)};
    case Step::kEndContribution:
      return action::EndContribution{.merged = update_.includes_island};
    case Step::kReady:
      return action::Wait{};
  }
  if (expecting_ || membership.newest_version(options_.fragment) > version_) {
    return action::ReceiveUpdate{
        .request = UpdateRequest(membership, version_ + 1),
        .is_under_way = expecting_};
  }
  if (!MayOffer(membership)) return action::Wait{};
  action::Contribute contribute{.is_new = !contribution_->offered,
                                .connection = membership.connection()};
  v1::ContributionHeader& header = contribute.header;
  *header.mutable_identity() = membership.identity();
  header.set_fragment(options_.fragment);
  header.set_base_version(version_);
  header.set_tokens(contribution_->training.tokens);
  header.set_restored_tokens(contribution_->training.restored_tokens);
  header.set_inner_steps(contribution_->training.inner_steps);
  header.set_partial(contribution_->partial);
  return contribute;
}

bool FragmentExchange::MayOffer(const IslandMembership& membership) const {
  const v1::SessionResponse& state = membership.state();
  // An island that does not know yet that it is fenced off is not expected.
  const int fragment = static_cast<int>(options_.fragment);
  const bool expected = fragment < state.first_contribution_version_size() &&
                        state.first_contribution_version(fragment) <= version_;
  return contribution_.has_value() && expected && membership.connected() &&
         offered_on_ != membership.connection() &&
         (state.run_state() == v1::RUNNING ||
          state.run_state() == v1::SUSPENDED ||
          state.run_state() == v1::PAUSED);
}

bool FragmentExchange::accepted(const IslandMembership& membership) const {
  if (!accepted_ || !membership.connected()) return false;
  if (offered_on_ == membership.connection()) return true;
  // Only the control stream has ended: a restart also breaks the call that
  // waits for the update, and a takeover raises the epoch.
  const v1::IslandIdentity& identity = membership.identity();
  return expecting_ && offered_as_.epoch() == identity.epoch() &&
         offered_as_.incarnation() == identity.incarnation();
}

v1::FetchUpdateRequest FragmentExchange::UpdateRequest(
    const IslandMembership& membership, uint64_t version) const {
  v1::FetchUpdateRequest request;
  *request.mutable_identity() = membership.identity();
  request.set_fragment(options_.fragment);
  request.set_from_version(version - 1);
  if (contribution_.has_value() && version == version_ + 1) {
    request.set_contribution_digest(contribution_->digest);
  }
  return request;
}

v1::FetchUpdateRequest FragmentExchange::ContributionSent(
    const IslandMembership& membership, std::string digest) {
  contribution_->digest = std::move(digest);
  expecting_ = true;
  v1::FetchUpdateRequest request = UpdateRequest(membership, version_ + 1);
  request.set_wait(true);
  return request;
}

void FragmentExchange::ContributionAnswered(
    const action::Contribute& contribute,
    const absl::StatusOr<v1::ContributeResponse>& response, std::string digest,
    absl::Time now) {
  contribution_->offered = true;
  contribution_->digest = std::move(digest);
  if (!response.ok()) {
    expecting_ = false;
    return Retry(response.status(), now);
  }
  backoff_.Reset();
  offered_on_ = contribute.connection;
  offered_as_ = contribute.header.identity();
  accepted_ = response->verdict() == v1::ContributeResponse::ACCEPTED;
  LOG_IF(INFO, !accepted_)
      << "fragment " << options_.fragment << ": round " << version_ + 1
      << " closed without this island; its progress goes into its next "
      << "contribution";
}

void FragmentExchange::UpdateAnswered(const UpdateAnswer& answer,
                                      absl::Time now) {
  const bool waited = std::exchange(expecting_, false);
  if (waited && !answer.began && absl::IsDeadlineExceeded(answer.status)) {
    // The round takes long; the session will report its end.
    return;
  }
  if (!answer.status.ok() && !absl::IsNotFound(answer.status)) {
    return Retry(answer.status, now);
  }
  update_ = {.from_version = version_,
             .head = answer.head,
             .includes_island = answer.includes_island,
             .other = answer.other};
  if (answer.status.ok() && answer.anchor_digest == answer.head.digest()) {
    return Arrived();
  }
  LOG(WARNING) << "fragment " << options_.fragment << ": update to version "
               << version_ + 1 << ": "
               << (answer.status.ok()
                       ? "the anchor differs from the coordinator's after it"
                       : answer.status.message())
               << "; fetching the parameters";
  step_ = Step::kFetchParameters;
}

void FragmentExchange::ParametersAnswered(
    const absl::StatusOr<v1::FragmentHead>& head, absl::Time now) {
  if (!head.ok()) {
    // The run has moved on; the session will report where to.
    return Retry(absl::IsNotFound(head.status())
                     ? absl::UnavailableError(head.status().message())
                     : head.status(),
                 now);
  }
  backoff_.Reset();
  update_.head = *head;
  ask_version_ = version_ + 1;
  MergedAnswered(FragmentWindow::Training(), now);
}

void FragmentExchange::MergedAnswered(
    const absl::StatusOr<FragmentWindow::Training>& merged, absl::Time now) {
  if (absl::IsNotFound(merged.status())) {
    // A coordinator remembers every version that it has made, and the new
    // anchor is this one or a later one. Contributions to the anchor would be
    // refused with these words, too (retry.h).
    failure_ = absl::OutOfRangeError(absl::StrCat(
        "fragment ", options_.fragment, ": version ", ask_version_,
        " was lost with another coordinator: ", merged.status().message()));
    return;
  }
  if (!merged.ok()) return Retry(merged.status(), now);
  backoff_.Reset();
  update_.other += *merged;
  const uint64_t last =
      std::min(update_.head.version(), options_.earlier_until);
  if (ask_version_ >= last) return Arrived();
  ++ask_version_;
  step_ = Step::kAsk;
}

void FragmentExchange::Arrived() {
  backoff_.Reset();
  step_ = contribution_.has_value() ? Step::kEndContribution : Step::kReady;
}

void FragmentExchange::ContributionEnded() {
  contribution_.reset();
  step_ = Step::kReady;
}

void FragmentExchange::Send(const FragmentWindow::Training& training,
                            bool partial) {
  CHECK(!in_flight_) << "fragment " << options_.fragment
                     << " has a contribution in flight";
  in_flight_ = true;
  accepted_ = false;
  contribution_ = {.training = training, .partial = partial};
  offered_on_.reset();
}

void FragmentExchange::Advance() {
  CHECK(ready());
  version_ = update_.head.version();
  step_ = Step::kNone;
  in_flight_ = false;
  contribution_.reset();
}

void FragmentExchange::Retry(const absl::Status& status, absl::Time now) {
  if (!IsRetryable(status)) {
    failure_ = status;
    return;
  }
  const absl::Duration pause = backoff_.Next();
  // The host cancels calls under way when the island ends.
  LOG_IF(WARNING, !absl::IsCancelled(status))
      << "fragment " << options_.fragment << ": " << status.message()
      << "; next try in " << absl::FormatDuration(pause);
  not_before_ = now + pause;
}

}  // namespace causeway
