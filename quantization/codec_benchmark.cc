// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the codecs against the speed of memory
// (quantization/testing/codec_speed.h), on one thread.
//
//   bazel run //quantization:codec_benchmark
#include <string>

#include "benchmark/benchmark.h"
#include "quantization/testing/codec_speed.h"

namespace causeway {
namespace {

constexpr int kRepetitions = 9;

CodecSpec SpecOf(const benchmark::State& state) {
  return {.format = static_cast<v1::Format>(state.range(0)),
          .block_size = static_cast<uint32_t>(state.range(1)),
          .entropy_coded = state.range(2) != 0};
}

std::string Label(const CodecSpec& spec) {
  return v1::Format_Name(spec.format) +
         (spec.entropy_coded ? " entropy coded" : "");
}

void Report(benchmark::State& state, const CodecSpec& spec,
            const CodecSpeed& speed) {
  const double values = static_cast<double>(speed.values);
  state.SetIterationTime(speed.seconds);
  state.counters["Gvalues_per_s"] = values / speed.seconds / 1e9;
  state.counters["ratio"] = speed.ratio;
  state.counters["bits_per_value"] =
      8.0 * static_cast<double>(speed.encoded_bytes) / values;
  state.SetLabel(Label(spec));
}

void BM_Encode(benchmark::State& state) {
  const CodecSpec spec = SpecOf(state);
  for (auto _ : state) {
    Report(state, spec, MeasureEncode(spec, {}, kRepetitions));
  }
}

void BM_Sum(benchmark::State& state) {
  const CodecSpec spec = SpecOf(state);
  for (auto _ : state) {
    Report(state, spec, MeasureSum(spec, kRepetitions));
  }
}

void Formats(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"format", "block", "entropy"})
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
  for (const v1::Format format : {v1::E3M0, v1::INT8, v1::INT4}) {
    benchmark->Args({format, 256, false});
  }
  benchmark->Args({v1::E3M0, 128, false})->Args({v1::INT8, 128, false});
  benchmark->Args({v1::E3M0, 64, false});
  for (const v1::Format format : {v1::E3M0, v1::INT8, v1::ECQ}) {
    benchmark->Args({format, 256, true});
  }
}

BENCHMARK(BM_Encode)->Apply(Formats);
BENCHMARK(BM_Sum)->Apply(Formats);

}  // namespace
}  // namespace causeway
