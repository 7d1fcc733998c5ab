// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/local_tensors.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "common/half_precision.h"
#include "common/printable.h"
#include "common/status_macros.h"

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

// Returns the first tensor of which `covered`, in model order, lacks a value;
// null if there is none.
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

// Like ToF16, but values that are too large become infinities.
uint16_t ToF16OrInfinity(float value) {
  if (std::fabs(value) < kTooLargeForF16) return ToF16(value);
  return std::signbit(value) ? 0xfc00 : 0x7c00;
}

}  // namespace

absl::StatusOr<LocalTensors> LocalTensors::Create(
    const ModelLayout& layout, const std::vector<TensorBuffer>& buffers,
    bool whole) {
  std::map<std::string, const TensorSpec*> tensors;
  for (const TensorSpec& tensor : layout.tensors)
    tensors[tensor.name] = &tensor;
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
    if (!local.slices_.empty() &&
        buffer.place.begin < local.slices_.back().end) {
      const auto tensor = std::find_if(
          layout.tensors.begin(), layout.tensors.end(), [&](const auto& spec) {
            return buffer.place.begin < spec.offset + spec.size;
          });
      return absl::InvalidArgumentError(absl::StrCat("values of tensor \"",
                                                     Printable(tensor->name),
                                                     "\" are passed twice"));
    }
    if (!local.slices_.empty() &&
        buffer.place.begin == local.slices_.back().end) {
      local.slices_.back().end = buffer.place.end;
    } else {
      local.slices_.push_back(buffer.place);
    }
  }
  const TensorSpec* const missing =
      whole ? FirstMissing(layout, local.slices_) : nullptr;
  if (missing != nullptr) {
    return absl::InvalidArgumentError(absl::Substitute(
        "tensor \"$0\" of the run, with the shape $1, is missing here",
        Printable(missing->name), ShapeText(missing->shape)));
  }
  for (Buffer& buffer : local.buffers_) {
    if (buffer.type == ElementType::kFloat32) continue;
    buffer.reference.resize(static_cast<size_t>(buffer.place.size()));
  }
  return local;
}

template <typename Buffers, typename Values, typename Copy>
void LocalTensors::ForEach(Buffers& buffers, const Slice& slice, Values values,
                           Copy copy) {
  auto buffer = std::upper_bound(buffers.begin(), buffers.end(), slice.begin,
                                 [](int64_t value, const Buffer& candidate) {
                                   return value < candidate.place.end;
                                 });
  for (; buffer != buffers.end() && buffer->place.begin < slice.end; ++buffer) {
    const int64_t begin = std::max(slice.begin, buffer->place.begin);
    const int64_t end = std::min(slice.end, buffer->place.end);
    copy(*buffer, static_cast<size_t>(begin - buffer->place.begin),
         values.subspan(static_cast<size_t>(begin - slice.begin),
                        static_cast<size_t>(end - begin)));
  }
}

void LocalTensors::Read(const Slice& slice, absl::Span<float> values) const {
  ForEach(buffers_, slice, values,
          [](const Buffer& from, size_t first, absl::Span<float> part) {
            if (from.type == ElementType::kFloat32) {
              const auto* data = reinterpret_cast<const float*>(from.data);
              std::copy_n(data + first, part.size(), part.data());
              return;
            }
            const char* const data = from.data + first * sizeof(uint16_t);
            const float* const reference = from.reference.data() + first;
            if (from.type == ElementType::kBfloat16) {
              ReadHalves(data, reference, FromBf16, ToBf16, part);
            } else {
              ReadHalves(data, reference, FromF16, ToF16OrInfinity, part);
            }
          });
}

void LocalTensors::Write(const Slice& slice, absl::Span<const float> values) {
  ForEach(buffers_, slice, values,
          [](Buffer& to, size_t first, absl::Span<const float> part) {
            if (to.type == ElementType::kFloat32) {
              std::copy_n(part.data(), part.size(),
                          reinterpret_cast<float*>(to.data) + first);
              return;
            }
            std::copy(part.begin(), part.end(), to.reference.begin() + first);
            WriteHalves(
                part,
                to.type == ElementType::kBfloat16 ? ToBf16 : ToF16OrInfinity,
                to.data + first * sizeof(uint16_t));
          });
}

}  // namespace causeway
