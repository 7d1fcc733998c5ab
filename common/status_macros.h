// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Early return on errors; Debian 12's Abseil has no such macros.
//
//   RETURN_IF_ERROR(file.Sync());
//   ASSIGN_OR_RETURN(std::string text, ReadFile(path));
#ifndef COMMON_STATUS_MACROS_H_
#define COMMON_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define CAUSEWAY_CONCAT_INNER_(a, b) a##b
#define CAUSEWAY_CONCAT_(a, b) CAUSEWAY_CONCAT_INNER_(a, b)

#define RETURN_IF_ERROR(expression)                                       \
  do {                                                                    \
    if (absl::Status status_macro_ = (expression); !status_macro_.ok()) { \
      return status_macro_;                                               \
    }                                                                     \
  } while (false)

#define ASSIGN_OR_RETURN(declaration, expression)                             \
  ASSIGN_OR_RETURN_IMPL_(CAUSEWAY_CONCAT_(status_or_, __LINE__), declaration, \
                         expression)

#define ASSIGN_OR_RETURN_IMPL_(status_or, declaration, expression) \
  auto status_or = (expression);                                   \
  if (!status_or.ok()) return std::move(status_or).status();       \
  declaration = *std::move(status_or)

#endif  // COMMON_STATUS_MACROS_H_
