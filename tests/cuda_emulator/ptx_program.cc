// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulator/ptx_program.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "tests/cuda_emulator/ptx_text.h"

namespace causeway::ptx {
namespace {

// Reads one function's body.
class BodyReader {
 public:
  BodyReader(Program* program, Function* function)
      : program_(*program), function_(*function) {}

  absl::Status AddParameter(const Declaration& declaration) {
    Parameter parameter = {declaration.size, 0};
    if (function_.is_kernel) {
      function_.parameter_bytes =
          AlignUp(function_.parameter_bytes, declaration.align);
      parameter.offset = static_cast<int64_t>(function_.parameter_bytes);
      function_.parameter_bytes += declaration.size;
      parameter_symbols_[declaration.name] = parameter.offset;
    } else {
      parameter.offset = AddToFrame(declaration);
    }
    function_.parameters.push_back(parameter);
    return absl::OkStatus();
  }

  // Reads `body`, the text between the braces.
  absl::Status Read(absl::string_view body) {
    std::string statement;
    int depth = 0;
    for (const char c : body) {
      const bool is_empty = absl::StripAsciiWhitespace(statement).empty();
      if ((c == '{' || c == '}') && is_empty && depth == 0) continue;
      if (c == '{') ++depth;
      if (c == '}') --depth;
      if (c == ':' &&
          absl::StartsWith(absl::StripAsciiWhitespace(statement), "$")) {
        labels_[std::string(absl::StripAsciiWhitespace(statement))] =
            static_cast<int>(function_.code.size());
        statement.clear();
      } else if (c == ';' && depth == 0) {
        RETURN_IF_ERROR(AddStatement(absl::StripAsciiWhitespace(statement)));
        statement.clear();
      } else {
        statement += c;
      }
    }
    for (auto& [index, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) {
        return absl::InvalidArgumentError(absl::StrCat("no label ", label));
      }
      function_.code[index].target = found->second;
    }
    Instruction end;
    end.kind = Kind::kReturn;
    end.text = "end";
    function_.code.push_back(end);
    return absl::OkStatus();
  }

 private:
  int64_t AddToFrame(const Declaration& declaration) {
    // Other scopes may reuse the name for a variable that is passed to another
    // function, so each gets at least these bytes.
    constexpr uint64_t kLeast = 64;
    const auto [found, is_new] =
        frame_symbols_.try_emplace(declaration.name, function_.frame_bytes);
    if (is_new) {
      function_.frame_bytes +=
          static_cast<int64_t>(AlignUp(std::max(declaration.size, kLeast), 16));
    }
    return found->second;
  }

  int NewSlot(const std::string& name) {
    const auto [found, is_new] = slots_.try_emplace(name, function_.slots);
    if (is_new) ++function_.slots;
    return found->second;
  }

  int Constant(uint64_t value) {
    const std::string name = absl::StrCat("#", value);
    const bool is_new = !slots_.contains(name);
    const int slot = NewSlot(name);
    if (is_new) function_.constants.emplace_back(slot, value);
    return slot;
  }

  absl::StatusOr<int> Slot(absl::string_view operand) {
    const std::string name(operand);
    if (const auto found = slots_.find(name); found != slots_.end()) {
      return found->second;
    }
    static const auto& specials = *new std::map<std::string, Special>{
        {"%tid.x", Special::kThread},     {"%tid.y", Special::kZero},
        {"%tid.z", Special::kZero},       {"%ntid.x", Special::kThreads},
        {"%ntid.y", Special::kOne},       {"%ntid.z", Special::kOne},
        {"%ctaid.x", Special::kBlockX},   {"%ctaid.y", Special::kBlockY},
        {"%ctaid.z", Special::kBlockZ},   {"%nctaid.x", Special::kBlocksX},
        {"%nctaid.y", Special::kBlocksY}, {"%nctaid.z", Special::kBlocksZ},
    };
    if (operand[0] == '%') {
      const int slot = NewSlot(name);
      if (const auto found = specials.find(name); found != specials.end()) {
        function_.specials.emplace_back(slot, found->second);
      }
      return slot;
    }
    if (const auto found = parameter_symbols_.find(name);
        found != parameter_symbols_.end()) {
      const int slot = NewSlot(name);
      function_.parameter_addresses.emplace_back(slot, found->second);
      return slot;
    }
    if (const auto found = frame_symbols_.find(name);
        found != frame_symbols_.end()) {
      const int slot = NewSlot(name);
      function_.frame_addresses.emplace_back(slot, found->second);
      return slot;
    }
    if (program_.shared.contains(name)) {
      const int slot = NewSlot(name);
      function_.shared_addresses.emplace_back(slot, name);
      return slot;
    }
    return ConstantOf(operand);
  }

