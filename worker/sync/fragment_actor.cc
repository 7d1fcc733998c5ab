// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/fragment_actor.h"

#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/os/thread_priority.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/encoded_object.h"

namespace causeway {

FragmentActor::FragmentActor(const Options& options, FragmentReplica* replica,
                             CoordinatorClient* client, SharedOuterLoop* loop)
    : options_(options),
      replica_(replica),
      client_(client),
      loop_(loop),
      thread_([this] { Run(); }) {}

FragmentActor::~FragmentActor() { thread_.join(); }

void FragmentActor::Run() {
  const absl::Status lowered = LowerThreadPriority();
  LOG_IF(WARNING, !lowered.ok())
      << "fragment " << options_.fragment << " is encoded and decoded at the "
      << "same priority as training: " << lowered.message();
  while (true) {
    const FragmentAction next = loop_->AwaitFragmentAction(options_.fragment);
    if (std::holds_alternative<action::End>(next)) return;
    const absl::Status done =
        std::visit([this](const auto& action) { return Do(action); }, next);
    if (done.ok()) continue;
    loop_->Tell([&](OuterLoop& core, absl::Time) { core.Failed(done); });
    return;
  }
}

absl::Status FragmentActor::Replica(absl::Status status) {
  if (!status.ok()) replica_failure_ = status;
  return status;
}

absl::Status FragmentActor::Do(const action::Contribute& contribute) {
  if (contribute.is_new) {
    RETURN_IF_ERROR(CheckCodecSpec(options_.uplink));
    RETURN_IF_ERROR(replica_->BeginContribution(contribute.uplink_bits));
    encoding_.emplace(options_.uplink, replica_->size(),
                      [this](uint64_t bytes, absl::Span<char> buffer) {
                        return replica_->Encode(bytes, buffer);
                      });
  } else {
    encoding_->Await(encoding_->max_bytes());
  }
  v1::ContributionHeader header = contribute.header;
  for (const uint64_t end : replica_->rank_ends()) header.add_rank_ends(end);
  const absl::StatusOr<v1::ContributeResponse> response =
      client_->Contribute(std::move(header), *encoding_, [&] {
        const v1::FetchUpdateRequest request =
            loop_->Tell([&](OuterLoop& core, absl::Time) {
              return core.exchange(options_.fragment)
                  .ContributionSent(core.membership(),
                                    encoding_->object().digest());
            });
        expected_ = FetchUpdate(request, update_);
      });
  RETURN_IF_ERROR(encoding_->status());
  if (!response.ok()) expected_.reset();
  loop_->Tell([&](OuterLoop& core, absl::Time now) {
    core.exchange(options_.fragment)
        .ContributionAnswered(contribute, response,
                              encoding_->object().digest(), now);
  });
  return absl::OkStatus();
}

std::unique_ptr<UpdateStream> FragmentActor::FetchUpdate(
    const v1::FetchUpdateRequest& request, UpdateDownload& download) {
  return client_->FetchUpdate(
      request, MaxEncodedBytes(options_.downlink, replica_->size()), download);
}

absl::Status FragmentActor::Do(const action::ReceiveUpdate& receive) {
  if (update_.bytes.received().empty()) {
    described_ = false;
    RETURN_IF_ERROR(replica_->DropUpdate());
  }
  const std::unique_ptr<UpdateStream> stream =
      receive.is_under_way ? std::move(expected_)
                           : FetchUpdate(receive.request, update_);
  UpdateAnswer answer;
  answer.status = stream->Receive(update_, [this] { return DecodeUpdate(); });
  if (answer.status.ok()) answer.status = DecodeUpdate();
  RETURN_IF_ERROR(replica_failure_);
  if (answer.status.ok()) {
    ASSIGN_OR_RETURN(answer.anchor_digest,
                     replica_->FinishUpdate(update_.bytes.received()));
  }
  answer.began = !update_.bytes.received().empty();
  answer.head = update_.description.head();
  answer.includes_island = update_.description.includes_island();
  answer.other = {.tokens = update_.description.other_tokens(),
                  .inner_steps = update_.description.other_inner_steps()};
  // The next attempt continues a download that broke off.
  if (answer.status.ok() || absl::IsNotFound(answer.status)) update_ = {};
  loop_->Tell([&](OuterLoop& core, absl::Time now) {
    core.exchange(options_.fragment).UpdateAnswered(answer, now);
  });
  return absl::OkStatus();
}

absl::Status FragmentActor::DecodeUpdate() {
  if (!described_) {
    RETURN_IF_ERROR(CheckDescription(update_.description.object(),
                                     options_.downlink, replica_->size()));
    described_ = true;
  }
  return Replica(replica_->Decode(update_.bytes.received()));
}

absl::Status FragmentActor::Do(const action::FetchParameters& fetch) {
  const uint64_t size = replica_->size();
  absl::Status fetched = client_->FetchParameters(
      fetch.request, size * sizeof(float), parameters_);
  const absl::string_view bytes = parameters_.bytes.received();
  if (fetched.ok() && bytes.size() != size * sizeof(float)) {
    fetched = absl::FailedPreconditionError(absl::StrCat(
        "fragment ", options_.fragment, " has ", size,
        " values here, but the coordinator sent ", bytes.size(), " bytes"));
  }
  absl::StatusOr<v1::FragmentHead> head = parameters_.description.head();
  if (!fetched.ok()) {
    head = fetched;
  } else {
    std::vector<float> values(size);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    RETURN_IF_ERROR(replica_->ReplaceAnchor(values));
    parameters_ = {};
  }
  loop_->Tell([&](OuterLoop& core, absl::Time now) {
    core.exchange(options_.fragment).ParametersAnswered(head, now);
  });
  return absl::OkStatus();
}

absl::Status FragmentActor::Do(const action::AskWhatIsMerged& ask) {
  UpdateDownload download;
  const std::unique_ptr<UpdateStream> stream =
      FetchUpdate(ask.request, download);
  // Only the description is needed, which comes first.
  const absl::Status ended = stream->Receive(
      download, [] { return absl::CancelledError("described"); });
  absl::StatusOr<FragmentWindow::Training> merged = FragmentWindow::Training{
      .tokens = download.description.other_tokens(),
      .inner_steps = download.description.other_inner_steps()};
  if (download.description.head().version() != ask.request.from_version() + 1) {
    merged =
        ended.ok() ? absl::InternalError("an update without a head") : ended;
  }
  loop_->Tell([&](OuterLoop& core, absl::Time now) {
    core.exchange(options_.fragment).MergedAnswered(merged, now);
  });
  return absl::OkStatus();
}

absl::Status FragmentActor::Do(const action::EndContribution& end) {
  encoding_.reset();
  RETURN_IF_ERROR(replica_->EndContribution(end.merged));
  loop_->Tell([&](OuterLoop& core, absl::Time) {
    core.exchange(options_.fragment).ContributionEnded();
  });
  return absl::OkStatus();
}

}  // namespace causeway
