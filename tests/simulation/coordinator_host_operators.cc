// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators' commands to a simulated coordinator: server/engine_operators.cc in
// virtual time.
#include <string>
#include <utility>

#include "tests/simulation/coordinator_host.h"

namespace causeway::simulation {

void CoordinatorHost::Pause(bool pause) {
  if (!up()) return;
  Enter([this, pause] {
    Effects effects;
    const absl::Status done = pause ? core_->Pause("simulated", effects)
                                    : core_->Resume(now(), effects);
    // A run that is finished cannot be paused.
    if (!done.ok()) return;
    Settle(std::move(effects), [](const absl::Status&) {});
  });
}

void CoordinatorHost::Drain(uint32_t island) {
  if (!up()) return;
  Enter([this, island] {
    Effects effects;
    const std::string name = IslandName(island);
    if (!core_->Drain(name, "simulated", effects).ok()) return;
    Settle(std::move(effects), [this, name](const absl::Status& written) {
      // The operator is told that the island will leave.
      if (written.ok()) checker_->Drained(name);
    });
  });
}

uint64_t CoordinatorHost::OldestHeld() const {
  for (const auto& [id, entry] : core_->quarantine()) {
    if (entry.state == v1::QuarantinedContribution::HELD && !entry.in_round)
      return id;
  }
  return 0;
}

void CoordinatorHost::Admit() {
  if (!up()) return;
  Enter([this] {
    const uint64_t id = OldestHeld();
    const std::string bytes = disk_->QuarantinedBytes(id);
    if (id == 0 || bytes.empty()) return;
    world_->Trace("operator   admits contribution ", id);
    Effects effects;
    const absl::StatusOr<ContributionKey> key =
        core_->Admit(id, now(), effects);
    if (!key.ok()) return;
    admitted_[*key] = bytes;
    checker_->AdmittedToRound(core_->quarantine().at(id).header, now());
    Settle(std::move(effects), [](const absl::Status&) {});
  });
}

void CoordinatorHost::Drop() {
  if (!up()) return;
  Enter([this] {
    const uint64_t id = OldestHeld();
    if (id == 0) return;
    world_->Trace("operator   drops contribution ", id);
    Effects effects;
    if (!core_->Drop(id, effects).ok()) return;
    Settle(std::move(effects), [](const absl::Status&) {});
  });
}

void CoordinatorHost::Evict(uint32_t island) {
  if (!up()) return;
  Enter([this, island] {
    Effects effects;
    const std::string name = IslandName(island);
    if (!core_->Evict(name, "simulated", now(), effects).ok()) return;
    checker_->Evicted(name);
    Settle(std::move(effects), [](const absl::Status&) {});
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
