// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy/rans_reference.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "absl/strings/str_format.h"
#include "quantization/formats/block_format.h"

namespace causeway {
namespace {

static_assert(std::endian::native == std::endian::little,
              "states and words are copied as they lie in memory");

constexpr size_t kWordsOfGroup = 16;
constexpr size_t kRowsOfGroup = kNibbleGroup / kWordsOfGroup;

std::vector<uint8_t> CodesOfSlots(const RansTable& table) {
  std::vector<uint8_t> codes;
  codes.reserve(kRansTotal);
  for (size_t place = 0; place < AlphabetSize(table.width); ++place) {
    const size_t code = CodeAtPlace(table.width, place);
    codes.insert(codes.end(), table.frequency[code],
                 static_cast<uint8_t>(code));
  }
  return codes;
}

uint32_t SymbolMask(SymbolWidth width) {
  return static_cast<uint32_t>(AlphabetSize(width)) - 1;
}

}  // namespace

size_t RansPlane::Steps() const {
  if (width == SymbolWidth::kByte) {
    return (bytes + kRansLanes - 1) / kRansLanes;
  }
  const size_t groups = bytes / kNibbleGroupBytes;
  return (groups + 1) / 2 * kRowsOfGroup;
}

size_t RansPlane::LanesOf(size_t step) const {
  if (width == SymbolWidth::kByte) {
    return std::min(kRansLanes, bytes - step * kRansLanes);
  }
  const size_t groups_before = step / kRowsOfGroup * 2;
  const bool pair = bytes / kNibbleGroupBytes - groups_before >= 2;
  return pair ? kRansLanes : kWordsOfGroup;
}

RansPlane::Place RansPlane::PlaceOf(size_t step, size_t lane) const {
  if (width == SymbolWidth::kByte) return {step * kRansLanes + lane, 0};
  const size_t group = step / kRowsOfGroup * 2 + lane / kWordsOfGroup;
  const size_t row = step % kRowsOfGroup;
  const size_t word = lane % kWordsOfGroup;
  return {group * kNibbleGroupBytes + 4 * word + row / 2,
          static_cast<uint32_t>(row % 2 * 4)};
}

std::array<uint16_t, 256> FirstSlots(const RansTable& table) {
  std::array<uint16_t, 256> slots = {};
  uint32_t sum = 0;
  for (size_t place = 0; place < AlphabetSize(table.width); ++place) {
    const size_t code = CodeAtPlace(table.width, place);
    slots[code] = static_cast<uint16_t>(sum);
    sum += table.frequency[code];
  }
  return slots;
}

void RansEncodeSteps(const RansTable& table, const RansPlane& plane,
                     const char* codes, size_t begin, size_t end,
                     RansStates& states, RansStream& stream) {
  const std::array<uint16_t, 256> first_slots = FirstSlots(table);
  for (size_t step = end; step-- > begin;) {
    for (size_t lane = plane.LanesOf(step); lane-- > 0;) {
      const RansPlane::Place place = plane.PlaceOf(step, lane);
      const size_t code =
          (static_cast<uint8_t>(codes[place.byte]) >> place.shift) &
          SymbolMask(plane.width);
      const uint32_t frequency = table.frequency[code];
      uint32_t& state = states[lane];
      // At frequency * 2^20 the new state would be 2^32, which does not fit.
      if (state >> (32 - kRansBits) >= frequency) {
        const uint16_t word = static_cast<uint16_t>(state);
        if (lane < kRansFrontLanes) stream.front -= kRansWordBytes;
        char* const to = lane < kRansFrontLanes ? stream.front : stream.back;
        std::memcpy(to, &word, sizeof(word));
        if (lane >= kRansFrontLanes) stream.back += kRansWordBytes;
        state >>= 16;
      }
      state = (state / frequency << kRansBits) + state % frequency +
              first_slots[code];
    }
  }
}

absl::Status RansDecodeSteps(const RansTable& table, const RansPlane& plane,
                             size_t begin, size_t end, RansStates& states,
                             absl::string_view& words, char* codes) {
  const std::array<uint16_t, 256> first_slots = FirstSlots(table);
  const std::vector<uint8_t> codes_of_slots = CodesOfSlots(table);
  for (size_t step = begin; step < end; ++step) {
    for (size_t lane = 0; lane < plane.LanesOf(step); ++lane) {
      uint32_t& state = states[lane];
      const uint32_t slot = state % kRansTotal;
      const uint8_t code = codes_of_slots[slot];
      const RansPlane::Place place = plane.PlaceOf(step, lane);
      codes[place.byte] =
          static_cast<char>(codes[place.byte] | (code << place.shift));
      state = table.frequency[code] * (state >> kRansBits) + slot -
              first_slots[code];
      if (state >= kRansLowerBound) continue;
      if (words.size() < kRansWordBytes) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "entropy coded codes: no word is left at symbol %d of step %d; the "
            "bytes are cut off or damaged",
            lane, step));
      }
      uint16_t word;
      if (lane < kRansFrontLanes) {
        std::memcpy(&word, words.data(), sizeof(word));
        words.remove_prefix(kRansWordBytes);
      } else {
        words.remove_suffix(kRansWordBytes);
        std::memcpy(&word, words.data() + words.size(), sizeof(word));
      }
      state = state << 16 | word;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RansStates> ReadRansStates(absl::string_view& bytes) {
  RansStates states;
  if (bytes.size() < kRansStateBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "entropy coded codes: %d bytes after the table, but the states take "
        "%d; the bytes are cut off",
        bytes.size(), kRansStateBytes));
  }
  std::memcpy(states.data(), bytes.data(), kRansStateBytes);
  bytes.remove_prefix(kRansStateBytes);
  for (size_t lane = 0; lane < kRansLanes; ++lane) {
    if (states[lane] >= kRansLowerBound) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "entropy coded codes: the state of lane %d is %d, below %d; the bytes "
        "are damaged",
        lane, states[lane], kRansLowerBound));
  }
  return states;
}

absl::Status CheckRansEnd(const RansStates& states, absl::string_view words) {
  if (!words.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "entropy coded codes: %d bytes are left after the last symbol; the "
        "bytes are damaged",
        words.size()));
  }
  for (size_t lane = 0; lane < kRansLanes; ++lane) {
    if (states[lane] == kRansLowerBound) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "entropy coded codes: lane %d ends at state %d, not %d; the bytes are "
        "damaged",
        lane, states[lane], kRansLowerBound));
  }
  return absl::OkStatus();
}

RansStates InitialRansStates() {
  RansStates states;
  states.fill(kRansLowerBound);
  return states;
}

}  // namespace causeway
