// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Owns an array in the memory of an Ops object.
#ifndef WORKER_MODEL_DEVICE_ARRAY_H_
#define WORKER_MODEL_DEVICE_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "common/status_macros.h"
#include "worker/model/ops.h"

namespace causeway {

// Move-only. A default-constructed or moved-from array is empty.
template <typename T>
class DeviceArray {
 public:
  // Returns an array of `size` zero values. `ops` must outlive the array.
  //   RESOURCE_EXHAUSTED  there is not enough memory.
  static absl::StatusOr<DeviceArray> Create(Ops* ops, int64_t size) {
    ASSIGN_OR_RETURN(void* memory,
                     ops->Allocate(static_cast<size_t>(size) * sizeof(T)));
    return DeviceArray(ops, static_cast<T*>(memory), size);
  }

  DeviceArray() = default;
  DeviceArray(DeviceArray&& other) noexcept { *this = std::move(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(ops_, other.ops_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceArray() {
    if (data_ != nullptr) ops_->Free(data_, size_bytes());
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  size_t size_bytes() const { return static_cast<size_t>(size_) * sizeof(T); }

 private:
  DeviceArray(Ops* ops, T* data, int64_t size)
      : ops_(ops), data_(data), size_(size) {}

  Ops* ops_ = nullptr;
  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace causeway

#endif  // WORKER_MODEL_DEVICE_ARRAY_H_
