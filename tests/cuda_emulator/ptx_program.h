// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The program that nvcc made of a .cu file: PTX text, read into functions of
// decoded instructions. Covers the part of PTX ISA 9.0 that our kernels are
// compiled to; anything else is an error that names the statement.
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
// Runs an instruction for the lanes of `mask`.
using Execute = void (*)(Warp& warp, const Instruction& instruction,
                         uint32_t mask);

enum class Kind : uint8_t {
  // Each lane runs by itself.
  kLane,
  // All lanes of the warp run together.
  kWarp,
  kBranch,
  kBarrier,
  kCall,
  kReturn,
};

// A decoded instruction. Operands are slots of the function's registers;
// constants and addresses of symbols have slots, too.
struct Instruction {
  Kind kind = Kind::kLane;
  Execute execute = nullptr;
  // The slot that decides which lanes run the instruction: those where it is
  // not 0 or, if negated, where it is 0. -1 means all lanes.
  int guard = -1;
  bool guard_negated = false;
  int8_t to_count = 0;
  int8_t from_count = 0;
  std::array<int, 4> to = {};
  std::array<int, 10> from = {};
  // The number that is added to the address.
  int64_t offset = 0;
  // A branch's target, or the function of a call.
  int target = -1;
  // A call's arguments, by their offsets in the caller's frame.
  std::vector<int64_t> arguments;
  // A setting of the operation besides its operands.
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
  // The offset in the kernel's parameters, or in the frame.
  int64_t offset = 0;
};

struct Function {
  std::string name;
  bool is_kernel = false;
  std::vector<Parameter> parameters;
  size_t parameter_bytes = 0;
  // The bytes of each lane's local memory and arguments for functions.
  int64_t frame_bytes = 0;
  std::vector<Instruction> code;
  int slots = 0;
  std::vector<std::pair<int, uint64_t>> constants;
  std::vector<std::pair<int, Special>> specials;
  // The slots that hold addresses in the kernel's parameters, and in the frame.
  std::vector<std::pair<int, int64_t>> parameter_addresses;
  std::vector<std::pair<int, int64_t>> frame_addresses;
  // The slots of symbols in shared memory.
  std::vector<std::pair<int, std::string>> shared_addresses;
};

struct Program {
  std::vector<Function> functions;
  std::map<std::string, int, std::less<>> by_name;
  // The offsets of all kernels' static shared memory, which the dynamic memory
  // follows.
  std::map<std::string, uint64_t, std::less<>> shared;
  uint64_t shared_bytes = 0;
};

absl::StatusOr<std::unique_ptr<Program>> ReadProgram(absl::string_view text);

// Returns the operation of a name like "add.s32", or null. Sets kind and mode.
Execute FindOperation(absl::string_view name, Instruction& instruction);

}  // namespace causeway::ptx

#endif  // TESTS_CUDA_EMULATOR_PTX_PROGRAM_H_
