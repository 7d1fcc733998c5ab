// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds operations by their names.
#include "tests/cuda_emulator/ptx_operations.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace causeway::ptx {
namespace {

void Trap(Warp& warp, const Instruction& i, uint32_t) { warp.Fail(i, "trap"); }

const OperationTable& Operations() {
  static const OperationTable& table = *[] {
    auto* const operations = new OperationTable;
    AddArithmetic(*operations);
    AddBitOperations(*operations);
    AddComparisons(*operations);
    AddConversions(*operations);
    AddMemoryOperations(*operations);
    AddWarpOperations(*operations);
    (*operations)["trap"] = Trap;
    return operations;
  }();
  return table;
}

Execute Of(const std::string& name) {
  const auto found = Operations().find(name);
  return found == Operations().end() ? nullptr : found->second;
}

// Removes `part` from `name`, and returns whether it was there.
bool TakePart(absl::string_view part, std::string& name) {
  const size_t at = name.find(std::string(part));
  if (at == std::string::npos) return false;
  name.erase(at, part.size());
  return true;
}

}  // namespace

Execute FindOperation(absl::string_view name, Instruction& instruction) {
  std::string rest(name);
  if (absl::StartsWith(name, "mov.")) {
    // The number is the bits of the whole vector, which has equal parts.
    const size_t digits = rest.find_first_of("0123456789");
    instruction.mode =
        digits == std::string::npos ? 0 : std::atoi(rest.c_str() + digits);
    return Of("mov");
  }
  if (absl::StartsWith(name, "selp.")) return Of("selp");
  if (absl::StartsWith(name, "cvt.")) {
    constexpr std::pair<const char*, Rounding> kRoundings[] = {
        {".rzi", kZero},    {".rz", kZero},     {".rmi", kDown},
        {".rpi", kUp},      {".rni", kNearest}, {".rn", kNearest},
        {".sat", kSaturate}};
    instruction.mode = kNone;
    for (const auto& [part, rounding] : kRoundings) {
      if (!TakePart(part, rest)) continue;
      instruction.mode = rounding;
      break;
    }
    return Of(rest);
  }
  if (absl::StartsWith(name, "setp.")) {
    // "ltu" and the like are also true if an operand is NaN.
    const std::vector<std::string> parts = absl::StrSplit(name, '.');
    if (parts.size() == 3 && parts[1].size() == 3 && parts[1].back() == 'u') {
      instruction.mode = 1;
      return Of(absl::StrCat("setp.", parts[1].substr(0, 2), ".", parts[2]));
    }
    return Of(rest);
  }
  if (absl::StartsWith(name, "ld.") || absl::StartsWith(name, "st.")) {
    TakePart(".v2", rest);
    TakePart(".v4", rest);
    TakePart(".nc", rest);
    TakePart(".volatile", rest);
    return Of(rest);
  }
  if (absl::StartsWith(name, "shfl.sync.") ||
      absl::StartsWith(name, "mma.sync.") ||
      absl::StartsWith(name, "ldmatrix.sync.")) {
    instruction.kind = Kind::kWarp;
    instruction.mode = TakePart(".trans", rest) ? 1 : 0;
  }
  return Of(rest);
}

}  // namespace causeway::ptx
