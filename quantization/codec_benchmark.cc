// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The codecs against the speed of memory, on one thread.
//
//   bazel run //quantization:codec_benchmark
//
// Buffers are far larger than the caches, and everything has been touched
// before. Each iteration times the codec and, right beside it, what it is
// measured by; the ratios are of the shortest times of each, since a shared
// machine only ever adds to them:
//
//   sweep_ratio   encode: time of a read-only sweep (the largest magnitude)
//                 over the same values / time of the encode. 1 is as fast as
//                 reading alone can be.
//   memcpy_ratio  decode-accumulate: bytes moved per second (encoding and
//                 accumulator read, accumulator written) / bytes moved per
//                 second by memcpy (read and written).
#include <algorithm>
#include <chrono>  // NOLINT: for timing in a benchmark.
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "quantization/codec.h"
#include "quantization/sweep.h"

namespace causeway {
namespace {

// 256 MiB of values.
constexpr size_t kValues = 64 << 20;

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The shortest of what was timed.
class Shortest {
 public:
  template <typename Function>
  double Time(const Function& function) {
    const double start = Seconds();
    function();
    benchmark::ClobberMemory();
    const double seconds = Seconds() - start;
    seconds_ = std::min(seconds_, seconds);
    return seconds;
  }
  double seconds() const { return seconds_; }

 private:
  double seconds_ = std::numeric_limits<double>::infinity();
};

const std::vector<float>& GaussianValues() {
  static const std::vector<float>* const values = [] {
    // A table of normal numbers, read from changing places.
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

CodecSpec SpecOf(const benchmark::State& state) {
  return {.format = static_cast<v1::Format>(state.range(0)),
          .block_size = static_cast<uint32_t>(state.range(1)),
          .entropy_coded = state.range(2) != 0};
}

std::string Label(const CodecSpec& spec) {
  return v1::Format_Name(spec.format) +
         (spec.entropy_coded ? " entropy coded" : "");
}

void Encode(benchmark::State& state, const EncodeOptions& options) {
  const CodecSpec spec = SpecOf(state);
  const std::vector<float>& values = GaussianValues();
  std::string buffer(MaxEncodedBytes(spec, kValues), 'x');
  Shortest sweep;
  Shortest encode;
  for (auto _ : state) {
    sweep.Time([&] {
      benchmark::DoNotOptimize(LargestMagnitude(values.data(), kValues));
    });
    const auto encoder =
        NewEncoder(spec, options, kValues, absl::MakeSpan(buffer));
    state.SetIterationTime(
        encode.Time([&] { encoder->Encode(0, values, {}); }));
  }
  state.counters["Gvalues_per_s"] = kValues / encode.seconds() / 1e9;
  state.counters["sweep_Gvalues_per_s"] = kValues / sweep.seconds() / 1e9;
  state.counters["sweep_ratio"] = sweep.seconds() / encode.seconds();
  state.SetLabel(Label(spec));
}

void BM_Encode(benchmark::State& state) { Encode(state, {}); }

void BM_EncodeStochastically(benchmark::State& state) {
  Encode(state, {.rounding = Rounding::kStochastic, .seed = 1});
}

void BM_DecodeAccumulate(benchmark::State& state) {
  const CodecSpec spec = SpecOf(state);
  const std::string encoded = Encode(spec, GaussianValues()).value();
  const auto decoder = OpenDecoder(spec, encoded, kValues).value();
  const auto cursor = decoder->NewCursor();
  std::vector<float> accumulator(kValues, 1.0f);
  std::vector<float> copy(kValues, 1.0f);
  Shortest copying;
  Shortest decoding;
  for (auto _ : state) {
    copying.Time([&] {
      std::memcpy(copy.data(), GaussianValues().data(), 4 * kValues);
    });
    state.SetIterationTime(decoding.Time([&] {
      cursor->DecodeAccumulate(0, 0.5f, absl::MakeSpan(accumulator));
    }));
  }
  const double moved = 8.0 * kValues + static_cast<double>(encoded.size());
  state.counters["Gvalues_per_s"] = kValues / decoding.seconds() / 1e9;
  state.counters["memcpy_GB_per_s"] = 8.0 * kValues / copying.seconds() / 1e9;
  state.counters["memcpy_ratio"] =
      (moved / decoding.seconds()) / (8.0 * kValues / copying.seconds());
  state.counters["bits_per_value"] =
      8.0 * static_cast<double>(encoded.size()) / kValues;
  state.SetLabel(Label(spec));
}

void Common(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"format", "block", "entropy"})
      ->UseManualTime()
      ->Iterations(9)
      ->Unit(benchmark::kMillisecond);
}

void FixedRate(benchmark::internal::Benchmark* benchmark) {
  for (const v1::Format format : {v1::E3M0, v1::INT8, v1::INT4, v1::NF4,
                                  v1::E2M1, v1::FP8_E4M3, v1::INT2}) {
    benchmark->Args({format, 256, false});
  }
  Common(benchmark);
}

void Formats(benchmark::internal::Benchmark* benchmark) {
  FixedRate(benchmark);
  benchmark->Args({v1::E3M0, 128, false})->Args({v1::INT8, 128, false});
  benchmark->Args({v1::E3M0, 64, false});
  for (const v1::Format format : {v1::E3M0, v1::INT8, v1::ECQ}) {
    benchmark->Args({format, 256, true});
  }
}

BENCHMARK(BM_Encode)->Apply(Formats);
BENCHMARK(BM_EncodeStochastically)->Apply(FixedRate);
BENCHMARK(BM_DecodeAccumulate)->Apply(Formats);

}  // namespace
}  // namespace causeway
