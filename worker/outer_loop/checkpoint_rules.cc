// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/outer_loop/checkpoint_rules.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace causeway {

absl::StatusOr<bool> CanResume(const v1::IslandCheckpoint& position,
                               const v1::JoinResponse& joined) {
  const v1::IslandIdentity& identity = joined.identity();
  if (position.run_id() != identity.run_id() ||
      position.island_id() != identity.island_id() ||
      position.fragments_size() != joined.heads_size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint directory is that of island ", position.island_id(),
        " of run ", position.run_id(), ", not of island ", identity.island_id(),
        " of run ", identity.run_id(),
        "; name another directory, or remove its checkpoint"));
  }
  const std::string& run_optimizer = v1::TrainingConfig::Optimizer_Name(
      joined.config().training().optimizer());
  const std::string optimizer =
      position.optimizer().empty() ? "ADAMW" : position.optimizer();
  if (optimizer != run_optimizer) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the island's checkpoint has the state of ", optimizer,
        ", but training.optimizer is ", run_optimizer,
        "; remove the checkpoint to start with the coordinator's parameters"));
  }
  const uint64_t history = joined.config().storage().update_history();
  for (int i = 0; i < joined.heads_size(); ++i) {
    const v1::FragmentHead& head = joined.heads(i);
    const v1::FragmentHead& anchor = position.fragments(i).anchor();
    if (anchor.version() <= head.version() &&
        head.version() - anchor.version() <= history &&
        (anchor.version() < head.version() ||
         anchor.digest() == head.digest())) {
      continue;
    }
    LOG(WARNING) << "the checkpoint is of no use: it has version "
                 << anchor.version() << " of fragment " << i
                 << ", the run is at " << head.version()
                 << "; starting from the coordinator's parameters";
    return false;
  }
  return true;
}

}  // namespace causeway
