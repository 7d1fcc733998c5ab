// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy/entropy_coder.h"

#include <algorithm>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/entropy/code_counts.h"
#include "quantization/entropy/rans_kernels_cpu.h"
#include "quantization/entropy/rans_reference.h"
#include "quantization/formats/block_format.h"

namespace causeway {
namespace {

void CheckPlane(SymbolWidth width, size_t bytes) {
  CHECK_LE(bytes, kMaxCodePlaneBytes);
  if (width == SymbolWidth::kNibble) CHECK_EQ(bytes % kNibbleGroupBytes, 0u);
}

bool HasOneSymbol(const RansTable& table) {
  return absl::c_linear_search(table.frequency, kRansTotal);
}

// Decodes the whole units of a plane, and removes their words from `words`.
absl::Status DecodeUnits(SymbolWidth width, const RansTable& table,
                         RansStates& states, absl::string_view& words,
                         size_t units, char* codes) {
  const RansDecodeTable decode_table(table);
  const RansKernels& kernels = CpuRansKernels(width);
  const char* front = words.data();
  const char* back = front + words.size();
  size_t done = kernels.decode(decode_table, units, kMaxRansUnitReadBytes,
                               states, front, back, codes);
  // A unit of symbols that are rare in the table, but not in the codes, takes
  // more words than the stream may have.
  const auto check_words = [&]() -> absl::Status {
    if (front <= back) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "entropy coded codes: the words end before the codes of byte %d of "
        "%d; the bytes are cut off or damaged",
        done * RansUnitBytes(width), units * RansUnitBytes(width)));
  };
  RETURN_IF_ERROR(check_words());
  words = absl::string_view(front, static_cast<size_t>(back - front));
  if (done == units) return absl::OkStatus();
  // The kernels read beyond the last words, which are fewer than
  // kMaxRansUnitReadBytes now.
  char last[3 * kMaxRansUnitReadBytes] = {};
  front = last + kMaxRansUnitReadBytes;
  back = absl::c_copy(words, last + kMaxRansUnitReadBytes);
  done += kernels.decode(decode_table, units - done, 0, states, front, back,
                         codes + done * RansUnitBytes(width));
  RETURN_IF_ERROR(check_words());
  words =
      words.substr(static_cast<size_t>(front - last) - kMaxRansUnitReadBytes,
                   static_cast<size_t>(back - front));
  return absl::OkStatus();
}

}  // namespace

size_t CompressCodes(SymbolWidth width, absl::string_view codes,
                     absl::Span<char> compressed) {
  CheckPlane(width, codes.size());
  CHECK_GE(compressed.size(), codes.size());
  if (codes.empty()) return 0;
  const CodeCounts counts = CountCodes(width, codes);
  const RansTable table = NormalizedTable(
      width, absl::MakeConstSpan(counts).first(AlphabetSize(width)));
  const RansPlane plane{width, codes.size()};
  const size_t units = codes.size() / RansUnitBytes(width);

  // The stream grows from the middle to both sides. The encoder gives up when
  // there are more words than codes, so there never are many more.
  constexpr size_t kRoom = kMaxCodePlaneBytes + 2 * kMaxRansUnitReadBytes;
  alignas(64) char words[2 * kRoom];
  RansStream stream{words + kRoom, words + kRoom};
  RansStates states = InitialRansStates();
  // The symbols after the whole units are encoded first, since they are decoded
  // last.
  RansEncodeSteps(table, plane, codes.data(), units * RansUnitSteps(width),
                  plane.Steps(), states, stream);
  if (!CpuRansKernels(width).encode(RansEncodeTable(table), codes.data(), units,
                                    codes.size(), states, stream)) {
    return 0;
  }

  char head[kMaxRansTableBytes + kRansStateBytes];
  const size_t table_bytes = WriteRansTable(table, head);
  std::memcpy(head + table_bytes, states.data(), kRansStateBytes);
  const size_t head_bytes = table_bytes + kRansStateBytes;
  const size_t word_bytes = stream.Bytes();
  if (head_bytes + word_bytes >= codes.size()) return 0;
  std::memcpy(compressed.data(), head, head_bytes);
  std::memcpy(compressed.data() + head_bytes, stream.front, word_bytes);
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
  // The kernels' tables have no room for a frequency of kRansTotal.
  if (HasOneSymbol(table)) units = 0;
  RETURN_IF_ERROR(DecodeUnits(width, table, states, rest, units, codes.data()));
  const size_t decoded = units * RansUnitBytes(width);
  std::fill(codes.begin() + decoded, codes.end(), '\0');
  RETURN_IF_ERROR(RansDecodeSteps(table, plane, units * RansUnitSteps(width),
                                  plane.Steps(), states, rest, codes.data()));
  return CheckRansEnd(states, rest);
}

}  // namespace causeway