  absl::StatusOr<int> ConstantOf(absl::string_view operand) {
    absl::string_view digits = operand;
    if (absl::ConsumePrefix(&digits, "0f") ||
        absl::ConsumePrefix(&digits, "0F") ||
        absl::ConsumePrefix(&digits, "0d") ||
        absl::ConsumePrefix(&digits, "0D")) {
      return Constant(std::strtoull(std::string(digits).c_str(), nullptr, 16));
    }
    char* end = nullptr;
    const std::string text(operand);
    const uint64_t value =
        text[0] == '-'
            ? static_cast<uint64_t>(std::strtoll(text.c_str(), &end, 0))
            : std::strtoull(text.c_str(), &end, 0);
    if (end == text.c_str() || (*end != 0 && *end != 'U')) {
      return absl::UnimplementedError(absl::StrCat("operand ", text));
    }
    return Constant(value);
  }

  absl::Status AddStatement(absl::string_view statement) {
    if (statement.empty()) return absl::OkStatus();
    if (statement[0] == '.') return Declare(statement);
    Instruction instruction;
    instruction.text = std::string(statement);
    if (absl::ConsumePrefix(&statement, "@")) {
      instruction.guard_negated = absl::ConsumePrefix(&statement, "!");
      const size_t end = statement.find_first_of(" \t\n");
      ASSIGN_OR_RETURN(instruction.guard, Slot(statement.substr(0, end)));
      statement = absl::StripAsciiWhitespace(statement.substr(end));
    }
    const size_t end = statement.find_first_of(" \t\n");
    const absl::string_view name = statement.substr(0, end);
    const std::vector<std::string> operands =
        end == absl::string_view::npos ? std::vector<std::string>()
                                       : SplitOperands(statement.substr(end));
    const absl::Status status = Decode(name, operands, instruction);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(status.message(), " in ",
                                                      instruction.text));
    }
    function_.code.push_back(std::move(instruction));
    return absl::OkStatus();
  }

  absl::Status Declare(absl::string_view statement) {
    if (absl::StartsWith(statement, ".reg") ||
        absl::StartsWith(statement, ".pragma")) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const Declaration declaration,
                     ParseDeclaration(statement));
    if (absl::StartsWith(statement, ".shared")) {
      program_.shared_bytes = AlignUp(program_.shared_bytes, declaration.align);
      program_.shared[declaration.name] = program_.shared_bytes;
      program_.shared_bytes += declaration.size;
      return absl::OkStatus();
    }
    AddToFrame(declaration);
    return absl::OkStatus();
  }

  absl::Status Decode(absl::string_view name,
                      const std::vector<std::string>& operands,
                      Instruction& instruction) {
    if (name == "bra" || name == "bra.uni") {
      instruction.kind = Kind::kBranch;
      branches_.emplace_back(function_.code.size(), operands[0]);
      return absl::OkStatus();
    }
    if (name == "ret" || name == "exit") {
      instruction.kind = Kind::kReturn;
      return absl::OkStatus();
    }
    if (absl::StartsWith(name, "bar.")) {
      instruction.kind = Kind::kBarrier;
      return absl::OkStatus();
    }
    if (absl::StartsWith(name, "call"))
      return DecodeCall(operands, instruction);
    instruction.execute = FindOperation(name, instruction);
    if (instruction.execute == nullptr) {
      return absl::UnimplementedError("unknown operation");
    }
    // The first operand is the result, except in stores and the like.
    const bool has_result = !absl::StartsWith(name, "st.") &&
                            !absl::StartsWith(name, "cp.async") &&
                            name != "trap";
    for (size_t i = 0; i < operands.size(); ++i) {
      RETURN_IF_ERROR(
          AddOperand(operands[i], has_result && i == 0, instruction));
    }
    return absl::OkStatus();
  }

  absl::Status AddOperand(absl::string_view operand, bool is_result,
                          Instruction& instruction) {
    if (operand[0] == '{') {
      for (const std::string& part :
           SplitOperands(operand.substr(1, operand.size() - 2))) {
        RETURN_IF_ERROR(AddOperand(part, is_result, instruction));
      }
      return absl::OkStatus();
    }
    if (operand[0] == '[') {
      absl::string_view address = operand.substr(1, operand.size() - 2);
      const size_t plus = address.find('+');
      if (plus != absl::string_view::npos) {
        if (!absl::SimpleAtoi(address.substr(plus + 1), &instruction.offset)) {
          return absl::UnimplementedError("address");
        }
        address = address.substr(0, plus);
      }
      return AddOperand(absl::StripAsciiWhitespace(address), false,
                        instruction);
    }
    // In "d|p", the second result is whether the lane that was read exists.
    const size_t bar = operand.find('|');
    if (bar != absl::string_view::npos) {
      RETURN_IF_ERROR(
          AddOperand(operand.substr(0, bar), is_result, instruction));
      return AddOperand(operand.substr(bar + 1), is_result, instruction);
    }
    ASSIGN_OR_RETURN(const int slot, Slot(operand));
    if (is_result) {
      instruction.to.at(instruction.to_count++) = slot;
    } else {
      instruction.from.at(instruction.from_count++) = slot;
    }
    return absl::OkStatus();
  }

  absl::Status DecodeCall(const std::vector<std::string>& operands,
                          Instruction& instruction) {
    instruction.kind = Kind::kCall;
    const auto found = program_.by_name.find(operands[0]);
    if (found == program_.by_name.end()) {
      return absl::UnimplementedError("call with a result, or of no function");
    }
    instruction.target = found->second;
    if (operands.size() < 2) return absl::OkStatus();
    for (const std::string& argument :
         SplitOperands(operands[1].substr(1, operands[1].size() - 2))) {
      instruction.arguments.push_back(frame_symbols_.at(argument));
    }
    return absl::OkStatus();
  }

  Program& program_;
  Function& function_;
  std::map<std::string, int> slots_;
  std::map<std::string, int> labels_;
  std::map<std::string, int64_t> parameter_symbols_;
  std::map<std::string, int64_t> frame_symbols_;
  std::vector<std::pair<size_t, std::string>> branches_;
};

