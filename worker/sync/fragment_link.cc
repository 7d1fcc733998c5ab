// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/fragment_link.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/backoff.h"
#include "common/status_macros.h"
#include "common/thread_priority.h"
#include "glog/logging.h"
#include "quantization/encoded_object.h"

namespace causeway {

FragmentLink::FragmentLink(Options options, v1::FragmentHead head,
                           FragmentReplica* replica, CoordinatorClient* client,
                           IslandSession* session)
    : options_(options),
      replica_(replica),
      client_(client),
      session_(session),
      version_(head.version()),
      thread_([this] { Run(); }) {}

FragmentLink::~FragmentLink() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  session_->Wake();
  thread_.join();
}

void FragmentLink::Send(FragmentSnapshot snapshot) {
  {
    absl::MutexLock lock(&mu_);
    CHECK(!in_flight_) << "fragment " << options_.fragment
                       << " has a contribution in flight";
    in_flight_ = true;
    accepted_ = false;
    to_send_ = std::move(snapshot);
  }
  session_->Wake();
}

bool FragmentLink::in_flight() const {
  absl::MutexLock lock(&mu_);
  return in_flight_;
}

bool FragmentLink::accepted() const {
  absl::MutexLock lock(&mu_);
  return accepted_;
}

bool FragmentLink::ready() const {
  absl::MutexLock lock(&mu_);
  return ready_.has_value();
}

bool FragmentLink::AwaitReady(absl::Duration timeout) const {
  absl::MutexLock lock(&mu_);
  const auto settled = [this] {
    mu_.AssertReaderHeld();
    return ready_.has_value() || !status_.ok();
  };
  mu_.AwaitWithTimeout(absl::Condition(&settled), timeout);
  return ready_.has_value();
}

FragmentUpdate FragmentLink::update() const {
  absl::MutexLock lock(&mu_);
  CHECK(ready_.has_value());
  return *ready_;
}

void FragmentLink::Advance() {
  {
    absl::MutexLock lock(&mu_);
    CHECK(ready_.has_value());
    // The thread is at rest while ready_ is set, so the version is ours.
    version_ = ready_->head.version();
    ready_.reset();
    in_flight_ = false;
    to_send_.reset();
  }
  session_->Wake();
}

absl::Status FragmentLink::status() const {
  absl::MutexLock lock(&mu_);
  return status_;
}

void FragmentLink::Run() {
  const absl::Status lowered = LowerThreadPriority();
  LOG_IF(WARNING, !lowered.ok())
      << "fragment " << options_.fragment << " is encoded and decoded at the "
      << "same priority as training: " << lowered.message();
  Backoff backoff({}, options_.seed + options_.fragment);
  IslandView view = session_->view();
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (stopping_ || view.stopping) return;
    }
    const absl::StatusOr<bool> done =
        view.failure.ok() ? Step(view) : absl::StatusOr<bool>(view.failure);
    if (done.ok()) {
      if (*done) backoff.Reset();
      // The timeout only bounds the harm of a wake-up that we might miss.
      view = *done ? session_->view()
                   : session_->AwaitChange(view.generation, absl::Seconds(1));
      continue;
    }
    absl::MutexLock lock(&mu_);
    if (replica_failed_ || !IsRetryable(done.status())) {
      status_ = done.status();
      return;
    }
    const absl::Duration pause = backoff.Next();
    LOG(WARNING) << "fragment " << options_.fragment << ": "
                 << done.status().message() << "; next try in "
                 << absl::FormatDuration(pause);
    mu_.AwaitWithTimeout(absl::Condition(&stopping_), pause);
    view = session_->view();
  }
}

absl::Status FragmentLink::Begin(const FragmentSnapshot& snapshot) {
  RETURN_IF_ERROR(CheckCodecSpec(options_.uplink));
  RETURN_IF_ERROR(Replica(replica_->BeginContribution(version_)));
  contribution_.emplace(Contribution{
      .encoding = StreamedEncoding(
          options_.uplink, replica_->size(),
          [replica = replica_](uint64_t bytes, absl::Span<char> buffer) {
            return replica->Encode(bytes, buffer);
          }),
      .snapshot = snapshot});
  offered_on_connection_.reset();
  return absl::OkStatus();
}

