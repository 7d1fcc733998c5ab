// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// JSON that other people have written.
#ifndef COMMON_FOREIGN_JSON_H_
#define COMMON_FOREIGN_JSON_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace causeway {

// Parses a JSON object. Limits the nesting, because the library handles values
// by recursion and could overflow the stack.
//   INVALID_ARGUMENT  The text is not a JSON object, or nested deeper than 64
//                     levels.
absl::StatusOr<nlohmann::json> ParseForeignJson(absl::string_view text);

}  // namespace causeway

#endif  // COMMON_FOREIGN_JSON_H_
