// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/cuda/ops_emulated.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "glog/logging.h"
#include "worker/model/cuda/kernel_ops.h"

namespace causeway {
namespace {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, FreeMemory>;

class EmulatedOps final : public KernelOps {
 public:
  absl::StatusOr<void*> Allocate(size_t bytes) override {
    CountAllocation();
    const size_t rounded = (bytes + 255) / 256 * 256 + 256;
    void* const memory = std::aligned_alloc(256, rounded);
    CHECK(memory != nullptr);
    std::memset(memory, 0, rounded);
    return memory;
  }
  void Free(void* memory, size_t /*bytes*/) override {
    recordings_.clear();
    std::free(memory);
  }
  void CopyToDevice(const void* host, size_t bytes, void* device) override {
    CHECK(recording_ == nullptr) << "a copy from the host is not recorded";
    std::memcpy(device, host, bytes);
  }
  void CopyToHost(const void* device, size_t bytes, void* host) override {
    CHECK(recording_ == nullptr) << "a copy to the host is not recorded";
    CountWait();
    std::memcpy(host, device, bytes);
  }
  absl::Status Synchronize() override {
    CHECK(recording_ == nullptr) << "waiting is not recorded";
    CountWait();
    return absl::OkStatus();
  }
  void CopyActivationsToHost(const void* from, int64_t size,
                             float* host) override {
    CHECK(recording_ == nullptr) << "a copy to the host is not recorded";
    CountWait();
    std::transform(AsBf16(from), AsBf16(from) + size, host, FromBf16);
  }
  void Copy(const float* from, int64_t size, float* to) override {
    Do([=] { std::copy_n(from, size, to); });
  }
  void Zero(int64_t size, float* values) override {
    Do([=] { std::fill_n(values, size, 0.0f); });
  }

  // As a CUDA graph: noted the second time, and done from the notes.
  void Replay(const ReplayKey& key,
              absl::FunctionRef<void()> operations) override {
    const auto [found, is_first] = recordings_.try_emplace(key);
    if (is_first) return operations();
    Recording& recording = found->second;
    if (recording.steps.empty()) {
      recording_ = &recording;
      operations();
      recording_ = nullptr;
    }
    for (const std::function<void()>& step : recording.steps) step();
  }

 protected:
  DeviceStream stream() const override {
    return {recording_ == nullptr ? nullptr : &recording_->steps};
  }
  bool ok() const override { return true; }
  void Record(LaunchError, const char*) override {}
  void* Scratch(size_t bytes) override {
    CountScratch(bytes);
    // New memory each time: nobody may rely on what was there.
    Memory memory(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    std::memset(memory.get(), 0xff, bytes);
    if (recording_ != nullptr) {
      return recording_->scratch.emplace_back(std::move(memory)).get();
    }
    scratch_ = std::move(memory);
    return scratch_.get();
  }
  void Multiply(const MatrixProduct& product, const Bf16* a, const Bf16* b,
                void* c) override {
    Do([=] { MultiplyNow(product, a, b, c); });
  }

 private:
  struct Recording {
    std::vector<std::function<void()>> steps;
    std::vector<Memory> scratch;
  };

  template <typename Step>
  void Do(const Step& step) {
    if (recording_ == nullptr) return step();
    recording_->steps.push_back(step);
  }

  static void MultiplyNow(const MatrixProduct& product, const Bf16* a,
                          const Bf16* b, void* c) {
    for (int64_t row = 0; row < product.rows; ++row) {
      for (int64_t column = 0; column < product.columns; ++column) {
        float sum = 0;
        for (int64_t k = 0; k < product.inner; ++k) {
          sum +=
              FromBf16(a[product.transpose_a ? k * product.rows + row
                                             : row * product.inner + k]) *
              FromBf16(b[product.transpose_b ? column * product.inner + k
                                             : k * product.columns + column]);
        }
        const int64_t at = row * product.columns + column;
        if (product.fp32_result) {
          float& value = static_cast<float*>(c)[at];
          value = product.accumulate ? value + sum : sum;
        } else {
          Bf16& value = AsBf16(c)[at];
          value = ToBf16(product.accumulate ? FromBf16(value) + sum : sum);
        }
      }
    }
  }

  Memory scratch_;
  std::map<ReplayKey, Recording> recordings_;
  // The one that is being made.
  Recording* recording_ = nullptr;
};

}  // namespace

std::unique_ptr<Ops> MakeEmulatedOps() {
  return std::make_unique<EmulatedOps>();
}

}  // namespace causeway
