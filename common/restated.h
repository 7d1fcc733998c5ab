// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Rewords an error as it passes from one layer to the next.
#ifndef COMMON_RESTATED_H_
#define COMMON_RESTATED_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace causeway {

// Returns an error with another code and message and the payloads of `error`,
// which may name the rank to blame.
inline absl::Status Restated(const absl::Status& error, absl::StatusCode code,
                             absl::string_view message) {
  absl::Status restated(code, message);
  error.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    restated.SetPayload(type, payload);
  });
  return restated;
}

}  // namespace causeway

#endif  // COMMON_RESTATED_H_
