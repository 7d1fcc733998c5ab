// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/config/kept_defaults.h"

namespace causeway {

void StateDefaults(const v1::RunConfig& source, v1::RunConfig& config) {
  v1::OuterOptimizerConfig& outer = *config.mutable_outer_optimizer();
  if (!outer.has_learning_rate()) {
    outer.set_learning_rate(source.outer_optimizer().learning_rate());
  }
  if (!outer.has_momentum()) {
    outer.set_momentum(source.outer_optimizer().momentum());
  }
  v1::SynchronizationConfig& sync = *config.mutable_synchronization();
  if (!sync.has_inner_steps_per_round()) {
    sync.set_inner_steps_per_round(
        source.synchronization().inner_steps_per_round());
  }
}

}  // namespace causeway
