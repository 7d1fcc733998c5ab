// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that serves operators (proto/control.proto), and keeps the
// bytes of quarantined contributions.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "google/protobuf/util/time_util.h"
#include "server/engine.h"

namespace causeway {
namespace {

v1::QuarantinedContribution::State StateOf(QuarantineState state) {
  switch (state) {
    case QuarantineState::kHeld:
      return v1::QuarantinedContribution::HELD;
    case QuarantineState::kAdmitted:
      return v1::QuarantinedContribution::ADMITTED;
    case QuarantineState::kDropped:
      return v1::QuarantinedContribution::DROPPED;
  }
  return v1::QuarantinedContribution::STATE_UNSPECIFIED;
}

v1::QuarantinedContribution Describe(const QuarantineEntry& entry) {
  v1::QuarantinedContribution described;
  described.set_id(entry.id);
  described.set_state(StateOf(entry.state));
  described.set_island_id(entry.header.identity().island_id());
  described.set_incarnation(entry.header.identity().incarnation());
  described.set_fragment(entry.header.fragment());
  described.set_base_version(entry.header.base_version());
  described.set_tokens(entry.header.tokens());
  described.set_inner_steps(entry.header.inner_steps());
  described.set_norm(entry.norm);
  described.set_reason(entry.reason);
  *described.mutable_quarantined_at() =
      google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(
          absl::ToUnixMicros(entry.quarantined_at));
  described.set_admissible(entry.admissible);
  return described;
}

}  // namespace

absl::Status Engine::Pause(const v1::PauseRunRequest& request) {
  return Handle([&](Effects& effects) {
    mu_.AssertHeld();
    return coordinator_.Pause(request.reason(), effects);
  });
}

absl::Status Engine::Resume() {
  return Handle([&](Effects& effects) {
    mu_.AssertHeld();
    return coordinator_.Resume(options_.now(), effects);
  });
}

absl::Status Engine::Drain(const v1::DrainIslandRequest& request) {
  return Handle([&](Effects& effects) {
    mu_.AssertHeld();
    return coordinator_.Drain(request.island_id(), request.reason(), effects);
  });
}

absl::Status Engine::Evict(const v1::EvictIslandRequest& request) {
  return Handle([&](Effects& effects) {
    mu_.AssertHeld();
    return coordinator_.Evict(request.island_id(), request.reason(),
                              options_.now(), effects);
  });
}

v1::ListQuarantineResponse Engine::ListQuarantine(bool include_decided) {
  v1::ListQuarantineResponse response;
  absl::MutexLock lock(&mu_);
  for (const auto& [id, entry] : coordinator_.quarantine()) {
    if (entry.state != QuarantineState::kHeld && !include_decided) continue;
    *response.add_contributions() = Describe(entry);
  }
  return response;
}

absl::StatusOr<std::string> Engine::ReadQuarantined(uint64_t id) {
  std::string digest;
  {
    absl::MutexLock lock(&mu_);
    const auto& quarantine = coordinator_.quarantine();
    const auto found = quarantine.find(id);
    // The rules say what is wrong with an entry that needs no bytes.
    if (found == quarantine.end() || !found->second.admissible ||
        found->second.state != QuarantineState::kHeld) {
      return std::string();
    }
    digest = found->second.header.object().digest();
  }
  const absl::StatusOr<std::string> encoded = quarantine_.Read(id);
  if (encoded.ok() && Digest128(*encoded) == digest) return encoded;
  return absl::FailedPreconditionError(absl::StrCat(
      "the bytes of contribution ", id, " are not there any more (",
      encoded.ok() ? "the file is damaged"
                   : std::string(encoded.status().message()),
      "); it can only be dropped"));
}

absl::Status Engine::Admit(uint64_t id) {
  ASSIGN_OR_RETURN(std::string read, ReadQuarantined(id));
  const auto encoded = std::make_shared<const std::string>(std::move(read));
  return Handle([&](Effects& effects) -> absl::Status {
    mu_.AssertHeld();
    ASSIGN_OR_RETURN(const ContributionKey key,
                     coordinator_.Admit(id, options_.now(), effects));
    if (!encoded->empty()) {
      admitted_.emplace(key,
                        StagedEncoding{.bytes = *encoded, .owner = encoded});
    }
    return absl::OkStatus();
  });
}

absl::Status Engine::Drop(uint64_t id) {
  return Handle([&](Effects& effects) {
    mu_.AssertHeld();
    return coordinator_.Drop(id, effects);
  });
}

void Engine::KeepQuarantined(const Effects& effects) {
  for (const QuarantineEntry& entry : effects.quarantine) {
    absl::Status kept;
    if (entry.state != QuarantineState::kHeld) {
      kept = quarantine_.Remove(entry.id);
    } else if (entry.admissible) {
      const absl::StatusOr<StagedEncoding> staged =
          staging_.Get(KeyOf(entry.header));
      kept = staged.ok() ? quarantine_.Write(entry.id, staged->bytes)
                         : staged.status();
    }
    LOG_IF(ERROR, !kept.ok())
        << "quarantined contribution " << entry.id << ": " << kept;
  }
}

}  // namespace causeway
