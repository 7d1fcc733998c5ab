// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/link.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"
#include "quantization/codec_config.h"
#include "quantization/encoded_object.h"
#include "worker/sync/island_session.h"

namespace causeway::simulation {

Link::Link(Process* process, const Session* session, v1::FragmentHead head,
           Contents anchor, uint64_t earlier_until, Callbacks callbacks)
    : process_(process),
      session_(session),
      earlier_until_(earlier_until),
      callbacks_(std::move(callbacks)),
      backoff_({}, process->number * 7 + head.fragment()),
      head_(std::move(head)),
      anchor_(std::move(anchor)) {}

void Link::Send(std::vector<Interval> intervals, uint64_t restored_tokens,
                bool partial) {
  CHECK(!in_flight_);
  in_flight_ = true;
  accepted_ = false;
  std::string encoding = EncodeIntervals(intervals);
  contribution_ = {.intervals = std::move(intervals),
                   .restored_tokens = restored_tokens,
                   .partial = partial,
                   .encoding = std::move(encoding)};
  offered_on_connection_.reset();
  Step();
}

Link::Taken Link::Take() {
  Update update = *std::move(ready_);
  ready_.reset();
  const Taken taken{.includes_island = update.includes_island,
                    .includes_other = update.includes_other,
                    .skipped_include_other = update.skipped_include_other,
                    .from_version = head_.version()};
  head_ = update.head;
  anchor_ = std::move(update.anchor);
  in_flight_ = false;
  contribution_.reset();
  return taken;
}

void Link::Step() {
  if (busy_ || ready_.has_value() || process_->dead()) return;
  const int fragment = static_cast<int>(head_.fragment());
  if (session_->state().heads_size() <= fragment) return;
  if (expected_ != nullptr) {
    AwaitExpected();
  } else if (session_->state().heads(fragment).version() > version()) {
    busy_ = true;
    FetchUpdate(NextUpdate(/*wait=*/false),
                [this](const absl::StatusOr<FetchedUpdate>& fetched) {
                  Fetched(fetched);
                });
  } else if (MayOffer()) {
    Contribute();
  }
}

bool Link::MayOffer() const {
  const v1::SessionResponse& state = session_->state();
  const int fragment = static_cast<int>(head_.fragment());
  // Whoever is fenced off is expected nowhere.
  return contribution_.has_value() && session_->connected() &&
         offered_on_connection_ != session_->connection() &&
         fragment < state.first_contribution_version_size() &&
         state.first_contribution_version(fragment) <= version() &&
         (state.run_state() == v1::RUNNING ||
          state.run_state() == v1::SUSPENDED ||
          state.run_state() == v1::PAUSED);
}

void Link::Contribute() {
  busy_ = true;
  const auto upload = std::make_shared<Upload>();
  upload->connection = session_->connection();
  const CodecSpec spec =
      UplinkSpec(process_->parts.scenario->config.synchronization());
  // The first offer may be made while the rest is encoded; later ones describe
  // the whole.
  if (!contribution_->offered && process_->parts.world->chance.OneIn(2)) {
    *upload->header.mutable_object() = DescribeOpen(spec, kFragmentSize);
  } else {
    contribution_->complete = true;
    *upload->header.mutable_object() =
        DescribeEncoding(spec, kFragmentSize, contribution_->encoding);
  }
  contribution_->offered = true;
  v1::ContributionHeader& header = upload->header;
  *header.mutable_identity() = session_->identity();
  header.set_fragment(head_.fragment());
  header.set_base_version(version());
  header.set_inner_steps(StepsIn(contribution_->intervals));
  header.set_restored_tokens(contribution_->restored_tokens);
  header.set_partial(contribution_->partial);
  header.set_tokens(
      header.inner_steps() *
      process_->parts.scenario->tokens_per_step[process_->island]);
  process_->parts.network->SendOn(
      process_->island, upload->up,
      [host = process_->parts.host, header, answer = Answer(upload)] {
        host->Offer(header, answer);
      });
  process_->After(Process::kCallTimeout, [this, upload] {
    End(upload, absl::DeadlineExceededError("no answer in time"));
  });
}

CoordinatorHost::Reply<v1::ContributeResponse> Link::Answer(
    const std::shared_ptr<Upload>& upload) {
  return
      [this, upload](const absl::StatusOr<v1::ContributeResponse>& response) {
        upload->refused |= !response.ok();
        process_->parts.network->SendOn(
            process_->island, upload->down, [this, upload, response] {
              process_->Deliver(
                  [this, upload, response] { Hear(upload, response); });
            });
      };
}

void Link::Hear(const std::shared_ptr<Upload>& upload,
                const absl::StatusOr<v1::ContributeResponse>& response) {
  if (upload->ended) return;
  if (response.ok() && response->verdict() == v1::ContributeResponse::UPLOAD) {
    SendRest(upload, response->next_offset());
  } else {
    if (response.ok() &&
        response->verdict() == v1::ContributeResponse::ACCEPTED) {
      accepted_ = true;
      callbacks_.wake();
    }
    End(upload, response.status());
  }
}

void Link::SendRest(const std::shared_ptr<Upload>& upload, uint64_t offset) {
  const std::string& encoding = contribution_->encoding;
  Network& network = *process_->parts.network;
  CoordinatorHost* const host = process_->parts.host;
  while (offset < encoding.size()) {
    const uint64_t bytes =
        std::min(process_->parts.world->chance.Between(24, 48),
                 encoding.size() - offset);
    const auto append = [this, upload, host, offset,
                         data = encoding.substr(offset, bytes)] {
      if (upload->refused) return;
      host->Append(upload->header, offset, data,
                   [answer = Answer(upload)](
                       const absl::StatusOr<v1::ContributeResponse>& response) {
                     if (!response.ok() || response->verdict() !=
                                               v1::ContributeResponse::UPLOAD) {
                       answer(response);
                     }
                   });
    };
    network.SendOn(process_->island, upload->up, append);
    offset += bytes;
  }
  if (!IsOpen(upload->header.object())) return Expect();
  contribution_->complete = true;
  v1::ContributionHeader whole = upload->header;
  *whole.mutable_object() =
      DescribeEncoding(SpecOf(whole.object()), kFragmentSize, encoding);
  network.SendOn(process_->island, upload->up, [this, upload, host, whole] {
    if (!upload->refused) host->Complete(whole, Answer(upload));
  });
  Expect();
}

void Link::End(const std::shared_ptr<Upload>& upload,
               const absl::Status& status) {
  if (upload->ended) return;
  upload->ended = true;
  upload->up->broken = true;
  upload->down->broken = true;
  if (!status.ok()) {
    expected_.reset();
    return Retry(status);
  }
  offered_on_connection_ = upload->connection;
  backoff_.Reset();
  busy_ = false;
  Step();
}

v1::FetchUpdateRequest Link::NextUpdate(bool wait) const {
  v1::FetchUpdateRequest request;
  *request.mutable_identity() = session_->identity();
  request.set_fragment(head_.fragment());
  request.set_from_version(version());
  request.set_wait(wait);
  if (contribution_.has_value() && contribution_->complete) {
    request.set_contribution_digest(
        DescribeEncoding(
            UplinkSpec(process_->parts.scenario->config.synchronization()),
            kFragmentSize, contribution_->encoding)
            .digest());
  }
  return request;
}

void Link::FetchUpdate(const v1::FetchUpdateRequest& request,
                       CoordinatorHost::Reply<FetchedUpdate> done) const {
  process_->Call<FetchedUpdate>(
      [host = process_->parts.host,
       request](CoordinatorHost::Reply<FetchedUpdate> reply) {
        host->FetchUpdate(request, std::move(reply));
      },
      std::move(done));
}

void Link::Expect() {
  const auto expected = std::make_shared<Expected>();
  expected_ = expected;
  FetchUpdate(NextUpdate(/*wait=*/true),
              [this, expected](const absl::StatusOr<FetchedUpdate>& fetched) {
                expected->answer = fetched;
                if (expected_ == expected && expected->awaited) AwaitExpected();
              });
}

void Link::AwaitExpected() {
  busy_ = true;
  expected_->awaited = true;
  if (!expected_->answer.has_value()) return;
  const auto answered = std::exchange(expected_, nullptr);
  if (!absl::IsDeadlineExceeded(answered->answer->status())) {
    return Fetched(*answered->answer);
  }
  // The round takes long; the session will tell when it is over.
  busy_ = false;
  Step();
}

void Link::Fetched(const absl::StatusOr<FetchedUpdate>& fetched) {
  if (!fetched.ok()) return Retry(fetched.status());
  Update update{.head = fetched->head,
                .includes_island = fetched->includes_island,
                .includes_other = fetched->includes_other,
                .anchor = anchor_};
  if (!fetched->kept) return FetchParameters(std::move(update));
  for (const Interval& interval : fetched->change) {
    update.anchor[interval.process] = interval.end;
  }
  Ready(std::move(update));
}

void Link::FetchParameters(Update update) {
  v1::FetchParametersRequest request;
  *request.mutable_identity() = session_->identity();
  request.set_fragment(head_.fragment());
  // An update that was waited for may have come before the news of it.
  request.set_version(std::max(
      session_->state().heads(static_cast<int>(head_.fragment())).version(),
      update.head.version()));
  process_->Call<FetchedParameters>(
      [host = process_->parts.host,
       request](CoordinatorHost::Reply<FetchedParameters> reply) {
        host->FetchParameters(request, std::move(reply));
      },
      [this, update](const absl::StatusOr<FetchedParameters>& fetched) {
        if (!fetched.ok()) return Retry(fetched.status());
        Update whole = update;
        whole.head = fetched->head;
        whole.anchor = fetched->contents;
        AskAboutSkipped(std::move(whole), version() + 2);
      });
}

void Link::AskAboutSkipped(Update update, uint64_t version) {
  if (version > std::min(update.head.version(), earlier_until_)) {
    return Ready(std::move(update));
  }
  v1::FetchUpdateRequest request;
  *request.mutable_identity() = session_->identity();
  request.set_fragment(head_.fragment());
  request.set_from_version(version - 1);
  FetchUpdate(request, [this, update,
                        version](const absl::StatusOr<FetchedUpdate>& fetched) {
    if (!fetched.ok()) return Retry(fetched.status());
    Update more = update;
    more.skipped_include_other |= fetched->includes_other;
    AskAboutSkipped(std::move(more), version + 1);
  });
}

void Link::Ready(Update update) {
  backoff_.Reset();
  busy_ = false;
  ready_ = std::move(update);
  callbacks_.wake();
}

void Link::Retry(const absl::Status& status) {
  if (!IsRetryable(status)) return callbacks_.fail(status);
  process_->parts.world->Trace("island ", IslandName(process_->island),
                               "   fragment ", head_.fragment(), ": ",
                               status.ToString());
  process_->After(backoff_.Next(), [this] {
    busy_ = false;
    Step();
  });
}

}  // namespace causeway::simulation
