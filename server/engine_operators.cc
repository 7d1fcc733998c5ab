// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that serves operators (proto/control.proto), stands down,
// and keeps the bytes of quarantined contributions.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "server/engine.h"

namespace causeway {
namespace {

v1::QuarantinedContribution Describe(const QuarantineEntry& entry) {
  v1::QuarantinedContribution described;
  described.set_id(entry.id);
  described.set_state(entry.state);
  described.set_island_id(entry.header.identity().island_id());
  described.set_incarnation(entry.header.identity().incarnation());
  described.set_fragment(entry.header.fragment());
  described.set_base_version(entry.header.base_version());
  described.set_tokens(entry.header.tokens());
  described.set_inner_steps(entry.header.inner_steps());
  described.set_norm(entry.norm);
  described.set_reason(entry.reason);
  *described.mutable_quarantined_at() = ToTimestamp(entry.quarantined_at);
  described.set_admissible(entry.admissible);
  return described;
}

}  // namespace

absl::Status Engine::HandleFor(
    absl::string_view by, const std::function<absl::Status(Effects&)>& event) {
  bool done = false;
  const absl::Status answer = Handle([&](Effects& effects) -> absl::Status {
    mu_.AssertHeld();
    RETURN_IF_ERROR(coordinator_.CheckInOffice());
    const absl::Status handled = event(effects);
    done = handled.ok();
    if (by.empty()) return handled;
    for (CoordinatorEvent& record : effects.events) {
      absl::StrAppend(&record.text, " (by ", by, ")");
    }
    return handled;
  });
  if (!done || answer.ok()) return answer;
  return absl::Status(
      answer.code(),
      absl::StrCat(
          "this is in effect, but not yet recorded: a coordinator that "
          "is restarted before its disk works does not know of it; ",
          answer.message()));
}

absl::Status Engine::Pause(const v1::PauseRunRequest& request,
                           absl::string_view by) {
  return HandleFor(by, Event(&Coordinator::Pause, request.reason()));
}

absl::Status Engine::Resume(absl::string_view by) {
  return HandleFor(by, Event(&Coordinator::Resume));
}

absl::Status Engine::Drain(const v1::DrainIslandRequest& request,
                           absl::string_view by) {
  return HandleFor(
      by, Event(&Coordinator::Drain, request.island_id(), request.reason()));
}

absl::Status Engine::Evict(const v1::EvictIslandRequest& request,
                           absl::string_view by) {
  return HandleFor(
      by, Event(&Coordinator::Evict, request.island_id(), request.reason()));
}

v1::ListQuarantineResponse Engine::ListQuarantine(bool include_decided) {
  v1::ListQuarantineResponse response;
  absl::MutexLock lock(&mu_);
  for (const auto& [id, entry] : coordinator_.quarantine().entries()) {
    if (entry.state != v1::QuarantinedContribution::HELD && !include_decided)
      continue;
    *response.add_contributions() = Describe(entry);
  }
  return response;
}

absl::StatusOr<std::string> Engine::ReadQuarantined(uint64_t id) {
  v1::ContributionHeader header;
  {
    absl::MutexLock lock(&mu_);
    const auto& entries = coordinator_.quarantine().entries();
    const auto found = entries.find(id);
    // The rules return the error for an entry that needs no bytes.
    if (found == entries.end() || !found->second.admissible ||
        found->second.state != v1::QuarantinedContribution::HELD) {
      return std::string();
    }
    // KeepQuarantined writes them without the lock.
    if (being_kept_.contains(id)) {
      return absl::UnavailableError(
          absl::StrCat("the bytes of contribution ", id,
                       " are still being written; repeat the call"));
    }
    header = found->second.header;
  }
  const absl::StatusOr<std::string> encoded = state_->ReadQuarantined(id);
  if (encoded.ok() && Digest128(*encoded) == header.object().digest()) {
    return encoded;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the bytes of contribution ", id, " are gone (",
                   encoded.ok() ? "the file is damaged"
                                : std::string(encoded.status().message()),
                   "); it can only be dropped"));
}

absl::Status Engine::Admit(uint64_t id, absl::string_view by) {
  ASSIGN_OR_RETURN(std::string read, ReadQuarantined(id));
  const auto encoded = std::make_shared<const std::string>(std::move(read));
  return HandleFor(by, [&](Effects& effects) -> absl::Status {
    mu_.AssertHeld();
    ASSIGN_OR_RETURN(const ContributionKey key,
                     coordinator_.Admit(id, options_.now(), effects));
    if (!encoded->empty()) {
      staging_.Keep(key, {.bytes = *encoded, .owner = encoded});
    }
    return absl::OkStatus();
  });
}

absl::Status Engine::Drop(uint64_t id, absl::string_view by) {
  return HandleFor(by, Event(&Coordinator::Drop, id));
}

absl::Status Engine::AcceptData(const v1::AcceptDataRequest& request,
                                absl::string_view by) {
  return HandleFor(by, Event(&Coordinator::AcceptData, request.island_id()));
}

absl::Status Engine::StandDown(uint64_t epoch) {
  return Handle([&](Effects& effects) {
    mu_.AssertHeld();
    coordinator_.StandDown(epoch, effects);
    return absl::OkStatus();
  });
}

absl::Status Engine::CheckInOffice() {
  absl::MutexLock lock(&mu_);
  return coordinator_.CheckInOffice();
}

void Engine::Record(const CoordinatorEvent& event) {
  const absl::Status recorded = Handle([&](Effects& effects) {
    effects.events.push_back(event);
    return absl::OkStatus();
  });
  LOG_IF(WARNING, !recorded.ok()) << recorded;
}

Engine::HeldBytes Engine::DiscardUploads(const Effects& effects) {
  HeldBytes held;
  for (const QuarantineEntry& entry : effects.quarantine) {
    if (entry.state == v1::QuarantinedContribution::HELD && entry.admissible) {
      held.emplace(entry.id, staging_.Get(KeyOf(entry.header)));
      being_kept_.insert(entry.id);
    }
  }
  for (const ContributionKey& key : effects.discarded) staging_.Discard(key);
  return held;
}

void Engine::KeepQuarantined(const Effects& effects, const HeldBytes& held) {
  for (const QuarantineEntry& entry : effects.quarantine) {
    absl::Status kept;
    const auto bytes = held.find(entry.id);
    if (entry.state != v1::QuarantinedContribution::HELD) {
      kept = state_->RemoveQuarantined(entry.id);
    } else if (bytes != held.end()) {
      kept = bytes->second.ok()
                 ? state_->WriteQuarantined(entry.id, bytes->second->bytes)
                 : bytes->second.status();
    }
    LOG_IF(ERROR, !kept.ok())
        << "quarantined contribution " << entry.id << ": " << kept;
  }
  for (const auto& [id, bytes] : held) {
    bool is_held = false;
    {
      absl::MutexLock lock(&mu_);
      being_kept_.erase(id);
      const auto& entries = coordinator_.quarantine().entries();
      const auto found = entries.find(id);
      is_held = found != entries.end() &&
                found->second.state == v1::QuarantinedContribution::HELD;
    }
    // It was decided meanwhile, perhaps before there was a file to remove.
    if (!is_held) state_->RemoveQuarantined(id).IgnoreError();
  }
}

}  // namespace causeway
