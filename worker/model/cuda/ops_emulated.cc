// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/cuda/ops_emulated.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "glog/logging.h"
#include "worker/model/cuda/kernel_ops.h"

namespace causeway {
namespace {

class EmulatedOps final : public KernelOps {
 public:
  ~EmulatedOps() override { std::free(scratch_); }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    const size_t rounded = (bytes + 255) / 256 * 256 + 256;
    void* const memory = std::aligned_alloc(256, rounded);
    CHECK(memory != nullptr);
    std::memset(memory, 0, rounded);
    return memory;
  }
  void Free(void* memory, size_t /*bytes*/) override { std::free(memory); }
  void CopyToDevice(const void* host, size_t bytes, void* device) override {
    std::memcpy(device, host, bytes);
  }
  void CopyToHost(const void* device, size_t bytes, void* host) override {
    std::memcpy(host, device, bytes);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  void CopyActivationsToHost(const void* from, int64_t size,
                             float* host) override {
    std::transform(AsBf16(from), AsBf16(from) + size, host, FromBf16);
  }
  void Copy(const float* from, int64_t size, float* to) override {
    std::copy_n(from, size, to);
  }
  void Zero(int64_t size, float* values) override {
    std::fill_n(values, size, 0.0f);
  }

 protected:
  DeviceStream stream() const override { return {}; }
  bool ok() const override { return true; }
  void Record(LaunchError, const char*) override {}
  void* Scratch(size_t bytes) override {
    std::free(scratch_);
    // New memory each time: nobody may rely on what was there.
    scratch_ = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(scratch_, 0xff, bytes);
    return scratch_;
  }
  void Multiply(const MatrixProduct& product, const Bf16* a, const Bf16* b,
                void* c) override {
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
        if (product.accumulate) {
          static_cast<float*>(c)[at] += sum;
        } else {
          AsBf16(c)[at] = ToBf16(sum);
        }
      }
    }
  }

 private:
  void* scratch_ = nullptr;
};

}  // namespace

std::unique_ptr<Ops> MakeEmulatedOps() {
  return std::make_unique<EmulatedOps>();
}

}  // namespace causeway
