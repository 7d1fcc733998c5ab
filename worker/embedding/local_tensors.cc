// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/local_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/tensors/half_precision.h"
#include "worker/replica/device/device_queue.h"

namespace causeway {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<const TensorSpec*> Find(
    const std::map<std::string, const TensorSpec*>& tensors,
    const TensorBuffer& buffer) {
  const std::string name = Printable(buffer.name);
  const auto found = tensors.find(buffer.name);
  if (found == tensors.end()) {
    return absl::InvalidArgumentError(absl::Substitute(
        "tensor \"$0\" is not one of the run's $1 tensors; pass only those "
        "that the run exchanges",
        name, tensors.size()));
  }
  const TensorSpec& tensor = *found->second;
  if (buffer.shape.has_value() && *buffer.shape != tensor.shape) {
    return absl::InvalidArgumentError(absl::Substitute(
        "tensor \"$0\" has the shape $1 here, but $2 in the run", name,
        ShapeText(*buffer.shape), ShapeText(tensor.shape)));
  }
  const Slice values = buffer.values.value_or(Slice{0, tensor.size});
  if (values.begin < 0 || values.begin > values.end ||
      values.end > tensor.size) {
    return absl::InvalidArgumentError(absl::Substitute(
        "the values $1 to $2 of tensor \"$0\" are passed, but it has $3", name,
        values.begin, values.end, tensor.size));
  }
  if (buffer.data == nullptr && values.size() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"", name, "\" has no memory"));
  }
  return &tensor;
}

// Returns the first tensor with a value outside `covered`, which is in model
// order; null if there is none.
const TensorSpec* FirstMissing(const ModelLayout& layout,
                               absl::Span<const Slice> covered) {
  int64_t end = 0;
  for (const Slice& slice : covered) {
    if (slice.begin > end) break;
    end = slice.end;
  }
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.offset + tensor.size > end) return &tensor;
  }
  return nullptr;
}

template <typename FromBits>
void ReadHalves(const char* data, const float* reference, FromBits from_bits,
                uint16_t (*to_bits)(float), absl::Span<float> values) {
  const auto* const bits = reinterpret_cast<const uint16_t*>(data);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] =
        reference[i] + (from_bits(bits[i]) - from_bits(to_bits(reference[i])));
  }
}

void WriteHalves(absl::Span<const float> values, uint16_t (*to_bits)(float),
                 char* data) {
  auto* const bits = reinterpret_cast<uint16_t*>(data);
  for (size_t i = 0; i < values.size(); ++i) bits[i] = to_bits(values[i]);
}

// Like ToF16, but turns values that are too large into infinities.
uint16_t ToF16OrInfinity(float value) {
  if (std::fabs(value) < kTooLargeForF16) return ToF16(value);
  return std::signbit(value) ? 0xfc00 : 0x7c00;
}

size_t BytesOf(ElementType type) {
  return type == ElementType::kFloat32 ? sizeof(float) : sizeof(uint16_t);
}

// Both convert values in host memory; only 16-bit types use `reference`.
void ReadHost(ElementType type, const char* data, const float* reference,
              absl::Span<float> values) {
  switch (type) {
    case ElementType::kFloat32:
      std::memcpy(values.data(), data, values.size() * sizeof(float));
      break;
    case ElementType::kBfloat16:
      ReadHalves(data, reference, FromBf16, ToBf16, values);
      break;
    case ElementType::kFloat16:
      ReadHalves(data, reference, FromF16, ToF16OrInfinity, values);
      break;
  }
}
void WriteHost(ElementType type, absl::Span<const float> values, char* data) {
  switch (type) {
    case ElementType::kFloat32:
      std::memcpy(data, values.data(), values.size() * sizeof(float));
      break;
    case ElementType::kBfloat16:
      WriteHalves(values, ToBf16, data);
      break;
    case ElementType::kFloat16:
      WriteHalves(values, ToF16OrInfinity, data);
      break;
  }
}

}  // namespace

