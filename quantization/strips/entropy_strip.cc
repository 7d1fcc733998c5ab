// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/entropy_strip.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "quantization/entropy/entropy_coder.h"

namespace causeway {
namespace {

SymbolWidth WidthOf(const StripPlanes& planes) {
  return planes.code_bits() == 8 ? SymbolWidth::kByte : SymbolWidth::kNibble;
}

}  // namespace

uint64_t EncodeEntropyStrip(const StripPlanes& planes,
                            const EncodeOptions& options,
                            absl::Span<const float> values,
                            absl::Span<float> decoded, std::vector<char>& codes,
                            char* place) {
  const uint64_t scale_bytes = planes.ScaleBytes(values.size());
  const uint64_t code_bytes = planes.CodeBytes(values.size());
  if (codes.size() < code_bytes) codes.resize(code_bytes);
  char* const scales = place + StripHeader::kBytes;
  char* const coded = scales + scale_bytes;
  StripHeader header;
  header.parameter = planes.Encode(
      options, values, {.scales = scales, .codes = codes.data()}, decoded);
  uint64_t coded_bytes = CompressCodes(
      WidthOf(planes), absl::string_view(codes.data(), code_bytes),
      absl::MakeSpan(coded, code_bytes));
  header.compressed = coded_bytes > 0;
  if (!header.compressed) {
    std::memcpy(coded, codes.data(), code_bytes);
    coded_bytes = code_bytes;
  }
  header.bytes = static_cast<uint32_t>(scale_bytes + coded_bytes);
  WriteStripHeader(header, place);
  return StripHeader::kBytes + header.bytes;
}

absl::StatusOr<EntropyStrip> FindPlanes(const StripPlanes& planes,
                                        uint64_t values,
                                        absl::string_view strip) {
  const uint64_t scale_bytes = planes.ScaleBytes(values);
  const uint64_t code_bytes = planes.CodeBytes(values);
  const StripHeader header = ReadStripHeader(strip.data());
  if (header.compressed ? header.bytes < scale_bytes
                        : header.bytes != scale_bytes + code_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "it has %d bytes, but its scales take %d and its codes %s%d",
        header.bytes, scale_bytes, header.compressed ? "at most " : "",
        code_bytes));
  }
  strip.remove_prefix(StripHeader::kBytes);
  EntropyStrip found{
      .part = {.scales = strip.data(), .parameter = header.parameter}};
  strip.remove_prefix(scale_bytes);
  if (header.compressed) {
    found.compressed = strip;
  } else {
    found.part.codes = strip.data();
  }
  return found;
}

absl::Status Decompress(const StripPlanes& planes, absl::Span<char> codes,
                        EntropyStrip& strip) {
  strip.part.codes = codes.data();
  return DecompressCodes(WidthOf(planes), strip.compressed, codes);
}

}  // namespace causeway
