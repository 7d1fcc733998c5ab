// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy_coder.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/block_format.h"
#include "quantization/rans_kernels_cpu.h"
#include "quantization/rans_reference.h"

namespace causeway {
namespace {

void CheckPlane(SymbolWidth width, size_t bytes) {
  CHECK_LE(bytes, kMaxCodePlaneBytes);
  if (width == SymbolWidth::kNibble) CHECK_EQ(bytes % kNibbleGroupBytes, 0u);
}

// How often each code occurs.
std::array<uint32_t, 256> CountCodes(SymbolWidth width,
                                     absl::string_view codes) {
  // Several tables, so that equal codes in a row do not wait for each other.
  constexpr size_t kTables = 4;
  std::array<std::array<uint32_t, 256>, kTables> counts = {};
  size_t i = 0;
  for (; i + 8 <= codes.size(); i += 8) {
    uint64_t eight;
    std::memcpy(&eight, codes.data() + i, sizeof(eight));
    for (size_t byte = 0; byte < 8; ++byte, eight >>= 8) {
      ++counts[byte % kTables][eight & 0xff];
    }
  }
  for (; i < codes.size(); ++i) ++counts[0][static_cast<uint8_t>(codes[i])];

  std::array<uint32_t, 256> sums = {};
  for (size_t byte = 0; byte < 256; ++byte) {
    uint32_t sum = 0;
    for (const auto& table : counts) sum += table[byte];
    if (width == SymbolWidth::kByte) {
      sums[byte] = sum;
    } else {
      sums[byte & 15] += sum;
      sums[byte >> 4] += sum;
    }
  }
  return sums;
}

bool HasOneSymbol(const RansTable& table) {
  return absl::c_linear_search(table.frequency, kRansTotal);
}

// Decodes the whole units of a plane, and takes their words off `words`.
absl::Status DecodeUnits(SymbolWidth width, const RansTable& table,
                         RansStates& states, absl::string_view& words,
                         size_t units, char* codes) {
  const RansDecodeTable decode_table(table);
  const RansKernels& kernels = CpuRansKernels(width);
  size_t done = 0;
  if (words.size() >= kMaxRansUnitReadBytes) {
    const char* next = words.data();
    done = kernels.decode(decode_table, units, states, next,
                          words.data() + words.size() - kMaxRansUnitReadBytes,
                          codes);
    words.remove_prefix(static_cast<size_t>(next - words.data()));
  }
  if (done == units) return absl::OkStatus();
  // Kernels read beyond the last words.
  char last_words[2 * kMaxRansUnitReadBytes] = {};
  absl::c_copy(words, last_words);
  const char* next = last_words;
  done += kernels.decode(decode_table, units - done, states, next,
                         last_words + words.size(),
                         codes + done * RansUnitBytes(width));
  const size_t read = static_cast<size_t>(next - last_words);
  if (read > words.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "entropy coded codes: the words end within the codes of byte %d of "
        "%d; the bytes are cut off or damaged",
        done * RansUnitBytes(width), units * RansUnitBytes(width)));
  }
  words.remove_prefix(read);
  return absl::OkStatus();
}

}  // namespace

size_t CompressCodes(SymbolWidth width, absl::string_view codes,
                     absl::Span<char> compressed) {
  CheckPlane(width, codes.size());
  CHECK_GE(compressed.size(), codes.size());
  if (codes.empty()) return 0;
  const std::array<uint32_t, 256> counts = CountCodes(width, codes);
  const RansTable table = NormalizedTable(
      width, absl::MakeConstSpan(counts).first(AlphabetSize(width)));
  const RansPlane plane{width, codes.size()};
  const size_t units = codes.size() / RansUnitBytes(width);

  // With more words than codes have bytes they do not pay.
  alignas(64) uint16_t
      words[kMaxCodePlaneBytes / kRansWordBytes + 2 * kMaxRansUnitWords];
  uint16_t* const words_end =
      words + codes.size() / kRansWordBytes + 2 * kMaxRansUnitWords;
  RansStates states = InitialRansStates();
  // What is left after the whole units is encoded first: it is decoded last.
  char* const units_end = RansEncodeSteps(
      table, plane, codes.data(), units * RansUnitSteps(width), plane.Steps(),
      states, reinterpret_cast<char*>(words_end));
  const uint16_t* const first_word = CpuRansKernels(width).encode(
      RansEncodeTable(table), codes.data(), units, states, words,
      reinterpret_cast<uint16_t*>(units_end));
  if (first_word == nullptr) return 0;

  char head[kMaxRansTableBytes + kRansStateBytes];
  const size_t table_bytes = WriteRansTable(table, head);
  std::memcpy(head + table_bytes, states.data(), kRansStateBytes);
  const size_t head_bytes = table_bytes + kRansStateBytes;
  const size_t word_bytes =
      kRansWordBytes * static_cast<size_t>(words_end - first_word);
  if (head_bytes + word_bytes >= codes.size()) return 0;
  std::memcpy(compressed.data(), head, head_bytes);
  std::memcpy(compressed.data() + head_bytes, first_word, word_bytes);
  return head_bytes + word_bytes;
}

absl::Status DecompressCodes(SymbolWidth width, absl::string_view compressed,
                             absl::Span<char> codes) {
  CheckPlane(width, codes.size());
  absl::string_view rest = compressed;
  ASSIGN_OR_RETURN(const RansTable table, ReadRansTable(width, rest));
  ASSIGN_OR_RETURN(RansStates states, ReadRansStates(rest));
  const RansPlane plane{width, codes.size()};
  size_t units = codes.size() / RansUnitBytes(width);
  // The kernels have no room for the one frequency.
  if (HasOneSymbol(table)) units = 0;
  RETURN_IF_ERROR(DecodeUnits(width, table, states, rest, units, codes.data()));
  const size_t decoded = units * RansUnitBytes(width);
  std::fill(codes.begin() + decoded, codes.end(), '\0');
  RETURN_IF_ERROR(RansDecodeSteps(table, plane, units * RansUnitSteps(width),
                                  plane.Steps(), states, rest, codes.data()));
  return CheckRansEnd(states, rest);
}

}  // namespace causeway
