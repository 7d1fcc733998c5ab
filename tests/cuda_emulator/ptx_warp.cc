// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulator/ptx_warp.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace causeway::ptx {

Warp::Warp(Block* block, int function, uint32_t first_thread)
    : block_(block),
      kernel_(function),
      first_thread_(first_thread),
      activations_(block->program->functions.size()) {}

void Warp::Begin() {
  for (int lane = 0; lane < kLanes; ++lane) {
    state_[lane] = State::kRunning;
    function_[lane] = kernel_;
    at_[lane] = 0;
    copies_[lane].assign(1, {});
  }
  for (size_t function = 0; function < activations_.size(); ++function) {
    if (!activations_[function].registers.empty()) {
      SetSpecials(static_cast<int>(function));
    }
  }
}

bool Warp::HasEnded() const {
  return std::all_of(state_, state_ + kLanes,
                     [](State state) { return state == State::kEnded; });
}

void Warp::Release() {
  for (State& state : state_) {
    if (state == State::kAtBarrier) state = State::kRunning;
  }
}

void Warp::Fail(const Instruction& instruction, const std::string& what) {
  if (!block_->status.ok()) return;
  block_->status = absl::InternalError(
      absl::StrCat(what, ": ", instruction.text, ", block ", block_->index[0],
                   ",", block_->index[1], ",", block_->index[2],
                   ", threads from ", first_thread_));
}

bool Warp::IsAligned(const Instruction& instruction, uint64_t address,
                     size_t bytes) {
  if (address % bytes == 0) return true;
  Fail(instruction, "misaligned address");
  return false;
}

bool Warp::IsAlone(uint64_t address, size_t bytes, Use use) {
  // Parts of a word may belong to different warps.
  if (bytes < 4) return true;
  const auto self = static_cast<int16_t>(first_thread_ / kLanes);
  const auto is_other = [&](int16_t warp) {
    return warp != self && warp != WordUse::kNobody;
  };
  for (uint64_t word = address / 4; word < (address + bytes) / 4; ++word) {
    WordUse& word_use = block_->uses[word];
    if (word_use.interval != block_->interval) {
      word_use = {.interval = block_->interval};
    }
    if (is_other(word_use.writer)) return false;
    if (use == Use::kWrite) {
      if (is_other(word_use.reader)) return false;
      word_use.writer = self;
    } else if (word_use.reader != self) {
      word_use.reader =
          word_use.reader == WordUse::kNobody ? self : WordUse::kSeveral;
    }
  }
  return true;
}

char* Warp::Shared(const Instruction& instruction, uint64_t address,
                   size_t bytes, Use use) {
  if (!IsAligned(instruction, address, bytes)) return nullptr;
  if (address + bytes > block_->shared_bytes) {
    Fail(instruction, "address beyond shared memory");
    return nullptr;
  }
  if (!IsAlone(address, bytes, use)) {
    Fail(instruction,
         "two warps use a word of shared memory, one to write it, "
         "with no barrier between");
    return nullptr;
  }
  return block_->shared + address;
}

char* Warp::Global(const Instruction& instruction, uint64_t address,
                   size_t bytes) {
  if (!IsAligned(instruction, address, bytes)) return nullptr;
  if (address < last_memory_.first || address + bytes > last_memory_.second) {
    last_memory_ = block_->memory->Around(address, block_->grid.device);
    if (address < last_memory_.first || address + bytes > last_memory_.second) {
      Fail(instruction, "an address that the device has no memory at");
      return nullptr;
    }
  }
  return block_->memory->InHost(address);
}

char* Warp::Own(const Instruction& instruction, uint64_t address,
                size_t bytes) {
  if (!IsAligned(instruction, address, bytes)) return nullptr;
  return reinterpret_cast<char*>(address);
}

char* Warp::Generic(const Instruction& instruction, uint64_t address,
                    size_t bytes, Use use) {
  const auto shared = reinterpret_cast<uintptr_t>(block_->shared);
  if (address >= shared && address < shared + block_->shared_bytes) {
    return Shared(instruction, address - shared, bytes, use);
  }
  const auto is_in = [&](const char* begin, size_t size) {
    const auto at = reinterpret_cast<uintptr_t>(begin);
    return address >= at && address + bytes <= at + size;
  };
  if (is_in(block_->parameters, block_->parameter_bytes)) {
    return Own(instruction, address, bytes);
  }
  for (const Activation& activation : activations_) {
    if (is_in(activation.memory.data(), activation.memory.size())) {
      return Own(instruction, address, bytes);
    }
  }
  return Global(instruction, address, bytes);
}

