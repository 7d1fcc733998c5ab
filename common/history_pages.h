// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads the whole training history from its pages.
#ifndef COMMON_HISTORY_PAGES_H_
#define COMMON_HISTORY_PAGES_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/status_macros.h"
#include "proto/status.pb.h"

namespace causeway {

// Gets one page after the other from `fetch`, and appends the points after the
// last ones in `history`. Returns the first error.
inline absl::Status AppendHistoryPages(
    absl::FunctionRef<
        absl::StatusOr<v1::GetHistoryResponse>(const v1::GetHistoryRequest&)>
        fetch,
    v1::GetHistoryResponse& history) {
  bool more = true;
  while (more) {
    v1::GetHistoryRequest request;
    if (!history.training().empty()) {
      request.set_training_after(history.training().rbegin()->version());
    }
    if (!history.validations().empty()) {
      request.set_validation_after(
          history.validations().rbegin()->validation().version());
    }
    ASSIGN_OR_RETURN(const v1::GetHistoryResponse page, fetch(request));
    history.MergeFrom(page);
    // After an empty page, the next one would be the same.
    more = page.more() && page.training_size() + page.validations_size() > 0;
  }
  history.clear_more();
  return absl::OkStatus();
}

}  // namespace causeway

#endif  // COMMON_HISTORY_PAGES_H_
