// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/initial_values.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/tensors/tensors_layout.h"

namespace causeway {
namespace {

constexpr absl::string_view kEmbedding = "model.embed_tokens.weight";
constexpr absl::string_view kHead = "lm_head.weight";

// The most problems that a message lists.
constexpr size_t kMostProblems = 8;

// The number of values that are converted at once to be checked.
constexpr uint64_t kPiece = 4096;

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", Excerpt(absl::StrJoin(shape, ", ")), "]");
}

absl::Status CheckFinite(const SafetensorsTensor& tensor) {
  const uint64_t size = CountValues(tensor);
  float piece[kPiece];
  for (uint64_t begin = 0; begin < size; begin += kPiece) {
    const uint64_t count = std::min(kPiece, size - begin);
    RETURN_IF_ERROR(
        ReadValues(tensor, begin, {piece, static_cast<size_t>(count)}));
  }
  return absl::OkStatus();
}

// Prefixes an error with the path of the checkpoint.
absl::Status AtPath(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

// Returns the layout of a new run; `files` are its checkpoint's, or null.
absl::StatusOr<ModelLayout> LayoutOf(const v1::RunConfig& config,
                                     const TensorFiles* files) {
  if (!config.has_tensors()) return MakeModelLayout(config.model());
  std::vector<NamedShape> tensors = ListedTensors(config.tensors());
  if (tensors.empty() && files == nullptr) {
    return absl::InvalidArgumentError(
        "the configuration lists no tensors, so they are those of a "
        "checkpoint: name it with --initial_parameters");
  }
  if (tensors.empty()) {
    for (const auto& [name, tensor] : files->tensors()) {
      tensors.push_back({.name = name, .shape = tensor.shape});
    }
  }
  return MakeTensorsLayout(config.tensors(), tensors);
}

}  // namespace

absl::Status CheckTensors(const TensorFiles& files, const ModelLayout& layout) {
  std::vector<std::string> problems;
  std::set<absl::string_view> known;
  const auto& tensors = files.tensors();
  for (const TensorSpec& spec : layout.tensors) {
    known.insert(spec.name);
    const auto found = tensors.find(spec.name);
    if (found == tensors.end()) {
      problems.push_back(absl::StrCat(spec.name, " is missing"));
    } else if (found->second.shape != spec.shape) {
      problems.push_back(absl::StrCat(spec.name, " has the shape ",
                                      ShapeText(found->second.shape),
                                      ", the model ", ShapeText(spec.shape)));
    } else if (!IsReadable(found->second.dtype)) {
      problems.push_back(absl::StrCat(spec.name, " is ", found->second.dtype,
                                      "; can be read: F32, F16, BF16"));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (known.contains(name) || MatchesAny(layout.ignored, name)) continue;
    if (name == kHead) {
      // With tied embeddings the head may be stored as well.
      const auto embedding = tensors.find(std::string(kEmbedding));
      if (embedding != tensors.end() &&
          embedding->second.bytes == tensor.bytes) {
        continue;
      }
    }
    problems.push_back(absl::StrCat("the model has no ", Excerpt(name)));
  }
  if (problems.empty()) return absl::OkStatus();
  const size_t all = problems.size();
  problems.resize(std::min(all, kMostProblems));
  return absl::InvalidArgumentError(
      absl::StrCat("the checkpoint does not fit the run's model: ",
                   absl::StrJoin(problems, "; "),
                   all > kMostProblems
                       ? absl::Substitute("; and $0 more", all - kMostProblems)
                       : ""));
}

absl::StatusOr<ModelLayout> NewRunLayout(const v1::RunConfig& config,
                                         const std::string& checkpoint) {
  if (checkpoint.empty()) return LayoutOf(config, nullptr);
  ASSIGN_OR_RETURN(const TensorFiles files, TensorFiles::Open(checkpoint));
  absl::StatusOr<ModelLayout> layout = LayoutOf(config, &files);
  RETURN_IF_ERROR(AtPath(checkpoint, layout.status()));
  RETURN_IF_ERROR(AtPath(checkpoint, CheckTensors(files, *layout)));
  return layout;
}

InitialValues InitialValues::FromSeed(ModelLayout layout, uint64_t seed) {
  InitialValues values(std::move(layout));
  values.seed_ = seed;
  return values;
}

absl::StatusOr<InitialValues> InitialValues::FromCheckpoint(
    const std::string& path, ModelLayout layout) {
  InitialValues values(std::move(layout));
  ASSIGN_OR_RETURN(TensorFiles files, TensorFiles::Open(path));
  absl::Status sound = CheckTensors(files, values.layout_);
  for (const TensorSpec& spec : values.layout_.tensors) {
    if (sound.ok()) sound = CheckFinite(files.tensors().at(spec.name));
  }
  RETURN_IF_ERROR(AtPath(path, sound));
  values.files_ = std::make_shared<const TensorFiles>(std::move(files));
  return values;
}

absl::Status InitialValues::Read(const v1::Fragment& fragment, uint64_t begin,
                                 absl::Span<float> values) const {
  std::map<absl::string_view, const TensorSpec*> specs;
  for (const TensorSpec& spec : layout_.tensors) specs[spec.name] = &spec;
  const uint64_t end = begin + values.size();
  for (const v1::TensorPlacement& placement : fragment.tensors()) {
    const auto spec = specs.find(placement.name());
    if (spec == specs.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model has no tensor \"", placement.name(), "\""));
    }
    const auto size = static_cast<uint64_t>(spec->second->size);
    const uint64_t from = std::max(begin, placement.offset());
    const uint64_t to = std::min(end, placement.offset() + size);
    if (from >= to) continue;
    const absl::Span<float> part = values.subspan(from - begin, to - from);
    const uint64_t index = from - placement.offset();
    if (files_ == nullptr) {
      InitializeTensor(*spec->second, seed_, index, part);
    } else {
      RETURN_IF_ERROR(
          ReadValues(files_->tensors().at(placement.name()), index, part));
    }
  }
  return absl::OkStatus();
}

}  // namespace causeway
