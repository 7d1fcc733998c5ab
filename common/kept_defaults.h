// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A run keeps the defaults that it began with, whatever later versions have. So
// its stored configuration states each field whose default has ever changed:
// learning_rate and momentum of outer_optimizer, and
// synchronization.inner_steps_per_round.
#ifndef COMMON_KEPT_DEFAULTS_H_
#define COMMON_KEPT_DEFAULTS_H_

#include "proto/run_config.pb.h"

namespace causeway {

// States those of these fields that `config` leaves out, with the values that
// `source` has. They may be one object.
void StateDefaults(const v1::RunConfig& source, v1::RunConfig& config);

// States them with the defaults of the versions that left them out of what they
// stored.
void StateFirstDefaults(v1::RunConfig& config);

}  // namespace causeway

#endif  // COMMON_KEPT_DEFAULTS_H_
