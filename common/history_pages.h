// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The whole training history from its pages.
#ifndef COMMON_HISTORY_PAGES_H_
#define COMMON_HISTORY_PAGES_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/status_macros.h"
#include "proto/status.pb.h"

namespace causeway {

// Asks `fetch` for one page after the other. Returns its first error.
inline absl::StatusOr<v1::GetHistoryResponse> JoinHistoryPages(
    absl::FunctionRef<
        absl::StatusOr<v1::GetHistoryResponse>(const v1::GetHistoryRequest&)>
        fetch) {
  v1::GetHistoryResponse history;
  v1::GetHistoryRequest request;
  while (true) {
    ASSIGN_OR_RETURN(const v1::GetHistoryResponse page, fetch(request));
    history.MergeFrom(page);
    // An empty page would be followed by the same one.
    if (!page.more() || page.training_size() + page.validations_size() == 0) {
      history.clear_more();
      return history;
    }
    if (!page.training().empty()) {
      request.set_training_after(page.training().rbegin()->version());
    }
    if (!page.validations().empty()) {
      request.set_validation_after(
          page.validations().rbegin()->validation().version());
    }
  }
}

}  // namespace causeway

#endif  // COMMON_HISTORY_PAGES_H_
