// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/tensors/tensors_layout.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/printable.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

constexpr size_t kLongestName = 512;

// Names and shapes are part of the messages to islands and `causeway status`;
// the latter have at most 4 MiB.
constexpr size_t kMostNameBytes = 3 << 20;
// The bytes of a tensor in a message, beside its name.
constexpr size_t kShapeBytes = 16;

// Blocks of the transformers library, GPT-2 and most vision transformers.
constexpr const char* kDefaultBlocks[] = {"layers.#.", "h.#.", "blocks.#."};

absl::Status TensorError(absl::string_view name, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor \"", Printable(name), "\" ", problem));
}

// Returns the shape in a message. Extents that are too large for any tensor
// become kMostParameters + 1.
template <typename Tensor>
std::vector<int64_t> ShapeOf(const Tensor& tensor) {
  std::vector<int64_t> shape;
  for (const uint64_t extent : tensor.shape()) {
    shape.push_back(
        static_cast<int64_t>(std::min<uint64_t>(extent, kMostParameters + 1)));
  }
  return shape;
}

absl::Status Append(const NamedShape& tensor, ModelLayout& layout) {
  TensorSpec spec{.name = tensor.name,
                  .shape = tensor.shape,
                  .size = 1,
                  .offset = layout.size};
  for (const int64_t extent : tensor.shape) {
    if (extent < 1) {
      return TensorError(
          tensor.name,
          absl::StrCat("has the shape [", absl::StrJoin(tensor.shape, ", "),
                       "], which has no values; exclude it"));
    }
    if (extent > kMostParameters / spec.size) {
      return TensorError(
          tensor.name,
          absl::StrCat("has the shape [", absl::StrJoin(tensor.shape, ", "),
                       "]; allowed: up to ", kMostParameters, " values"));
    }
    spec.size *= extent;
  }
  layout.size += spec.size;
  if (layout.size > kMostParameters) {
    return TensorError(
        tensor.name, absl::StrCat("and those before it have ", layout.size,
                                  " values; allowed: up to ", kMostParameters));
  }
  layout.tensors.push_back(std::move(spec));
  return absl::OkStatus();
}

absl::Status CheckName(absl::string_view name) {
  if (name.empty()) {
    return absl::InvalidArgumentError("a tensor has no name");
  }
  if (name.size() > kLongestName) {
    return TensorError(name.substr(0, 40),
                       absl::StrCat("has a name of ", name.size(),
                                    " bytes; allowed: up to ", kLongestName));
  }
  if (Printable(name) != name) {
    return TensorError(name,
                       "has control characters or invalid UTF-8 in its name");
  }
  return absl::OkStatus();
}

// Finds the block of a tensor: "layers.#." matches "model.layers.12.mlp".
class BlockPattern {
 public:
  struct Match {
    // The name up to the number.
    absl::string_view prefix;
    uint64_t index = 0;
  };

  //   INVALID_ARGUMENT  `text` does not have exactly one '#'.
  static absl::StatusOr<BlockPattern> Parse(absl::string_view text) {
    const std::vector<std::string> parts = absl::StrSplit(text, '#');
    if (parts.size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors.block \"", Printable(text),
                       "\" must have one #, which stands for the number of "
                       "the block: \"encoder.layer.#.\""));
    }
    return BlockPattern(parts[0], parts[1]);
  }

  // The match begins where the name, or a part of it after a dot, begins.
  std::optional<Match> Find(absl::string_view name) const {
    for (size_t at = 0; at < name.size(); ++at) {
      if (at > 0 && name[at - 1] != '.') continue;
      if (!absl::StartsWith(name.substr(at), before_)) continue;
      const absl::string_view rest = name.substr(at + before_.size());
      size_t digits = 0;
      while (digits < rest.size() && absl::ascii_isdigit(rest[digits])) {
        ++digits;
      }
      Match match{.prefix = name.substr(0, at + before_.size())};
      if (absl::SimpleAtoi(rest.substr(0, digits), &match.index) &&
          absl::StartsWith(rest.substr(digits), after_)) {
        return match;
      }
    }
    return std::nullopt;
  }

 private:
  BlockPattern(std::string before, std::string after)
      : before_(std::move(before)), after_(std::move(after)) {}

  std::string before_;
  std::string after_;
};

