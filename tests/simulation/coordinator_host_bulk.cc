// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The bulk data that a simulated coordinator receives and sends:
// server/edge/contribute_call.cc and server/edge/download_call.cc in
// virtual time.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/checksum.h"
#include "common/transport/chunk.h"
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
  Enter([this, header, reply = std::move(reply)] {
    checker_->Calls(header.identity(), now());
    Effects effects;
    const absl::StatusOr<v1::ContributeResponse> response =
        core_->Complete(header, Norm(), now(), effects);
    checker_->Called(header.identity(), response.status(), now());
    if (response.ok()) checker_->Answered(header, *response, *core_, now());
    Settle(std::move(effects), [reply, response](const absl::Status& written) {
      if (!written.ok()) return reply(written);
      reply(response);
    });
  });
}

void CoordinatorHost::FetchUpdate(const v1::FetchUpdateRequest& request,
                                  Reply<FetchedUpdate> reply) {
  if (!up()) return reply(Down());
  Enter([this, request, reply = std::move(reply)] {
    const absl::Status member = CheckMember(request.identity());
    if (!member.ok()) return reply(member);
    if (IsAwaited(request)) {
      awaited_updates_.emplace_back(request, reply);
      return;
    }
    const std::vector<Commit>& commits = disk_->commits(request.fragment());
    const uint64_t version = request.from_version() + 1;
    if (version >= commits.size()) {
      return reply(absl::NotFoundError("there is no such update"));
    }
    const Commit& commit = commits[version];
    FetchedUpdate update{
        .head = commit.head,
        .kept = version + scenario_->config.storage().update_history() >=
                commits.size()};
    for (size_t i = 0; i < commit.merged.size(); ++i) {
      if (update.kept) {
        update.change.insert(update.change.end(), commit.intervals[i].begin(),
                             commit.intervals[i].end());
      }
      const v1::ContributionHeader& header = commit.merged[i];
      if (header.identity().island_id() != request.identity().island_id()) {
        continue;
      }
      const std::string& digest = header.object().digest();
      if (digest == request.contribution_digest()) {
        update.includes_island = true;
      } else if (!core_->WasAdmitted({header.identity().island_id(),
                                      header.identity().incarnation()},
                                     digest)) {
        update.other.tokens += header.tokens();
        update.other.inner_steps += header.inner_steps();
      }
    }
    reply(update);
  });
}

bool CoordinatorHost::IsAwaited(const v1::FetchUpdateRequest& request) const {
  const uint32_t fragment = request.fragment();
  return request.wait() &&
         core_->heads()[fragment].head.version() == request.from_version() &&
         request.from_version() < core_->schedule().FinalVersion(fragment);
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
                                      Reply<FetchedParameters> reply) {
  if (!up()) return reply(Down());
  Enter([this, request, reply = std::move(reply)] {
    const absl::Status member = CheckMember(request.identity());
    if (!member.ok()) return reply(member);
    const std::vector<Commit>& commits = disk_->commits(request.fragment());
    if (request.version() >= commits.size() ||
        request.version() + scenario_->config.storage().versions_kept() <
            commits.size()) {
      return reply(absl::NotFoundError("the version is not kept"));
    }
    const Commit& commit = commits[request.version()];
    reply(FetchedParameters{.head = commit.head, .contents = commit.contents});
  });
}

}  // namespace causeway::simulation
