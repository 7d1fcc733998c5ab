// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy/rans_table.h"

#include <algorithm>
#include <bit>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace causeway {
namespace {

constexpr uint32_t kFirstOrder = 4;

// Differences of two frequencies are below 2^13, so v is below 2^14 + 2^13.
constexpr uint32_t kMaxLog2 = 14;

uint32_t Log2(uint32_t value) {
  return static_cast<uint32_t>(std::bit_width(value)) - 1;
}

uint32_t NextOrder(uint32_t z) { return z == 0 ? 0 : Log2(z); }

// Calls function(code) for all codes in the order of symbols, which decides
// ties.
template <typename Function>
void ForEachCode(SymbolWidth width, const Function& function) {
  for (size_t place = 0; place < AlphabetSize(width); ++place) {
    function(CodeAtPlace(width, place));
  }
}

size_t LargestCode(const RansTable& table) {
  size_t largest = CodeAtPlace(table.width, 0);
  ForEachCode(table.width, [&](size_t code) {
    if (table.frequency[code] > table.frequency[largest]) largest = code;
  });
  return largest;
}

// Writes bits, the lowest bit of a byte first.
class BitWriter {
 public:
  explicit BitWriter(char* bytes) : next_(bytes) {}

  // Writes the lowest `bits` bits of `value`, at most 24.
  void Write(uint32_t value, uint32_t bits) {
    pending_ |= value << pending_bits_;
    for (pending_bits_ += bits; pending_bits_ >= 8; pending_bits_ -= 8) {
      *next_++ = static_cast<char>(pending_);
      pending_ >>= 8;
    }
  }

  // Fills the last byte with zeros. Returns the end.
  char* Finish() {
    if (pending_bits_ > 0) Write(0, 8 - pending_bits_);
    return next_;
  }

 private:
  char* next_;
  uint32_t pending_ = 0;
  uint32_t pending_bits_ = 0;
};

class BitReader {
 public:
  explicit BitReader(absl::string_view bytes) : bytes_(bytes) {}

  // Reads `bits` bits; there are zeros beyond the end.
  uint32_t Read(uint32_t bits) {
    uint32_t value = 0;
    for (uint32_t i = 0; i < bits; ++i, ++position_) {
      const size_t byte = position_ / 8;
      if (byte >= bytes_.size()) continue;
      value |= ((static_cast<uint8_t>(bytes_[byte]) >> (position_ % 8)) & 1u)
               << i;
    }
    return value;
  }

  size_t BytesRead() const { return (position_ + 7) / 8; }

  // Returns whether the bits up to the end of the last byte are zero.
  bool SkipFilling() { return Read((8 - position_ % 8) % 8) == 0; }

 private:
  const absl::string_view bytes_;
  size_t position_ = 0;
};

absl::Status BadTable(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrFormat("entropy coded codes: the table of frequencies %s; the "
                      "bytes are damaged, or the sender's encoder is at fault",
                      what));
}

}  // namespace

RansTable NormalizedTable(SymbolWidth width,
                          absl::Span<const uint32_t> counts) {
  uint64_t total = 0;
  for (const uint32_t count : counts) total += count;
  RansTable table{.width = width};
  uint32_t sum = 0;
  ForEachCode(width, [&](size_t code) {
    if (counts[code] == 0) return;
    const uint64_t rounded =
        (2 * kRansTotal * uint64_t{counts[code]} + total) / (2 * total);
    table.frequency[code] =
        static_cast<uint16_t>(std::max<uint64_t>(rounded, 1));
    sum += table.frequency[code];
  });
  for (; sum > kRansTotal; --sum) --table.frequency[LargestCode(table)];
  uint16_t& largest = table.frequency[LargestCode(table)];
  largest = static_cast<uint16_t>(largest + kRansTotal - sum);
  return table;
}

size_t WriteRansTable(const RansTable& table, char* bytes) {
  size_t first = AlphabetSize(table.width);
  size_t last = 0;
  for (size_t place = 0; place < AlphabetSize(table.width); ++place) {
    if (table.frequency[CodeAtPlace(table.width, place)] == 0) continue;
    first = std::min(first, place);
    last = place;
  }
  char* next = bytes;
  if (table.width == SymbolWidth::kNibble) {
    *next++ = static_cast<char>(first + 16 * last);
  } else {
    *next++ = static_cast<char>(first);
    *next++ = static_cast<char>(last);
  }
  BitWriter writer(next);
  uint32_t order = kFirstOrder;
  int32_t before = 0;
  for (size_t place = first; place <= last; ++place) {
    const int32_t frequency = table.frequency[CodeAtPlace(table.width, place)];
    const int32_t difference = frequency - before;
    const uint32_t z = static_cast<uint32_t>(
        difference < 0 ? -2 * difference - 1 : 2 * difference);
    const uint32_t v = z + (1u << order);
    const uint32_t log2 = Log2(v);
    writer.Write((1u << (log2 - order)) - 1, log2 - order + 1);
    writer.Write(v & ((1u << log2) - 1), log2);
    before = frequency;
    order = NextOrder(z);
  }
  return static_cast<size_t>(writer.Finish() - bytes);
}

absl::StatusOr<RansTable> ReadRansTable(SymbolWidth width,
                                        absl::string_view& bytes) {
  const size_t head = width == SymbolWidth::kNibble ? 1 : 2;
  if (bytes.size() < head) return BadTable("is cut off");
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const size_t first = head == 1 ? byte(0) % 16 : byte(0);
  const size_t last = head == 1 ? byte(0) / 16 : byte(1);
  if (first > last) return BadTable("ends before it begins");

  BitReader reader(bytes.substr(head));
  RansTable table{.width = width};
  uint32_t order = kFirstOrder;
  int32_t frequency = 0;
  uint32_t sum = 0;
  for (size_t place = first; place <= last; ++place) {
    uint32_t log2 = order;
    while (log2 <= kMaxLog2 && reader.Read(1) == 1) ++log2;
    if (log2 > kMaxLog2) return BadTable("has a number that is too large");
    const uint32_t v = (1u << log2) | reader.Read(log2);
    const uint32_t z = v - (1u << order);
    const int32_t half = static_cast<int32_t>(z / 2);
    frequency += z % 2 == 1 ? -half - 1 : half;
    if (frequency < 0 || frequency > static_cast<int32_t>(kRansTotal)) {
      return BadTable("has a frequency that is not 0 to 4096");
    }
    table.frequency[CodeAtPlace(width, place)] =
        static_cast<uint16_t>(frequency);
    sum += static_cast<uint32_t>(frequency);
    order = NextOrder(z);
  }
  if (!reader.SkipFilling()) return BadTable("is not filled up with zeros");
  if (head + reader.BytesRead() > bytes.size()) return BadTable("is cut off");
  if (sum != kRansTotal) {
    return BadTable(absl::StrFormat("sums up to %d, not to 4096", sum));
  }
  if (table.frequency[CodeAtPlace(width, first)] == 0 ||
      table.frequency[CodeAtPlace(width, last)] == 0) {
    return BadTable("begins or ends with a frequency of 0");
  }
  bytes.remove_prefix(head + reader.BytesRead());
  return table;
}

}  // namespace causeway