absl::Status FindBlocks(const v1::TensorsConfig& config, ModelLayout& layout) {
  std::vector<std::string> texts(config.block().begin(), config.block().end());
  if (texts.empty()) {
    texts.assign(std::begin(kDefaultBlocks), std::end(kDefaultBlocks));
  }
  std::vector<BlockPattern> patterns;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(BlockPattern pattern, BlockPattern::Parse(text));
    patterns.push_back(std::move(pattern));
  }
  std::vector<bool> matched(patterns.size());
  // The rank of a prefix among the prefixes, in order of appearance.
  std::map<absl::string_view, size_t> prefixes;
  // The tensors of each block, by rank of the prefix and index.
  std::map<std::pair<size_t, uint64_t>, std::vector<TensorSpec*>> blocks;
  for (TensorSpec& tensor : layout.tensors) {
    for (size_t i = 0; i < patterns.size(); ++i) {
      const auto match = patterns[i].Find(tensor.name);
      if (!match.has_value()) continue;
      matched[i] = true;
      const size_t rank =
          prefixes.try_emplace(match->prefix, prefixes.size()).first->second;
      blocks[{rank, match->index}].push_back(&tensor);
      break;
    }
  }
  int number = 0;
  for (const auto& [key, tensors] : blocks) {
    for (TensorSpec* const tensor : tensors) tensor->block = number;
    ++number;
  }
  const auto unmatched = std::find(matched.begin(), matched.end(), false);
  if (config.block().empty() || unmatched == matched.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "tensors.block \"", Printable(texts[unmatched - matched.begin()]),
      "\" matches no tensor, or none that an earlier pattern does not match"));
}

// Checks that each pattern of a field matches one of `names`.
template <typename Patterns, typename Names>
absl::Status CheckMatched(absl::string_view field, const Patterns& patterns,
                          const Names& names) {
  for (const std::string& pattern : patterns) {
    const std::vector<std::string> alone = {pattern};
    const bool matches = std::any_of(
        names.begin(), names.end(),
        [&](const auto& tensor) { return MatchesAny(alone, tensor.name); });
    if (matches) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensors.", field, " \"", Printable(pattern), "\" matches no tensor"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<NamedShape> ListedTensors(const v1::TensorsConfig& config) {
  std::vector<NamedShape> tensors;
  for (const v1::TensorsConfig::Tensor& tensor : config.tensor()) {
    tensors.push_back({.name = tensor.name(), .shape = ShapeOf(tensor)});
  }
  return tensors;
}

absl::StatusOr<ModelLayout> MakeTensorsLayout(
    const v1::TensorsConfig& config, const std::vector<NamedShape>& tensors) {
  RETURN_IF_ERROR(CheckMatched("exclude", config.exclude(), tensors));
  ModelLayout layout{
      .ignored = {config.exclude().begin(), config.exclude().end()}};
  std::set<absl::string_view> names;
  size_t name_bytes = 0;
  for (const NamedShape& tensor : tensors) {
    RETURN_IF_ERROR(CheckName(tensor.name));
    if (!names.insert(tensor.name).second) {
      return TensorError(tensor.name, "is there twice");
    }
    if (MatchesAny(layout.ignored, tensor.name)) continue;
    RETURN_IF_ERROR(Append(tensor, layout));
    name_bytes += tensor.name.size() + kShapeBytes;
  }
  if (layout.tensors.empty()) {
    return absl::InvalidArgumentError("the run has no tensors to exchange");
  }
  if (name_bytes > kMostNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "names and shapes of ", layout.tensors.size(), " tensors take ",
        name_bytes, " bytes; allowed: up to ", kMostNameBytes));
  }
  RETURN_IF_ERROR(
      CheckMatched("mean_only", config.mean_only(), layout.tensors));
  RETURN_IF_ERROR(FindBlocks(config, layout));
  return layout;
}

absl::StatusOr<ModelLayout> RunLayout(const v1::RunConfig& config,
                                      const v1::FragmentPlan& plan) {
  if (!config.has_tensors()) return MakeModelLayout(config.model());
  const auto& exclude = config.tensors().exclude();
  ModelLayout layout{.ignored = {exclude.begin(), exclude.end()}};
  for (const v1::Fragment& fragment : plan.fragments()) {
    for (const v1::TensorPlacement& placement : fragment.tensors()) {
      RETURN_IF_ERROR(Append(
          {.name = placement.name(), .shape = ShapeOf(placement)}, layout));
    }
  }
  return layout;
}

}  // namespace causeway