// Returns the index of the function with that header, which may have been
// declared before.
int FunctionOf(absl::string_view header, Program& program) {
  const absl::string_view before =
      absl::StripAsciiWhitespace(header.substr(0, header.find('(')));
  const std::string name(before.substr(before.find_last_of(" \n\t") + 1));
  const auto [found, is_new] = program.by_name.try_emplace(
      name, static_cast<int>(program.functions.size()));
  if (is_new) program.functions.emplace_back().name = name;
  return found->second;
}

absl::Status ReadFunction(absl::string_view header, absl::string_view body,
                          Program& program) {
  const size_t open = header.find('(');
  const int index = FunctionOf(header, program);
  // This is not program.functions[index], since reading may add functions.
  Function function;
  function.name = program.functions[index].name;
  function.is_kernel = absl::StrContains(header, ".entry");
  BodyReader reader(&program, &function);
  if (open != absl::string_view::npos) {
    const size_t close = header.find(')', open);
    for (const std::string& parameter :
         SplitOperands(header.substr(open + 1, close - open - 1))) {
      ASSIGN_OR_RETURN(const Declaration declaration,
                       ParseDeclaration(parameter));
      RETURN_IF_ERROR(reader.AddParameter(declaration));
    }
  }
  RETURN_IF_ERROR(reader.Read(body));
  program.functions[index] = std::move(function);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Program>> ReadProgram(absl::string_view text) {
  auto program = std::make_unique<Program>();
  const std::string code = WithoutComments(text);
  size_t at = 0;
  while (true) {
    const size_t end = code.find_first_of("{;", at);
    if (end == std::string::npos) break;
    const absl::string_view head = absl::StripAsciiWhitespace(
        absl::string_view(code).substr(at, end - at));
    if (code[end] == ';') {
      if (absl::StrContains(head, ".shared")) {
        ASSIGN_OR_RETURN(const Declaration declaration, ParseDeclaration(head));
        // Extern memory is the dynamic memory, which lies behind all other.
        if (!absl::StrContains(head, ".extern")) {
          program->shared_bytes =
              AlignUp(program->shared_bytes, declaration.align);
          program->shared[declaration.name] = program->shared_bytes;
          program->shared_bytes += declaration.size;
        } else {
          program->shared[declaration.name] = ~uint64_t{0};
        }
      } else if (absl::StrContains(head, ".func")) {
        FunctionOf(head, *program);
      } else if (absl::StrContains(head, ".global") ||
                 absl::StrContains(head, ".const")) {
        return absl::UnimplementedError(absl::StrCat("a variable: ", head));
      }
      at = end + 1;
      continue;
    }
    const size_t close = EndOfBraces(code, end);
    if (!absl::StartsWith(head, ".section")) {
      RETURN_IF_ERROR(ReadFunction(
          head, absl::string_view(code).substr(end + 1, close - end - 1),
          *program));
    }
    at = close + 1;
  }
  return program;
}

}  // namespace causeway::ptx
