// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The parameters of a foreign training loop, in its own memory: any number of
// tensors, whole or in parts, of three types. The outer loop sees fp32 values
// at their places in the model (common/tensors/model_layout.h).
//
// Changes smaller than half a step of a 16-bit value, like many outer steps,
// would be lost. So each 16-bit value has a reference r in fp32: the value last
// written. A value p counts as r + (p - rounded r), which is r until training
// moves p.
#ifndef WORKER_EMBEDDING_LOCAL_TENSORS_H_
#define WORKER_EMBEDDING_LOCAL_TENSORS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "common/tensors/model_layout.h"
#include "outer_optimizer/fragment_plan.h"
#include "worker/embedding/tensor_device.h"

namespace causeway {

enum class ElementType { kFloat32, kBfloat16, kFloat16 };

// A run of one tensor's values, in row-major order.
struct TensorBuffer {
  std::string name;
  // The tensor's extents, if known.
  std::optional<std::vector<int64_t>> shape;
  // The values' indices in the tensor; all if none are given.
  std::optional<Slice> values;
  ElementType type = ElementType::kFloat32;
  void* data = nullptr;
  // Is true if `data` is memory of a CUDA device, which the training loop
  // writes on `stream`, a cudaStream_t.
  bool on_device = false;
  void* stream = nullptr;
};

// Thread-compatible. The buffers' memory outlives the object.
class LocalTensors {
 public:
  // Finds the tensors in the layout. With `whole`, they must cover the model.
  // For anchors_on_device see PartDevice.
  //   INVALID_ARGUMENT     A tensor is not in the layout, has another shape, is
  //                        passed twice or, with `whole`, is missing; or
  //                        tensors are on several devices.
  //   FAILED_PRECONDITION  Tensors are on a device, and the program was built
  //                        without CUDA.
  static absl::StatusOr<LocalTensors> Create(
      const ModelLayout& layout, const std::vector<TensorBuffer>& buffers,
      bool whole, bool anchors_on_device = false);

  // The values that are here, in model order: disjoint, and not empty.
  const std::vector<Slice>& slices() const { return slices_; }

  // The device that has the tensors; null if they are in host memory.
  TensorDevice* device() const { return device_.get(); }
  // Sets the stream on which the training loop writes tensors on a device from
  // now on, instead of the buffers' streams. Thread-safe.
  void SetStream(void* stream);
  // Waits until the training loop's work so far is done. Call before Read or
  // Write.
  absl::Status AwaitTraining() const;

  // Copy the model's values in `slice`, which must all be local. Write also
  // sets the references. Errors are the device's.
  absl::Status Read(const Slice& slice, absl::Span<float> values) const;
  absl::Status Write(const Slice& slice, absl::Span<const float> values);
  // Waits like AwaitTraining, then writes all local values from the whole
  // model's.
  absl::Status WriteAll(absl::Span<const float> model);

  // Returns where the values of `slices` lie, as segments of the memory from
  // memory() on; fragment_offset counts the values of `slices`. None unless all
  // tensors are fp32 and on a device.
  std::optional<std::vector<FragmentMap::Segment>> DeviceSegments(
      absl::Span<const Slice> slices) const;
  // Returns the lowest address of a tensor.
  float* memory() const;

 private:
  struct Buffer {
    // The values' places in the model.
    Slice place;
    ElementType type;
    char* data;
    // For 16-bit types.
    std::vector<float> reference;
  };

  LocalTensors() = default;

  static absl::StatusOr<LocalTensors> Place(
      const ModelLayout& layout, const std::vector<TensorBuffer>& buffers);
  absl::Status FindDevice(const std::vector<TensorBuffer>& buffers,
                          bool anchors_on_device);

  // Calls copy(buffer, first value in it, values) for each buffer with values
  // of `slice`, until a call fails.
  template <typename Buffers, typename Values, typename Copy>
  static absl::Status ForEach(Buffers& buffers, const Slice& slice,
                              Values values, Copy copy);

  std::unique_ptr<TensorDevice> device_;
  // In model order.
  std::vector<Buffer> buffers_;
  std::vector<Slice> slices_;
};

}  // namespace causeway

#endif  // WORKER_EMBEDDING_LOCAL_TENSORS_H_
