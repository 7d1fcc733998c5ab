// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators' commands to a simulated coordinator: server/engine_operators.cc in
// virtual time.
#include <string>

#include "common/status_macros.h"
#include "tests/simulation/coordinator_host.h"

namespace causeway::simulation {

void CoordinatorHost::Pause(bool pause) {
  if (!up()) return;
  Handle([this, pause](Effects& effects) {
    return pause ? core_->Pause("simulated", now(), effects)
                 : core_->Resume(now(), effects);
  });
}

void CoordinatorHost::Drain(uint32_t island) {
  if (!up()) return;
  const std::string name = IslandName(island);
  Handle<absl::Status>(
      [this, name](Effects& effects) {
        return core_->Drain(name, "simulated", effects);
      },
      [this, name](const absl::Status& drained) {
        // The operator is told that the island will leave.
        if (drained.ok()) checker_->Drained(name);
      });
}

void CoordinatorHost::Evict(uint32_t island) {
  if (!up()) return;
  const std::string name = IslandName(island);
  Handle([this, name](Effects& effects) {
    const absl::Status evicted =
        core_->Evict(name, "simulated", now(), effects);
    if (evicted.ok()) checker_->Evicted(name);
    return evicted;
  });
}

uint64_t CoordinatorHost::OldestHeld() const {
  for (const auto& [id, entry] : core_->quarantine().entries()) {
    if (entry.state == v1::QuarantinedContribution::HELD && !entry.in_round)
      return id;
  }
  return 0;
}

void CoordinatorHost::Admit() {
  if (!up()) return;
  Handle([this](Effects& effects) -> absl::Status {
    const uint64_t id = OldestHeld();
    const auto bytes =
        std::make_shared<const std::string>(disk_->QuarantinedBytes(id));
    if (id == 0 || bytes->empty())
      return absl::NotFoundError("nothing is held");
    world_->Trace("operator   admits contribution ", id);
    ASSIGN_OR_RETURN(const ContributionKey key,
                     core_->Admit(id, now(), effects));
    staging_->Keep(key, {.bytes = *bytes, .owner = bytes});
    checker_->AdmittedToRound(core_->quarantine().entries().at(id).header,
                              now());
    return absl::OkStatus();
  });
}

void CoordinatorHost::Drop() {
  if (!up()) return;
  Handle([this](Effects& effects) {
    const uint64_t id = OldestHeld();
    world_->Trace("operator   drops contribution ", id);
    return core_->Drop(id, effects);
  });
}

void CoordinatorHost::KeepQuarantined(const Effects& effects) {
  for (const QuarantineEntry& entry : effects.quarantine) {
    if (entry.state != v1::QuarantinedContribution::HELD || !entry.admissible)
      continue;
    const absl::StatusOr<StagedEncoding> staged =
        staging_->Get(KeyOf(entry.header));
    if (staged.ok()) disk_->KeepBytes(entry.id, std::string(staged->bytes));
  }
}

}  // namespace causeway::simulation
