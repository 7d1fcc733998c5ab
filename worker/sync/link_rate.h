// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A flag for the rate to which bulk data are paced: a number, or "auto".
//
//   ABSL_FLAG(LinkRate, uplink_mbit_s, LinkRate(), "...");
#ifndef WORKER_SYNC_LINK_RATE_H_
#define WORKER_SYNC_LINK_RATE_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace causeway {

struct LinkRate {
  // The rate in 1e6 bits per second; 0 does not pace. nullopt: the rate is
  // measured (common/transport/rate_finder.h).
  std::optional<double> mbit_s = 0.0;

  std::optional<double> bytes_per_second() const {
    if (!mbit_s.has_value()) return std::nullopt;
    return *mbit_s * 1e6 / 8;
  }
};

// Accepts 0, rates of 0.2 or more (with less a chunk would take minutes), and
// "auto".
bool AbslParseFlag(absl::string_view text, LinkRate* rate, std::string* error);
std::string AbslUnparseFlag(const LinkRate& rate);

}  // namespace causeway

#endif  // WORKER_SYNC_LINK_RATE_H_
