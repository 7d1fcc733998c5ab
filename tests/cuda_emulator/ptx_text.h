// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Divides PTX text into its parts. Pure functions.
#ifndef TESTS_CUDA_EMULATOR_PTX_TEXT_H_
#define TESTS_CUDA_EMULATOR_PTX_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway::ptx {

// Returns the text without comments and without lines that mean nothing to the
// emulator.
std::string WithoutComments(absl::string_view text);

// Splits at commas that are outside brackets.
std::vector<std::string> SplitOperands(absl::string_view text);

// Returns the end of the braces that begin at `begin`.
size_t EndOfBraces(absl::string_view text, size_t begin);

// A variable's declaration: ".param .align 8 .b8 name[24]".
struct Declaration {
  std::string name;
  uint64_t size = 0;
  uint64_t align = 1;
};
absl::StatusOr<Declaration> ParseDeclaration(absl::string_view text);

uint64_t AlignUp(uint64_t value, uint64_t align);

}  // namespace causeway::ptx

#endif  // TESTS_CUDA_EMULATOR_PTX_TEXT_H_
