// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The bulk data that a simulated coordinator receives and sends:
// server/edge/contribute_call.cc and server/edge/download_call.h in
// virtual time.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/checksum.h"
#include "quantization/codec.h"
#include "quantization/encoded_object.h"
#include "tests/simulation/coordinator_host.h"

namespace causeway::simulation {
double CoordinatorHost::Norm() {
  if (!scenario_->Has(kOutlier)) return 1;
  Chance& chance = world_->chance;
  if (!IsOutOfRange()) return static_cast<double>(chance.Between(10, 20));
  return chance.OneIn(3) ? std::numeric_limits<double>::quiet_NaN() : 1e6;
}

void CoordinatorHost::Offer(const v1::ContributionHeader& header,
                            Reply<v1::ContributeResponse> reply) {
  if (!up()) return reply(Down());
  Enter([this, header, reply = std::move(reply)] {
    checker_->Calls(header.identity(), now());
    absl::StatusOr<v1::ContributeResponse> response =
        core_->Offer(header, now());
    checker_->Called(header.identity(), response.status(), now());
    if (!response.ok()) return reply(response);
    checker_->Answered(header, *response, *core_, now());
    if (response->verdict() == v1::ContributeResponse::UPLOAD) {
      const v1::EncodedObject& object = header.object();
      const absl::StatusOr<uint64_t> offset =
          staging_->Begin(KeyOf(header), object,
                          MaxEncodedBytes(SpecOf(object), object.size()));
      if (!offset.ok()) return reply(offset.status());
      response->set_next_offset(*offset);
      if (!IsOpen(object) && *offset == object.encoded_bytes()) {
        return Complete(header, reply);
      }
    }
    reply(response);
  });
}

void CoordinatorHost::Append(const v1::ContributionHeader& header,
                             uint64_t offset, const std::string& data,
                             Reply<v1::ContributeResponse> reply) {
  if (!up()) return reply(Down());
  const absl::StatusOr<bool> complete = staging_->Append(
      KeyOf(header),
      {.offset = offset, .crc32c = Crc32c(data), .pieces = {data}});
  if (!complete.ok()) return reply(complete.status());
  if (*complete) return Complete(header, std::move(reply));
  v1::ContributeResponse more;
  more.set_verdict(v1::ContributeResponse::UPLOAD);
  reply(more);
}

void CoordinatorHost::Complete(const v1::ContributionHeader& header,
                               Reply<v1::ContributeResponse> reply) {
  if (!up()) return reply(Down());
  const absl::StatusOr<double> verified =
      staging_->Verify(KeyOf(header), header.object());
  if (!verified.ok()) return reply(verified.status());
  Handle<absl::StatusOr<v1::ContributeResponse>>(
      [this, header](Effects& effects) {
        checker_->Calls(header.identity(), now());
        auto response =
            core_->Complete(header, Norm(), /*parts=*/{}, now(), effects);
        checker_->Called(header.identity(), response.status(), now());
        if (response.ok()) checker_->Answered(header, *response, *core_, now());
        return response;
      },
      std::move(reply));
}

void CoordinatorHost::FetchUpdate(const v1::FetchUpdateRequest& request,
                                  Reply<FetchedUpdate> reply) {
  if (!up()) return reply(Down());
  Enter([this, request, reply = std::move(reply)] {
    const absl::StatusOr<bool> awaited = core_->IsAwaited(request);
    checker_->Checked(request.identity(), awaited.status());
    if (!awaited.ok()) return reply(awaited.status());
    if (*awaited) {
      awaited_updates_.emplace_back(request, reply);
      return;
    }
    const uint64_t version = request.from_version() + 1;
    const std::vector<CommitRecord>& commits =
        disk_->commits(request.fragment());
    if (version >= commits.size()) {
      return reply(absl::NotFoundError("there is no such update"));
    }
    v1::FetchUpdateResponse merged;
    core_->DescribeMerged(
        request,
        disk_->Merged(request.fragment(), request.from_version(),
                      request.identity().island_id()),
        merged);
    FetchedUpdate update{
        .head = commits[version].head,
        .includes_island = merged.includes_island(),
        .other = {.tokens = merged.other_tokens(),
                  .inner_steps = merged.other_inner_steps()},
        .kept = version + scenario_->config.storage().update_history() >=
                commits.size()};
    if (update.kept) update.change = disk_->Update(update.head);
    reply(update);
  });
}

void CoordinatorHost::ServeAwaited() {
  // The work is done on another thread, and so after the current event.
  world_->loop.After(absl::ZeroDuration(), [this, life = life_] {
    if (life != life_) return;
    for (const auto& [request, reply] : std::exchange(awaited_updates_, {})) {
      FetchUpdate(request, reply);
    }
  });
}

void CoordinatorHost::FetchParameters(const v1::FetchParametersRequest& request,
                                      Reply<Version> reply) {
  if (!up()) return reply(Down());
  Enter([this, request, reply = std::move(reply)] {
    const absl::Status member = core_->Check(request.identity());
    checker_->Checked(request.identity(), member);
    if (!member.ok()) return reply(member);
    const Version& newest = newest_[request.fragment()];
    if (request.version() != newest.head.version()) {
      return reply(absl::NotFoundError("the version is not kept"));
    }
    reply(newest);
  });
}

}  // namespace causeway::simulation
