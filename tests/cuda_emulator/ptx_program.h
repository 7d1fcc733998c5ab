// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What nvcc has made of a .cu file: PTX text, read into functions of decoded
// instructions. As much of PTX ISA 9.0 as our kernels are compiled to; what is
// not known is an error that names the statement.
#ifndef TESTS_CUDA_EMULATOR_PTX_PROGRAM_H_
#define TESTS_CUDA_EMULATOR_PTX_PROGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway::ptx {

inline constexpr int kLanes = 32;

class Warp;
struct Instruction;
// Does an instruction for the lanes of `mask`.
using Execute = void (*)(Warp& warp, const Instruction& instruction,
                         uint32_t mask);

enum class Kind : uint8_t {
  // Each lane for itself.
  kLane,
  // All lanes of the warp together.
  kWarp,
  kBranch,
  kBarrier,
  kCall,
  kReturn,
};

// Operands are slots of the function's registers: constants and addresses of
// symbols have slots, too.
struct Instruction {
  Kind kind = Kind::kLane;
  Execute execute = nullptr;
  // The lanes that it is for are those where this is (not) 0.
  int guard = -1;
  bool guard_negated = false;
  int8_t to_count = 0;
  int8_t from_count = 0;
  std::array<int, 4> to = {};
  std::array<int, 10> from = {};
  // Added to the address.
  int64_t offset = 0;
  // Of a branch; of a call, the function.
  int target = -1;
  // Of a call: offsets of the arguments in the caller's frame.
  std::vector<int64_t> arguments;
  // What the operation needs to know beside its operands.
  int mode = 0;
  std::string text;
};

enum class Special : uint8_t {
  kThread,
  kThreads,
  kBlockX,
  kBlockY,
  kBlockZ,
  kBlocksX,
  kBlocksY,
  kBlocksZ,
  kZero,
  kOne,
};

struct Parameter {
  size_t size = 0;
  // In the kernel's parameters, or in the frame.
  int64_t offset = 0;
};

struct Function {
  std::string name;
  bool is_kernel = false;
  std::vector<Parameter> parameters;
  size_t parameter_bytes = 0;
  // Of each lane: local memory, and what is given to functions.
  int64_t frame_bytes = 0;
  std::vector<Instruction> code;
  int slots = 0;
  std::vector<std::pair<int, uint64_t>> constants;
  std::vector<std::pair<int, Special>> specials;
  // Slots with addresses: in the kernel's parameters, and in the frame.
  std::vector<std::pair<int, int64_t>> parameter_addresses;
  std::vector<std::pair<int, int64_t>> frame_addresses;
  // Slots of symbols in shared memory.
  std::vector<std::pair<int, std::string>> shared_addresses;
};

struct Program {
  std::vector<Function> functions;
  std::map<std::string, int, std::less<>> by_name;
  // Offsets of all kernels' static shared memory; dynamic memory comes behind.
  std::map<std::string, uint64_t, std::less<>> shared;
  uint64_t shared_bytes = 0;
};

absl::StatusOr<std::unique_ptr<Program>> ReadProgram(absl::string_view text);

// The operation of a name like "add.s32", or null. Sets kind and mode.
Execute FindOperation(absl::string_view name, Instruction& instruction);

}  // namespace causeway::ptx

#endif  // TESTS_CUDA_EMULATOR_PTX_PROGRAM_H_
