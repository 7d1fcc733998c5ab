// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decodes arbitrary bytes as the encoding of a vector, in any format. Input:
//
//   byte 0       format, by its number in proto/fragment.proto
//   byte 1       bits 0-1 block size (64, 128, 256), bit 2 entropy coded, bit 3
//                pad or cut the encoding to its greatest length; from 240 on
//                there may be several strips, which are slow
//   bytes 2-4    values, little-endian, modulo 2^11 + 64, or 2^17 + 64 with
//                several strips
//   byte 5       the stream comes in pieces of 1 + 16 * byte bytes, at most
//                kMostPieces
//   the rest     the encoding
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/codec.h"
#include "quantization/strips/encoding_reader.h"
#include "quantization/strips/layout.h"

namespace causeway {
namespace {

constexpr size_t kHeaderBytes = 6;
constexpr size_t kMostPieces = 1024;

// Decodes with a cursor, in the shortest pieces that it takes.
std::vector<float> DecodeInPieces(const Decoder& decoder, uint64_t values) {
  constexpr uint64_t kPiece = kPieceAlignment;
  std::vector<float> decoded(values);
  const std::unique_ptr<DecodeCursor> cursor = decoder.NewCursor();
  for (uint64_t begin = 0; begin < values; begin += kPiece) {
    cursor->Decode(begin, absl::MakeSpan(decoded).subspan(begin, kPiece));
  }
  return decoded;
}

// Decodes with a reader that gets `piece` more bytes at a time.
absl::StatusOr<std::vector<float>> DecodeStream(const CodecSpec& spec,
                                                absl::string_view encoded,
                                                uint64_t values, size_t piece) {
  EncodingReader reader = NewEncodingReader(spec, values);
  std::vector<float> decoded(values);
  uint64_t strip = 0;
  for (size_t begin = 0; begin < encoded.size(); begin += piece) {
    RETURN_IF_ERROR(reader.Read(encoded.substr(begin, piece)));
    CHECK_LE(reader.complete(), reader.strips());
    for (; strip < reader.complete(); ++strip) {
      RETURN_IF_ERROR(reader.DecodeStrip(
          encoded.substr(0, reader.bytes()), strip,
          absl::MakeSpan(decoded).subspan(strip * kStripValues, kStripValues)));
    }
  }
  RETURN_IF_ERROR(reader.CheckComplete());
  return decoded;
}

// Measures the norm with a reader that gets `piece` more bytes at a time. In
// the middle, some bytes arrive damaged first, and then intact.
absl::StatusOr<double> NormOfStream(const CodecSpec& spec,
                                    absl::string_view encoded, uint64_t values,
                                    size_t piece) {
  EncodingReader reader =
      NewEncodingReader(spec, values, EncodingReader::Task::kMeasureValues);
  for (size_t begin = 0; begin < encoded.size(); begin += piece) {
    if (begin <= encoded.size() / 2 && begin + piece > encoded.size() / 2) {
      reader.Read(std::string(piece, '\xa5')).IgnoreError();
      reader.GoBack(encoded.substr(0, begin));
    }
    reader.Read(encoded.substr(begin, piece)).IgnoreError();
  }
  return reader.Norm();
}

bool SameBits(absl::Span<const float> left, absl::Span<const float> right) {
  return absl::c_equal(left, right, [](float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
  });
}

void TestEncoding(const CodecSpec& spec, absl::string_view encoded,
                  uint64_t values, size_t piece) {
  const absl::StatusOr<std::unique_ptr<Decoder>> decoder =
      OpenDecoder(spec, encoded, values);
  const bool accepted = decoder.ok() && (*decoder)->CheckFinite().ok();
  const absl::StatusOr<std::vector<float>> streamed =
      DecodeStream(spec, encoded, values, piece);
  CHECK_EQ(accepted, streamed.ok()) << streamed.status();
  const absl::StatusOr<double> norm =
      NormOfStream(spec, encoded, values, piece);
  CHECK_EQ(accepted, norm.ok()) << norm.status();
  if (!decoder.ok()) return;
  CHECK_LE(encoded.size(), MaxEncodedBytes(spec, values));
  // Encodings with values that are refused must decode to something, too.
  const std::vector<float> decoded = DecodeInPieces(**decoder, values);
  if (!accepted) return;
  CHECK(absl::c_all_of(decoded, [](float x) { return std::isfinite(x); }));
  CHECK(SameBits(decoded, *streamed));
  CHECK(std::isfinite(*norm));
}

}  // namespace
}  // namespace causeway

// libFuzzer's own mutator; null where the corpus is only replayed.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data,
                                                         size_t size,
                                                         size_t most);

// Lets one mutant in 64 have several strips, which take most of the time.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t most, unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (size > 1 && seed % 64 != 0) data[1] &= 15;
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway;  // NOLINT(build/namespaces): the entry is C.
  if (size < kHeaderBytes) return 0;
  const CodecSpec spec = {.format = static_cast<v1::Format>(data[0]),
                          .block_size = 64u << (data[1] & 3),
                          .entropy_coded = (data[1] & 4) != 0};
  if (!CheckCodecSpec(spec).ok()) return 0;
  const uint64_t modulus = (data[1] >= 240 ? 1 << 17 : 1 << 11) + 64;
  const uint64_t values =
      (data[2] | uint64_t{data[3]} << 8 | uint64_t{data[4]} << 16) % modulus;
  std::string encoded(reinterpret_cast<const char*>(data) + kHeaderBytes,
                      size - kHeaderBytes);
  if ((data[1] & 8) != 0) encoded.resize(MaxEncodedBytes(spec, values));
  TestEncoding(
      spec, encoded, values,
      std::max(1 + size_t{16} * data[5], encoded.size() / kMostPieces + 1));
  return 0;
}