absl::StatusOr<LocalTensors> LocalTensors::Create(
    const ModelLayout& layout, const std::vector<TensorBuffer>& buffers,
    bool whole, bool anchors_on_device) {
  ASSIGN_OR_RETURN(LocalTensors local, Place(layout, buffers));
  const TensorSpec* const missing =
      whole ? FirstMissing(layout, local.slices_) : nullptr;
  if (missing != nullptr) {
    return absl::InvalidArgumentError(absl::Substitute(
        "tensor \"$0\" of the run, with the shape $1, is missing here",
        Printable(missing->name), ShapeText(missing->shape)));
  }
  RETURN_IF_ERROR(local.FindDevice(buffers, anchors_on_device));
  for (Buffer& buffer : local.buffers_) {
    if (buffer.type == ElementType::kFloat32) continue;
    buffer.reference.resize(static_cast<size_t>(buffer.place.size()));
  }
  return local;
}

absl::StatusOr<LocalTensors> LocalTensors::Place(
    const ModelLayout& layout, const std::vector<TensorBuffer>& buffers) {
  std::map<std::string, const TensorSpec*> tensors;
  for (const TensorSpec& tensor : layout.tensors) {
    tensors[tensor.name] = &tensor;
  }
  LocalTensors local;
  for (const TensorBuffer& buffer : buffers) {
    ASSIGN_OR_RETURN(const TensorSpec* tensor, Find(tensors, buffer));
    const Slice values = buffer.values.value_or(Slice{0, tensor->size});
    if (values.size() == 0) continue;
    Buffer& added = local.buffers_.emplace_back();
    added.place = {tensor->offset + values.begin, tensor->offset + values.end};
    added.type = buffer.type;
    added.data = static_cast<char*>(buffer.data);
  }
  std::sort(local.buffers_.begin(), local.buffers_.end(),
            [](const Buffer& a, const Buffer& b) {
              return a.place.begin < b.place.begin;
            });
  for (const Buffer& buffer : local.buffers_) {
    const int64_t end = local.slices_.empty() ? -1 : local.slices_.back().end;
    if (buffer.place.begin < end) {
      const auto tensor = std::find_if(
          layout.tensors.begin(), layout.tensors.end(), [&](const auto& spec) {
            return buffer.place.begin < spec.offset + spec.size;
          });
      return absl::InvalidArgumentError(absl::StrCat("values of tensor \"",
                                                     Printable(tensor->name),
                                                     "\" are passed twice"));
    }
    if (buffer.place.begin == end) {
      local.slices_.back().end = buffer.place.end;
    } else {
      local.slices_.push_back(buffer.place);
    }
  }
  return local;
}

absl::Status LocalTensors::FindDevice(const std::vector<TensorBuffer>& buffers,
                                      bool anchors_on_device) {
  const TensorBuffer* first = nullptr;
  std::set<void*> streams;
  for (const TensorBuffer& buffer : buffers) {
    if (buffer.data == nullptr) continue;
    if (first == nullptr) first = &buffer;
    streams.insert(buffer.stream);
    const bool is_like_first = buffer.on_device == first->on_device;
    int device = 0;
    if (buffer.on_device) {
      ASSIGN_OR_RETURN(device, DeviceOfMemory(buffer.data));
      if (device_ == nullptr && is_like_first) {
        ASSIGN_OR_RETURN(device_,
                         TensorDevice::Create(device, anchors_on_device));
      }
    }
    if (!is_like_first || (device_ != nullptr && device_->number() != device)) {
      return absl::InvalidArgumentError(absl::Substitute(
          "tensors \"$0\" and \"$1\" are on different devices; those of a "
          "rank must be on one",
          Printable(first->name), Printable(buffer.name)));
    }
  }
  if (device_ != nullptr) device_->SetStreams(std::move(streams));
  return absl::OkStatus();
}

void LocalTensors::SetStream(void* stream) {
  if (device_ != nullptr) device_->SetStreams({stream});
}

absl::Status LocalTensors::AwaitTraining() const {
  return device_ == nullptr ? absl::OkStatus() : device_->AwaitStreams();
}