void Warp::SetSpecials(int function) {
  const Grid& grid = block_->grid;
  const uint32_t values[] = {0,
                             grid.threads,
                             block_->index[0],
                             block_->index[1],
                             block_->index[2],
                             grid.blocks[0],
                             grid.blocks[1],
                             grid.blocks[2],
                             0,
                             1};
  for (const auto& [slot, special] :
       block_->program->functions[function].specials) {
    uint64_t* const to =
        activations_[function].registers.data() + slot * kLanes;
    for (int lane = 0; lane < kLanes; ++lane) {
      to[lane] = special == Special::kThread
                     ? first_thread_ + static_cast<uint32_t>(lane)
                     : values[static_cast<int>(special)];
    }
  }
}

// A block finds the values of earlier blocks in its registers, as on a GPU.
Warp::Activation& Warp::Activate(int function) {
  Activation& activation = activations_[function];
  if (!activation.registers.empty()) return activation;
  const Function& code = block_->program->functions[function];
  activation.registers.resize(static_cast<size_t>(code.slots) * kLanes + 1);
  activation.memory.assign(static_cast<size_t>(code.frame_bytes) * kLanes + 16,
                           -1);
  const auto set = [&](int slot, auto value_of_lane) {
    for (int lane = 0; lane < kLanes; ++lane) {
      activation.registers[slot * kLanes + lane] = value_of_lane(lane);
    }
  };
  for (const auto& [slot, value] : code.constants) {
    set(slot, [value = value](int) { return value; });
  }
  SetSpecials(function);
  for (const auto& [slot, offset] : code.parameter_addresses) {
    set(slot, [this, offset = offset](int) {
      return reinterpret_cast<uintptr_t>(block_->parameters) +
             static_cast<uint64_t>(offset);
    });
  }
  for (const auto& [slot, offset] : code.frame_addresses) {
    set(slot, [&, offset = offset](int lane) {
      return reinterpret_cast<uintptr_t>(activation.memory.data()) +
             static_cast<uint64_t>(lane * code.frame_bytes + offset);
    });
  }
  for (const auto& [slot, name] : code.shared_addresses) {
    const uint64_t offset = block_->program->shared.find(name)->second;
    set(slot, [&](int) -> uint64_t {
      return offset == ~uint64_t{0}
                 ? (block_->program->shared_bytes + 15) / 16 * 16
                 : offset;
    });
  }
  return activation;
}

uint32_t Warp::LanesAt(State state, int function, int at) const {
  uint32_t lanes = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (state_[lane] == state && function_[lane] == function &&
        at_[lane] == at) {
      lanes |= 1u << lane;
    }
  }
  return lanes;
}

uint32_t Warp::Choose() {
  int best = -1;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (state_[lane] != State::kRunning) continue;
    if (best < 0 || callers_[lane].size() > callers_[best].size() ||
        (callers_[lane].size() == callers_[best].size() &&
         at_[lane] < at_[best])) {
      best = lane;
    }
  }
  if (best < 0) return 0;
  join_ = std::numeric_limits<int>::max();
  for (int lane = 0; lane < kLanes; ++lane) {
    if (state_[lane] == State::kRunning && function_[lane] == function_[best] &&
        at_[lane] > at_[best]) {
      join_ = std::min(join_, at_[lane]);
    }
  }
  registers_ = Activate(function_[best]).registers.data();
  return LanesAt(State::kRunning, function_[best], at_[best]);
}

uint32_t Warp::Guarded(const Instruction& instruction, uint32_t lanes) {
  if (instruction.guard < 0) return lanes;
  const uint64_t* const guard = Slot(instruction.guard);
  uint32_t guarded = 0;
  ForLanes(lanes, [&](int lane) {
    if ((guard[lane] != 0) != instruction.guard_negated) guarded |= 1u << lane;
  });
  return guarded;
}

