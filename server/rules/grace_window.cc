// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/grace_window.h"

#include <algorithm>

namespace causeway {

absl::Duration GraceWindow(const GraceOptions& options,
                           const GraceMeasures& measures) {
  if (options.overlap_share == 0 ||
      measures.inner_step <= absl::ZeroDuration()) {
    return options.most;
  }
  const absl::Time update_needed =
      measures.first_offer +
      static_cast<double>(options.overlap_steps) * measures.inner_step;
  const absl::Duration spare = update_needed - measures.upload -
                               measures.outer_step - measures.quorum_at;
  return std::min(options.most,
                  std::max(measures.inner_step, options.overlap_share * spare));
}

}  // namespace causeway
