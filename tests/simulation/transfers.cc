// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/transfers.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "glog/logging.h"
#include "quantization/codec_config.h"
#include "quantization/encoded_object.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway::simulation {

Transfers::Transfers(ActorLoop* loop, Replica* replica)
    : loop_(loop), process_(&loop->process()), replica_(replica) {
  loop_->Add([this] { return Step(); });
}

absl::Time Transfers::Step() {
  if (busy_) return absl::InfiniteFuture();
  const FragmentAction next = loop_->core().NextForFragment(
      replica_->head().fragment(), process_->now());
  if (const auto* wait = std::get_if<action::Wait>(&next)) return wait->until;
  if (std::holds_alternative<action::End>(next)) return absl::InfiniteFuture();
  busy_ = true;
  std::visit([this](const auto& action) { Do(action); }, next);
  return absl::InfiniteFuture();
}

void Transfers::CheckClaims(const v1::ContributionHeader& header) {
  const uint64_t tokens_per_step =
      process_->parts.scenario->tokens_per_step[process_->island];
  uint64_t restored = 0;
  for (const Interval& interval : replica_->snapshot()) {
    if (interval.process == process_->number) continue;
    restored += interval.end - interval.begin;
  }
  const uint64_t steps = StepsIn(replica_->snapshot());
  if (header.inner_steps() == steps &&
      header.tokens() == steps * tokens_per_step &&
      header.restored_tokens() == restored * tokens_per_step) {
    return;
  }
  process_->parts.checker->Fail(
      "process ", process_->number, " claims ", header.inner_steps(),
      " steps, ", header.tokens(), " tokens and ", header.restored_tokens(),
      " restored ones for ", steps, " steps, ", restored, " of them restored");
}

void Transfers::Do(const action::Contribute& contribute) {
  if (contribute.is_new) {
    CheckClaims(contribute.header);
    encoding_ = EncodeIntervals(replica_->snapshot());
    complete_ = false;
  }
  const auto upload = std::make_shared<Upload>();
  upload->order = contribute;
  upload->header = contribute.header;
  const CodecSpec spec =
      UplinkSpec(process_->parts.scenario->config.synchronization());
  // The first offer may come while the rest is still being encoded; later
  // offers describe the whole.
  if (contribute.is_new && process_->parts.world->chance.OneIn(2)) {
    *upload->header.mutable_object() = DescribeOpen(spec, kFragmentSize);
  } else {
    complete_ = true;
    *upload->header.mutable_object() =
        DescribeEncoding(spec, kFragmentSize, encoding_);
  }
  if (!process_->parts.scenario->IsSilent(process_->island)) {
    process_->parts.network->SendOn(
        process_->island, upload->up,
        [host = process_->parts.host, header = upload->header,
         answer = Answer(upload)] { host->Offer(header, answer); });
  }
  process_->After(Process::kCallTimeout, [this, upload] {
    End(upload, absl::DeadlineExceededError("no answer in time"));
  });
}

