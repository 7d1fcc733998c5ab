// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// googletest matchers for absl::Status and absl::StatusOr.
//
//   EXPECT_THAT(Open(path), StatusIs(absl::StatusCode::kNotFound,
//                                    HasSubstr("no such file")));
//   ASSERT_OK_AND_ASSIGN(Store store, Store::Open(dir));
#ifndef COMMON_TESTING_STATUS_MATCHERS_H_
#define COMMON_TESTING_STATUS_MATCHERS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