template <typename Buffers, typename Values, typename Copy>
absl::Status LocalTensors::ForEach(Buffers& buffers, const Slice& slice,
                                   Values values, Copy copy) {
  auto buffer = std::upper_bound(buffers.begin(), buffers.end(), slice.begin,
                                 [](int64_t value, const Buffer& candidate) {
                                   return value < candidate.place.end;
                                 });
  for (; buffer != buffers.end() && buffer->place.begin < slice.end; ++buffer) {
    const int64_t begin = std::max(slice.begin, buffer->place.begin);
    const int64_t end = std::min(slice.end, buffer->place.end);
    RETURN_IF_ERROR(
        copy(*buffer, static_cast<size_t>(begin - buffer->place.begin),
             values.subspan(static_cast<size_t>(begin - slice.begin),
                            static_cast<size_t>(end - begin))));
  }
  return absl::OkStatus();
}

absl::Status LocalTensors::Read(const Slice& slice,
                                absl::Span<float> values) const {
  return ForEach(
      buffers_, slice, values,
      [this](const Buffer& from, size_t first, absl::Span<float> part) {
        const size_t bytes = BytesOf(from.type);
        const char* const data = from.data + first * bytes;
        const float* const reference =
            from.reference.empty() ? nullptr : from.reference.data() + first;
        if (device_ == nullptr) {
          ReadHost(from.type, data, reference, part);
          return absl::OkStatus();
        }
        return device_->Read(
            data, part.size() * bytes,
            [&](const char* piece, size_t at, size_t size) {
              ReadHost(from.type, piece,
                       reference == nullptr ? nullptr : reference + at / bytes,
                       part.subspan(at / bytes, size / bytes));
            });
      });
}

absl::Status LocalTensors::Write(const Slice& slice,
                                 absl::Span<const float> values) {
  return ForEach(
      buffers_, slice, values,
      [this](Buffer& to, size_t first, absl::Span<const float> part) {
        const size_t bytes = BytesOf(to.type);
        char* const data = to.data + first * bytes;
        if (!to.reference.empty()) {
          std::copy(part.begin(), part.end(), to.reference.begin() + first);
        }
        if (device_ == nullptr) {
          WriteHost(to.type, part, data);
          return absl::OkStatus();
        }
        return device_->Write(
            [&](char* piece, size_t at, size_t size) {
              WriteHost(to.type, part.subspan(at / bytes, size / bytes), piece);
            },
            part.size() * bytes, data);
      });
}

absl::Status LocalTensors::WriteAll(absl::Span<const float> model) {
  RETURN_IF_ERROR(AwaitTraining());
  for (const Slice& slice : slices_) {
    RETURN_IF_ERROR(Write(slice, model.subspan(slice.begin, slice.size())));
  }
  return absl::OkStatus();
}

float* LocalTensors::memory() const {
  char* lowest = nullptr;
  for (const Buffer& buffer : buffers_) {
    if (lowest == nullptr || buffer.data < lowest) lowest = buffer.data;
  }
  return reinterpret_cast<float*>(lowest);
}

std::optional<std::vector<FragmentMap::Segment>> LocalTensors::DeviceSegments(
    absl::Span<const Slice> slices) const {
  if (device_ == nullptr) return std::nullopt;
  const char* const lowest = reinterpret_cast<char*>(memory());
  std::vector<FragmentMap::Segment> segments;
  uint64_t at = 0;
  for (const Slice& slice : slices) {
    for (const Buffer& buffer : buffers_) {
      if (buffer.type != ElementType::kFloat32) return std::nullopt;
      const int64_t begin = std::max(slice.begin, buffer.place.begin);
      const int64_t end = std::min(slice.end, buffer.place.end);
      if (begin >= end) continue;
      const auto tensor = static_cast<uint64_t>(buffer.data - lowest);
      segments.push_back(
          {.model_offset = tensor / sizeof(float) +
                           static_cast<uint64_t>(begin - buffer.place.begin),
           .fragment_offset = at,
           .size = static_cast<uint64_t>(end - begin)});
      at += segments.back().size;
    }
  }
  return segments;
}

}  // namespace causeway
