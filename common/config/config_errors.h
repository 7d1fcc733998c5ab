// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Collects the errors of a configuration in text format, with file, line and
// column, the line itself, and the allowed names in place of an unknown one.
#ifndef COMMON_CONFIG_CONFIG_ERRORS_H_
#define COMMON_CONFIG_CONFIG_ERRORS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"

namespace causeway {

// Returns the values that a field of this type may have, separated by commas.
std::string EnumNames(const google::protobuf::EnumDescriptor& enumeration);

class ConfigErrors : public google::protobuf::io::ErrorCollector {
 public:
  ConfigErrors(absl::string_view text, absl::string_view file);

  // Lines and columns count from 0, as protobuf's do; -1 is "unknown".
  void AddError(int line, int column, const std::string& message) override;

  // Returns all errors as one INVALID_ARGUMENT, or OK.
  absl::Status ToStatus() const;

 private:
  // Moves the position to the last occurrence of `text` before it, if any.
  void FindBackwards(const std::string& text, int& line, int& column) const;

  const std::vector<std::string> lines_;
  const std::string file_;
  // The first errors.
  std::vector<std::string> errors_;
  size_t count_ = 0;
};

}  // namespace causeway

#endif  // COMMON_CONFIG_CONFIG_ERRORS_H_