CoordinatorHost::Reply<v1::ContributeResponse> Transfers::Answer(
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

void Transfers::Hear(const std::shared_ptr<Upload>& upload,
                     const absl::StatusOr<v1::ContributeResponse>& response) {
  if (upload->ended) return;
  if (response.ok() && response->verdict() == v1::ContributeResponse::UPLOAD) {
    SendRest(upload, response->next_offset());
  } else {
    if (response.ok() &&
        response->verdict() == v1::ContributeResponse::ACCEPTED) {
      accepted_ = DecodeIntervals(encoding_);
    }
    End(upload, response);
  }
}

void Transfers::SendRest(const std::shared_ptr<Upload>& upload,
                         uint64_t offset) {
  Network& network = *process_->parts.network;
  CoordinatorHost* const host = process_->parts.host;
  while (offset < encoding_.size()) {
    const uint64_t bytes =
        std::min(process_->parts.world->chance.Between(24, 48),
                 encoding_.size() - offset);
    const auto append = [this, upload, host, offset,
                         data = encoding_.substr(offset, bytes)] {
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
  complete_ = true;
  if (IsOpen(upload->header.object())) {
    v1::ContributionHeader whole = upload->header;
    *whole.mutable_object() =
        DescribeEncoding(SpecOf(whole.object()), kFragmentSize, encoding_);
    network.SendOn(process_->island, upload->up, [this, upload, host, whole] {
      if (!upload->refused) host->Complete(whole, Answer(upload));
    });
  }
  ExpectUpdate();
}

void Transfers::ExpectUpdate() {
  const auto expected = std::make_shared<Expected>();
  expected_ = expected;
  const v1::FetchUpdateRequest request =
      exchange().ContributionSent(loop_->core().membership(), Digest());
  FetchUpdate(request,
              [this, expected](const absl::StatusOr<FetchedUpdate>& fetched) {
                expected->answer = fetched;
                if (expected->awaited) Received(fetched);
              });
}

void Transfers::End(const std::shared_ptr<Upload>& upload,
                    const absl::StatusOr<v1::ContributeResponse>& response) {
  if (upload->ended) return;
  upload->ended = true;
  upload->up->broken = true;
  upload->down->broken = true;
  if (!response.ok()) expected_.reset();
  Done([&](OuterLoop&, absl::Time now) {
    exchange().ContributionAnswered(upload->order, response, Digest(), now);
  });
}

std::string Transfers::Digest() const {
  if (!complete_) return "";
  return DescribeEncoding(
             UplinkSpec(process_->parts.scenario->config.synchronization()),
             kFragmentSize, encoding_)
      .digest();
}

void Transfers::FetchUpdate(const v1::FetchUpdateRequest& request,
                            CoordinatorHost::Reply<FetchedUpdate> done) const {
  process_->Call<FetchedUpdate>(
      [host = process_->parts.host,
       request](CoordinatorHost::Reply<FetchedUpdate> reply) {
        host->FetchUpdate(request, std::move(reply));
      },
      std::move(done));
}

void Transfers::Do(const action::ReceiveUpdate& receive) {
  if (!receive.is_under_way) {
    FetchUpdate(receive.request,
                [this](const absl::StatusOr<FetchedUpdate>& fetched) {
                  Received(fetched);
                });
    return;
  }
  CHECK(expected_ != nullptr) << "nothing was asked for";
  const auto expected = std::exchange(expected_, nullptr);
  expected->awaited = true;
  if (expected->answer.has_value()) Received(*expected->answer);
}

void Transfers::Received(const absl::StatusOr<FetchedUpdate>& fetched) {
  UpdateAnswer answer{.status = fetched.status()};
  if (fetched.ok()) {
    answer.began = true;
    answer.head = fetched->head;
    answer.includes_island = fetched->includes_island;
    answer.other = fetched->other;
    if (!fetched->kept) answer.status = absl::NotFoundError("no longer kept");
  }
  if (answer.status.ok()) {
    Contents anchor = replica_->anchor();
    for (const Interval& interval : fetched->change) {
      anchor[interval.process] = interval.end;
    }
    answer.anchor_digest = answer.head.digest();
    // Values may be damaged on the way, or in memory.
    if (process_->parts.scenario->Has(kLoss) &&
        process_->parts.world->chance.OneIn(40)) {
      anchor.clear();
      answer.anchor_digest = "damaged";
    }
    replica_->Prepare(answer.head, std::move(anchor));
  }
  Done([&](OuterLoop&, absl::Time now) {
    exchange().UpdateAnswered(answer, now);
  });
}

void Transfers::Do(const action::FetchParameters& fetch) {
  process_->Call<Version>(
      [host = process_->parts.host,
       request = fetch.request](CoordinatorHost::Reply<Version> reply) {
        host->FetchParameters(request, std::move(reply));
      },
      [this](const absl::StatusOr<Version>& fetched) {
        absl::StatusOr<v1::FragmentHead> head = v1::FragmentHead();
        if (fetched.ok()) {
          head = fetched->head;
          replica_->Prepare(fetched->head, fetched->contents);
        } else {
          head = fetched.status();
        }
        Done([&](OuterLoop&, absl::Time now) {
          exchange().ParametersAnswered(head, now);
        });
      });
}

void Transfers::Do(const action::AskWhatIsMerged& ask) {
  FetchUpdate(ask.request,
              [this](const absl::StatusOr<FetchedUpdate>& fetched) {
                absl::StatusOr<FragmentWindow::Training> other =
                    FragmentWindow::Training();
                if (fetched.ok()) {
                  other = fetched->other;
                } else {
                  other = fetched.status();
                }
                Done([&](OuterLoop&, absl::Time now) {
                  exchange().MergedAnswered(other, now);
                });
              });
}

void Transfers::Do(const action::EndContribution&) {
  Done([&](OuterLoop&, absl::Time) { exchange().ContributionEnded(); });
}

}  // namespace causeway::simulation
