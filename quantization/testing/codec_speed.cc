// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/testing/codec_speed.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/testing/stopwatch.h"
#include "quantization/testing/memory_sweep.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

// 256 MiB of values.
constexpr size_t kValues = 64 << 20;

class Shortest {
 public:
  template <typename Function>
  void Time(const Function& function) {
    const double start = Seconds();
    function();
    benchmark::ClobberMemory();
    seconds_ = std::min(seconds_, Seconds() - start);
  }
  double seconds() const { return seconds_; }

 private:
  double seconds_ = std::numeric_limits<double>::infinity();
};

const std::vector<float>& GaussianValues() {
  static const std::vector<float>* const values = [] {
    // The values come from a table of normal numbers, read from changing
    // places.
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3e-4f);
    std::vector<float> table(1 << 16);
    for (float& value : table) value = normal(random);
    auto* const made = new std::vector<float>(kValues);
    for (size_t i = 0; i < kValues; i += 64) {
      std::copy_n(table.data() + random() % (table.size() - 64), 64,
                  made->data() + i);
    }
    return made;
  }();
  return *values;
}

}  // namespace

CodecSpeed MeasureEncode(const CodecSpec& spec, const EncodeOptions& options,
                         int repetitions) {
  const std::vector<float>& values = GaussianValues();
  std::string buffer(MaxEncodedBytes(spec, kValues), 'x');
  Shortest sweep;
  Shortest encode;
  CodecSpeed speed = {.values = kValues};
  for (int i = 0; i < repetitions; ++i) {
    sweep.Time([&] {
      benchmark::DoNotOptimize(LargestMagnitude(values.data(), kValues));
    });
    const auto encoder =
        NewEncoder(spec, options, kValues, absl::MakeSpan(buffer));
    encode.Time([&] { encoder->Encode(0, values, {}); });
    speed.encoded_bytes = encoder->Finish();
  }
  speed.seconds = encode.seconds();
  speed.reference_seconds = sweep.seconds();
  speed.ratio = speed.reference_seconds / speed.seconds;
  return speed;
}

CodecSpeed MeasureSum(const CodecSpec& spec, int repetitions) {
  const std::string encoded = Encode(spec, GaussianValues()).value();
  const std::unique_ptr<Decoder> decoders[] = {
      OpenDecoder(spec, encoded, kValues).value()};
  SumCursor cursor(decoders);
  std::vector<float> sum(kValues, 1.0f);
  std::vector<float> copy(kValues, 1.0f);
  Shortest copying;
  Shortest summing;
  for (int i = 0; i < repetitions; ++i) {
    copying.Time([&] {
      std::memcpy(copy.data(), GaussianValues().data(), 4 * kValues);
      benchmark::DoNotOptimize(copy.data());
      benchmark::ClobberMemory();
    });
    summing.Time([&] { cursor.Sum(0, {0.5f}, absl::MakeSpan(sum)); });
  }
  const double moved = 4.0 * kValues + static_cast<double>(encoded.size());
  return {.values = kValues,
          .encoded_bytes = encoded.size(),
          .seconds = summing.seconds(),
          .reference_seconds = copying.seconds(),
          .ratio = (moved / summing.seconds()) /
                   (8.0 * kValues / copying.seconds())};
}

}  // namespace causeway
