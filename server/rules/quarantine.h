// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A contribution that is merged only if an operator says so.
//
//   HELD --DropContribution, or too many are held--> DROPPED
//     |  ^
//     |  +-- the outer step cannot be done with it
//     +--AdmitContribution--> in the open round --outer step--> ADMITTED
//
// Being in a round is not stored: after a restart the entry is HELD again.
#ifndef SERVER_RULES_QUARANTINE_H_
#define SERVER_RULES_QUARANTINE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "proto/coordinator.pb.h"

namespace causeway {

enum class QuarantineState { kHeld, kAdmitted, kDropped };

// See proto/control.proto.
struct QuarantineEntry {
  uint64_t id = 0;
  QuarantineState state = QuarantineState::kHeld;
  v1::ContributionHeader header;
  double norm = 0;
  std::string reason;
  absl::Time quarantined_at;
  // Whether it can be merged at all: its values are finite.
  bool admissible = false;
  // Whether it is in the open round of its fragment.
  bool in_round = false;
};

// The most entries that are held: beyond it, the oldest is dropped. Bounds disk
// and memory.
inline constexpr size_t kMaxHeldContributions = 64;

}  // namespace causeway

#endif  // SERVER_RULES_QUARANTINE_H_
