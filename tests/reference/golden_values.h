// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_REFERENCE_GOLDEN_VALUES_H_
#define TESTS_REFERENCE_GOLDEN_VALUES_H_

#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "common/tensors/safetensors.h"

namespace causeway {

// Returns the values of the "F64" tensor `name`, row-major. NOT_FOUND if there
// is none, INVALID_ARGUMENT if it has another type.
inline absl::StatusOr<std::vector<double>> GoldenValues(
    const Safetensors& file, absl::string_view name) {
  ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, file.Find(name));
  if (tensor->dtype != "F64") {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"", name, "\" is ", tensor->dtype, ", want F64"));
  }
  std::vector<double> values(tensor->bytes.size() / sizeof(double));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

}  // namespace causeway

#endif  // TESTS_REFERENCE_GOLDEN_VALUES_H_