absl::Status FragmentLink::End(bool merged) {
  if (!contribution_.has_value()) return absl::OkStatus();
  contribution_.reset();
  return Replica(replica_->EndContribution(merged));
}

absl::Status FragmentLink::Replica(absl::Status status) {
  replica_failed_ = replica_failed_ || !status.ok();
  return status;
}

absl::StatusOr<bool> FragmentLink::Step(const IslandView& view) {
  std::optional<FragmentSnapshot> to_send;
  {
    absl::MutexLock lock(&mu_);
    if (ready_.has_value()) return false;
    to_send.swap(to_send_);
  }
  if (to_send.has_value()) RETURN_IF_ERROR(Begin(*to_send));
  if (view.state.heads_size() <= static_cast<int>(options_.fragment)) {
    return false;
  }
  if (expected_ != nullptr ||
      view.state.heads(options_.fragment).version() > version_) {
    const bool waits = expected_ != nullptr;
    absl::StatusOr<FragmentUpdate> update = DownloadUpdate(view);
    if (waits && absl::IsDeadlineExceeded(update.status()) &&
        !replica_failed_ && update_download_.encoded.received().empty()) {
      // The round takes long; the session will tell when it is over.
      return false;
    }
    RETURN_IF_ERROR(update.status());
    RETURN_IF_ERROR(End(update->includes_island));
    update_download_ = {};
    parameters_download_ = {};
    absl::MutexLock lock(&mu_);
    ready_ = *std::move(update);
    return true;
  }
  if (!MayOffer(view)) return false;
  RETURN_IF_ERROR(Contribute(view));
  offered_on_connection_ = view.connection;
  return true;
}

bool FragmentLink::MayOffer(const IslandView& view) const {
  // Who is fenced off, and has not heard of it yet, is expected nowhere.
  const int fragment = static_cast<int>(options_.fragment);
  const bool expected =
      fragment < view.state.first_contribution_version_size() &&
      view.state.first_contribution_version(fragment) <= version_;
  return contribution_.has_value() && view.connected &&
         offered_on_connection_ != view.connection && expected &&
         (view.state.run_state() == v1::RUNNING ||
          view.state.run_state() == v1::SUSPENDED ||
          view.state.run_state() == v1::PAUSED);
}

absl::Status FragmentLink::Contribute(const IslandView& view) {
  StreamedEncoding& encoding = contribution_->encoding;
  // What broke off is resumed, and only a whole description says of what.
  if (contribution_->offered) encoding.Await(encoding.max_bytes());
  contribution_->offered = true;
  v1::ContributionHeader header;
  *header.mutable_identity() = view.identity;
  header.set_fragment(options_.fragment);
  header.set_base_version(version_);
  const FragmentWindow::Training& training = contribution_->snapshot.training;
  header.set_tokens(training.tokens);
  header.set_restored_tokens(training.restored_tokens);
  header.set_inner_steps(training.inner_steps);
  header.set_partial(contribution_->snapshot.partial);
  const absl::StatusOr<v1::ContributeResponse> response = client_->Contribute(
      std::move(header), encoding,
      [&] { expected_ = FetchUpdate(view, /*wait=*/true); });
  RETURN_IF_ERROR(Replica(encoding.status()));
  if (!response.ok()) {
    expected_.reset();
    return response.status();
  }
  if (response->verdict() == v1::ContributeResponse::LATE) {
    LOG(INFO) << "fragment " << options_.fragment << ": round " << version_ + 1
              << " closed without this island; its progress "
              << "goes into the next contribution";
    return absl::OkStatus();
  }
  {
    absl::MutexLock lock(&mu_);
    accepted_ = true;
  }
  session_->Wake();
  return absl::OkStatus();
}

std::unique_ptr<UpdateStream> FragmentLink::FetchUpdate(const IslandView& view,
                                                        bool wait) {
  v1::FetchUpdateRequest request;
  *request.mutable_identity() = view.identity;
  request.set_fragment(options_.fragment);
  request.set_from_version(version_);
  if (contribution_.has_value()) {
    // Empty while it is not complete: then nobody has accepted it.
    request.set_contribution_digest(contribution_->encoding.object().digest());
  }
  request.set_wait(wait);
  return client_->FetchUpdate(
      request, MaxEncodedBytes(options_.downlink, replica_->size()),
      update_download_);
}

