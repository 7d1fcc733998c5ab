// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/testing/outer_step_speed.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "common/testing/stopwatch.h"
#include "glog/logging.h"
#include "outer_optimizer/outer_step.h"
#include "quantization/codec.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

constexpr size_t kValues = 16 << 20;
constexpr CodecSpec kSpec = {.format = v1::E3M0};

// A page-aligned vector, as the coordinator's mapped files are.
class Vector {
 public:
  Vector() : values_(static_cast<float*>(operator new(kBytes, kAlignment))) {
    std::fill_n(values_, kValues, 0.02f);
  }
  ~Vector() { operator delete(values_, kAlignment); }
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;

  absl::Span<float> span() const { return {values_, kValues}; }

 private:
  static constexpr size_t kBytes = kValues * sizeof(float);
  static constexpr std::align_val_t kAlignment{4096};

  float* const values_;
};

// Returns values as spread out as those of pseudo-gradients.
std::string Contribution(uint32_t seed) {
  std::vector<float> values(kValues);
  for (float& value : values) {
    seed = seed * 1664525 + 1013904223;
    const float uniform =
        static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
    value = 1e-3f * uniform * uniform * uniform;
  }
  return Encode(kSpec, values).value();
}

}  // namespace

OuterStepSpeed MeasureOuterStep(int contributions, int threads,
                                int repetitions) {
  const auto seconds_of = [](absl::FunctionRef<void()> work) {
    const double begin = Seconds();
    work();
    return Seconds() - begin;
  };
  const OuterStepOptions options = {
      .learning_rate = 0.7f, .momentum = 0.9f, .downlink = kSpec};
  std::vector<std::string> encoded;
  std::vector<MergeInput> inputs;
  for (int i = 0; i < contributions; ++i) {
    encoded.push_back(Contribution(static_cast<uint32_t>(i)));
  }
  for (const std::string& contribution : encoded) {
    inputs.push_back(
        {kSpec, contribution, 1.0f / static_cast<float>(contributions)});
  }
  const Vector theta, momentum, residual, copy;
  const Vector new_theta, new_momentum, new_residual;
  std::string update(MaxEncodedBytes(kSpec, kValues), '\0');
  const OuterStateView state = {.theta = theta.span(),
                                .momentum = momentum.span(),
                                .residual = residual.span()};
  const OuterStepOutput output = {.theta = new_theta.span(),
                                  .momentum = new_momentum.span(),
                                  .residual = new_residual.span(),
                                  .update = absl::MakeSpan(update)};
  ThreadPool pool(threads);
  double step_seconds = std::numeric_limits<double>::infinity();
  double copy_seconds = step_seconds;
  for (int i = 0; i < repetitions; ++i) {
    copy_seconds = std::min(copy_seconds, seconds_of([&] {
                              pool.Run([&](int worker) {
                                const Slice slice =
                                    SliceOf(kValues, threads, worker);
                                std::memcpy(copy.span().data() + slice.begin,
                                            theta.span().data() + slice.begin,
                                            slice.size() * sizeof(float));
                              });
                            }));
    step_seconds = std::min(
        step_seconds, seconds_of([&] {
          CHECK(RunOuterStep(options, state, inputs, output, pool).ok());
        }));
  }
  const double vector_bytes = kValues * sizeof(float);
  const double step_bytes =
      6 * vector_bytes +
      static_cast<double>(update.size() *
                          static_cast<size_t>(contributions + 1));
  return {.step_bytes_per_second = step_bytes / step_seconds,
          .memcpy_bytes_per_second = 2 * vector_bytes / copy_seconds};
}

}  // namespace causeway
