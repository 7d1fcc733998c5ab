// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// How long an encoded contribution is, so that an outlier is seen before it is
// merged. Pure, thread-safe.
#ifndef SERVER_RULES_CONTRIBUTION_NORM_H_
#define SERVER_RULES_CONTRIBUTION_NORM_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "quantization/codec.h"

namespace causeway {

// The Euclidean norm of the `values` values that `encoded` decodes to; not
// finite if one of them is not. Reads every byte once.
//   INVALID_ARGUMENT  it is no encoding of so many values.
absl::StatusOr<double> EncodedNorm(const CodecSpec& spec,
                                   absl::string_view encoded, uint64_t values);

}  // namespace causeway

#endif  // SERVER_RULES_CONTRIBUTION_NORM_H_
