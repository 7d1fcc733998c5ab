// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The outer step against the speed of memory.
//
//   bazel run //outer_optimizer:outer_step_benchmark
//
// Bytes moved: each contribution, theta, momentum and residual read once;
// theta, momentum, residual and update written once. Each iteration also times
// a memcpy between buffers as large as theta, and "memcpy_ratio" is bytes moved
// per second by the step's pass over those moved (read and written) by memcpy.
// The buffers are far larger than the caches. "create_share" is the share of
// the whole call that goes into allocating and clearing the results.
#include <chrono>  // NOLINT: for timing in a benchmark.
#include <cstring>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "glog/logging.h"
#include "outer_optimizer/outer_step.h"
#include "quantization/codec.h"

namespace causeway {
namespace {

constexpr size_t kValues = 16 << 20;

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Arguments: contributions, format of contributions and update.
void BM_OuterStep(benchmark::State& state) {
  const int64_t contributions = state.range(0);
  const CodecSpec spec{.format = static_cast<v1::Format>(state.range(1))};
  const OuterStepOptions options = {
      .learning_rate = 0.7f, .momentum = 0.9f, .downlink = spec};
  const FragmentState fragment =
      InitialFragmentState(options, std::vector<float>(kValues, 0.02f));
  const std::string encoded =
      Encode(spec, std::vector<float>(kValues, 1e-3f)).value();
  const std::vector<std::string> copies(contributions, encoded);
  std::vector<MergeInput> inputs;
  for (const std::string& copy : copies) {
    inputs.push_back({spec, copy, 1.0f / static_cast<float>(contributions)});
  }
  std::vector<float> copy_target(kValues, 1.0f);

  double copy_seconds = 0;
  double create_seconds = 0;
  double run_seconds = 0;
  for (auto _ : state) {
    const double start = Seconds();
    std::memcpy(copy_target.data(), fragment.theta.data(), 4 * kValues);
    benchmark::ClobberMemory();
    const double copied = Seconds();
    auto step = OuterStep::Create(options, fragment, inputs);
    CHECK(step.ok()) << step.status();
    const double created = Seconds();
    (*step)->Run(0, (*step)->tiles());
    const double done = Seconds();
    CHECK(std::move(**step).Finish().ok());
    copy_seconds += copied - start;
    create_seconds += created - copied;
    run_seconds += done - created;
    state.SetIterationTime(done - created);
  }
  const double vector_bytes = 4.0 * kValues;
  // theta and momentum, and residual if there is one: in and out.
  const double state_bytes =
      2 * vector_bytes * (fragment.residual.empty() ? 2 : 3);
  const double step_bytes =
      state_bytes + static_cast<double>(encoded.size()) *
                        static_cast<double>(contributions + 1);
  state.counters["GB_per_s"] =
      step_bytes * static_cast<double>(state.iterations()) / run_seconds / 1e9;
  state.counters["memcpy_ratio"] =
      (step_bytes / run_seconds) / (2 * vector_bytes / copy_seconds);
  state.counters["create_share"] =
      create_seconds / (create_seconds + run_seconds);
}
BENCHMARK(BM_OuterStep)
    ->ArgsProduct({{2, 8, 32}, {v1::FP32, v1::BF16}})
    ->ArgNames({"contributions", "format"})
    ->UseManualTime()
    ->Iterations(8)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace causeway
