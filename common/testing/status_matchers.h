// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// googletest matchers for absl::Status and absl::StatusOr.
//
//   EXPECT_THAT(Open(path), IsNotFound("no such file", path));
//   EXPECT_THAT(Open(path), StatusIs(code, HasSubstr("no such file")));
//   ASSERT_OK_AND_ASSIGN(Store store, Store::Open(dir));
#ifndef COMMON_TESTING_STATUS_MATCHERS_H_
#define COMMON_TESTING_STATUS_MATCHERS_H_

#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P(StatusIs, code, "") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code;
}

MATCHER_P2(StatusIs, code, message_matcher, "") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         testing::ExplainMatchResult(message_matcher,
                                     std::string(StatusOf(arg).message()),
                                     result_listener);
}

// Returns a matcher of strings that contain a text, or `part` if it is a
// matcher.
template <typename Part>
auto PartOfMessage(const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, absl::string_view>) {
    return testing::HasSubstr(std::string(absl::string_view(part)));
  } else {
    return part;
  }
}

// IsNotFound() and the like match a status of their code. Texts that are given
// must be in its message; for more, give matchers of the message.
#define CAUSEWAY_STATUS_MATCHER_(code)                                    \
  template <typename... Parts>                                            \
  auto Is##code(const Parts&... parts) {                                  \
    return StatusIs(absl::StatusCode::k##code,                            \
                    testing::AllOf(testing::_, PartOfMessage(parts)...)); \
  }
CAUSEWAY_STATUS_MATCHER_(Aborted)
CAUSEWAY_STATUS_MATCHER_(AlreadyExists)
CAUSEWAY_STATUS_MATCHER_(Cancelled)
CAUSEWAY_STATUS_MATCHER_(DataLoss)
CAUSEWAY_STATUS_MATCHER_(DeadlineExceeded)
CAUSEWAY_STATUS_MATCHER_(FailedPrecondition)
CAUSEWAY_STATUS_MATCHER_(Internal)
CAUSEWAY_STATUS_MATCHER_(InvalidArgument)
CAUSEWAY_STATUS_MATCHER_(NotFound)
CAUSEWAY_STATUS_MATCHER_(OutOfRange)
CAUSEWAY_STATUS_MATCHER_(PermissionDenied)
CAUSEWAY_STATUS_MATCHER_(ResourceExhausted)
CAUSEWAY_STATUS_MATCHER_(Unauthenticated)
CAUSEWAY_STATUS_MATCHER_(Unavailable)
CAUSEWAY_STATUS_MATCHER_(Unimplemented)
CAUSEWAY_STATUS_MATCHER_(Unknown)
#undef CAUSEWAY_STATUS_MATCHER_

MATCHER_P(IsOkAndHolds, value_matcher, "") {
  *result_listener << StatusOf(arg).ToString();
  return arg.ok() &&
         testing::ExplainMatchResult(value_matcher, *arg, result_listener);
}

}  // namespace causeway

#define EXPECT_OK(expression) EXPECT_THAT(expression, ::causeway::IsOk())
#define ASSERT_OK(expression) ASSERT_THAT(expression, ::causeway::IsOk())

#define ASSERT_OK_AND_ASSIGN(declaration, expression)                \
  ASSERT_OK_AND_ASSIGN_IMPL_(CAUSEWAY_CONCAT_(status_or_, __LINE__), \
                             declaration, expression)
#define ASSERT_OK_AND_ASSIGN_IMPL_(status_or, declaration, expression) \
  auto status_or = (expression);                                       \
  ASSERT_THAT(status_or, ::causeway::IsOk());                          \
  declaration = *std::move(status_or)

#endif  // COMMON_TESTING_STATUS_MATCHERS_H_
