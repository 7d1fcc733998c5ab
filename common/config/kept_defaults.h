// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A run keeps the defaults that it began with, even if later versions have
// others. So its stored configuration states each field whose default has ever
// changed: learning_rate and momentum of outer_optimizer, and
// synchronization.inner_steps_per_round.
#ifndef COMMON_CONFIG_KEPT_DEFAULTS_H_
#define COMMON_CONFIG_KEPT_DEFAULTS_H_

#include "proto/run_config.pb.h"

namespace causeway {

// Sets each of these fields that `config` leaves out to its value in `source`,
// which may be the same object.
void StateDefaults(const v1::RunConfig& source, v1::RunConfig& config);

}  // namespace causeway

#endif  // COMMON_CONFIG_KEPT_DEFAULTS_H_