void Warp::SetPlace(uint32_t lanes, int at) {
  ForLanes(lanes, [&](int lane) { at_[lane] = at; });
}

void Warp::Call(const Instruction& instruction, uint32_t lanes) {
  const int caller = function_[__builtin_ctz(lanes)];
  const Function& from = block_->program->functions[caller];
  const Function& to = block_->program->functions[instruction.target];
  Activation& own = activations_[caller];
  Activation& called = Activate(instruction.target);
  ForLanes(lanes, [&](int lane) {
    for (size_t i = 0; i < instruction.arguments.size(); ++i) {
      std::memcpy(called.memory.data() + lane * to.frame_bytes +
                      to.parameters[i].offset,
                  own.memory.data() + lane * from.frame_bytes +
                      instruction.arguments[i],
                  to.parameters[i].size);
    }
    callers_[lane].push_back({caller, at_[lane] + 1});
    function_[lane] = instruction.target;
    at_[lane] = 0;
  });
}

void Warp::Return(uint32_t lanes) {
  ForLanes(lanes, [&](int lane) {
    if (callers_[lane].empty()) {
      state_[lane] = State::kEnded;
      return;
    }
    function_[lane] = callers_[lane].back().function;
    at_[lane] = callers_[lane].back().at;
    callers_[lane].pop_back();
  });
}

// Runs these lanes, which are at one place, as long as they stay together and
// meet no others.
void Warp::Step(uint32_t lanes) {
  const int function = function_[__builtin_ctz(lanes)];
  int at = at_[__builtin_ctz(lanes)];
  const std::vector<Instruction>& code =
      block_->program->functions[function].code;
  while (block_->status.ok()) {
    const Instruction& instruction = code[at];
    const uint32_t guarded = Guarded(instruction, lanes);
    switch (instruction.kind) {
      case Kind::kLane:
        if (guarded != 0) instruction.execute(*this, instruction, guarded);
        ++at;
        break;
      case Kind::kWarp: {
        uint32_t ended = 0;
        for (int lane = 0; lane < kLanes; ++lane) {
          if (state_[lane] == State::kEnded) ended |= 1u << lane;
        }
        const uint32_t all =
            guarded | LanesAt(State::kAwaitsWarp, function, at);
        if (ended != 0 || guarded != lanes) {
          Fail(instruction, "not all lanes of the warp take part");
          return;
        }
        SetPlace(lanes, at);
        if (all != 0xffffffff) {
          ForLanes(lanes, [&](int lane) { state_[lane] = State::kAwaitsWarp; });
          return;
        }
        ForLanes(all, [&](int lane) { state_[lane] = State::kRunning; });
        instruction.execute(*this, instruction, all);
        if (all != lanes) {
          SetPlace(all, at + 1);
          return;
        }
        ++at;
        break;
      }
      case Kind::kBranch:
        if (guarded == lanes) {
          at = instruction.target;
        } else if (guarded == 0) {
          ++at;
          break;
        } else {
          SetPlace(lanes & ~guarded, at + 1);
          SetPlace(guarded, instruction.target);
          return;
        }
        // Other lanes may be behind.
        if (join_ != std::numeric_limits<int>::max()) {
          SetPlace(lanes, at);
          return;
        }
        break;
      case Kind::kBarrier:
        SetPlace(lanes, at + 1);
        ForLanes(guarded, [&](int lane) { state_[lane] = State::kAtBarrier; });
        return;
      case Kind::kCall:
        SetPlace(lanes, at);
        SetPlace(lanes & ~guarded, at + 1);
        Call(instruction, guarded);
        return;
      case Kind::kReturn:
        SetPlace(lanes, at + 1);
        Return(guarded);
        return;
    }
    if (at >= join_) {
      SetPlace(lanes, at);
      return;
    }
  }
}

void Warp::Run() {
  while (block_->status.ok()) {
    const uint32_t lanes = Choose();
    if (lanes != 0) {
      Step(lanes);
      continue;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      if (state_[lane] == State::kAwaitsWarp) {
        Fail(block_->program->functions[function_[lane]].code[at_[lane]],
             "lanes wait for others of their warp that never come");
      }
    }
    return;
  }
}

}  // namespace causeway::ptx