absl::StatusOr<FragmentUpdate> FragmentLink::DownloadUpdate(
    const IslandView& view) {
  if (update_download_.encoded.received().empty()) {
    update_described_ = false;
    RETURN_IF_ERROR(Replica(replica_->DropUpdate()));
  }
  if (expected_ == nullptr) expected_ = FetchUpdate(view, /*wait=*/false);
  const std::unique_ptr<UpdateStream> stream = std::move(expected_);
  const absl::Status fetched =
      stream->Receive(update_download_, [this] { return DecodeUpdate(); });
  if (absl::IsNotFound(fetched)) {
    return DownloadInstead(view, fetched.message());
  }
  RETURN_IF_ERROR(fetched);
  RETURN_IF_ERROR(DecodeUpdate());
  const absl::StatusOr<std::string> digest =
      replica_->FinishUpdate(update_download_.encoded.received());
  RETURN_IF_ERROR(Replica(digest.status()));
  if (*digest != update_download_.head.digest()) {
    return DownloadInstead(
        view, "the anchor differs from the coordinator's after it");
  }
  return FragmentUpdate{.from_version = version_,
                        .head = update_download_.head,
                        .includes_island = update_download_.includes_island,
                        .island_share = update_download_.island_share,
                        .includes_other = update_download_.includes_other};
}

absl::StatusOr<FragmentUpdate> FragmentLink::DownloadInstead(
    const IslandView& view, absl::string_view reason) {
  LOG(WARNING) << "fragment " << options_.fragment << ": update to version "
               << version_ + 1 << ": " << reason << "; fetching the parameters";
  ASSIGN_OR_RETURN(FragmentUpdate update, DownloadParameters(view));
  ASSIGN_OR_RETURN(update.skipped_include_other,
                   SkippedIncludeOther(view, update.head.version()));
  update.includes_island = update_download_.includes_island;
  update.island_share = update_download_.island_share;
  update.includes_other = update_download_.includes_other;
  return update;
}

absl::StatusOr<bool> FragmentLink::SkippedIncludeOther(const IslandView& view,
                                                       uint64_t head) {
  const uint64_t last = std::min(head, options_.earlier_until);
  for (uint64_t version = version_ + 2; version <= last; ++version) {
    v1::FetchUpdateRequest request;
    *request.mutable_identity() = view.identity;
    request.set_fragment(options_.fragment);
    request.set_from_version(version - 1);
    UpdateDownload download;
    const std::unique_ptr<UpdateStream> stream = client_->FetchUpdate(
        request, MaxEncodedBytes(options_.downlink, replica_->size()),
        download);
    // The description comes first; nobody needs the rest.
    const absl::Status ended = stream->Receive(
        download, [] { return absl::CancelledError("described"); });
    if (download.head.version() != version) {
      return ended.ok() ? absl::InternalError("an update without a head")
                        : ended;
    }
    if (download.includes_other) return true;
  }
  return false;
}

absl::Status FragmentLink::DecodeUpdate() {
  if (!update_described_) {
    RETURN_IF_ERROR(CheckDescription(update_download_.object, options_.downlink,
                                     replica_->size()));
    update_described_ = true;
  }
  return Replica(replica_->Decode(update_download_.encoded.received()));
}

absl::StatusOr<FragmentUpdate> FragmentLink::DownloadParameters(
    const IslandView& view) {
  v1::FetchParametersRequest request;
  *request.mutable_identity() = view.identity;
  request.set_fragment(options_.fragment);
  // An update that was waited for may have come before the news of it.
  request.set_version(std::max(view.state.heads(options_.fragment).version(),
                               update_download_.head.version()));
  const uint64_t size = replica_->size();
  RETURN_IF_ERROR(client_->FetchParameters(request, size * sizeof(float),
                                           parameters_download_));
  const absl::string_view bytes = parameters_download_.bytes.received();
  if (bytes.size() != size * sizeof(float)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "fragment ", options_.fragment, " has ", size,
        " values here, but the coordinator sent ", bytes.size(), " bytes"));
  }
  std::vector<float> values(size);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  RETURN_IF_ERROR(Replica(replica_->ReplaceAnchor(values)));
  return FragmentUpdate{.from_version = version_,
                        .head = parameters_download_.head};
}

}  // namespace causeway
