// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway plan`: predicts a run, and finds settings for it.
#ifndef CLI_PLAN_PLAN_COMMAND_H_
#define CLI_PLAN_PLAN_COMMAND_H_

#include "cli/command_line.h"

namespace causeway {

Command PlanCommand();

}  // namespace causeway

#endif  // CLI_PLAN_PLAN_COMMAND_H_
