// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/testing/golden_models.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "common/tensors/safetensors.h"
#include "google/protobuf/text_format.h"
#include "tests/reference/golden_values.h"

namespace causeway {
namespace {

absl::StatusOr<double> GoldenScalar(const Safetensors& file,
                                    absl::string_view name) {
  ASSIGN_OR_RETURN(const std::vector<double> values, GoldenValues(file, name));
  return values.at(0);
}

absl::StatusOr<GoldenCase> ReadCase(const Safetensors& file,
                                    const std::string& name,
                                    const std::string& config) {
  GoldenCase golden{.name = name};
  if (!google::protobuf::TextFormat::ParseFromString(config, &golden.config)) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", name, " has no valid ModelConfig: ", config));
  }
  ASSIGN_OR_RETURN(const double batch, GoldenScalar(file, name + "/batch"));
  golden.batch = static_cast<int64_t>(batch);
  ASSIGN_OR_RETURN(golden.loss, GoldenScalar(file, name + "/loss"));
  ASSIGN_OR_RETURN(golden.logits, GoldenValues(file, name + "/logits"));
  for (const SafetensorsTensor& tensor : file.tensors) {
    absl::string_view parameter = tensor.name;
    if (!absl::ConsumePrefix(&parameter, name + "/gradient/")) continue;
    GoldenCase::Gradient gradient{.tensor = std::string(parameter)};
    ASSIGN_OR_RETURN(
        gradient.norm,
        GoldenScalar(file, absl::StrCat(name, "/norm/", parameter)));
    ASSIGN_OR_RETURN(const std::vector<double> rows,
                     GoldenValues(file, tensor.name));
    for (size_t i = 0; i + 1 < rows.size(); i += 2) {
      gradient.values[static_cast<int64_t>(rows[i])] = rows[i + 1];
    }
    golden.gradients.push_back(std::move(gradient));
  }
  return golden;
}

}  // namespace

std::vector<int32_t> TokenStream(int64_t size, int64_t vocab_size) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < size; ++i) {
    tokens.push_back(
        static_cast<int32_t>((i * i * 7 + i * 3 + 1) % vocab_size));
  }
  return tokens;
}

Batch::Batch(const v1::ModelConfig& config, int64_t sequences) {
  tokens = TokenStream(sequences * config.sequence_length() + 1,
                       config.vocab_size());
  targets.assign(tokens.begin() + 1, tokens.end());
  tokens.pop_back();
}

absl::StatusOr<std::vector<GoldenCase>> ReadGolden() {
  ASSIGN_OR_RETURN(
      const SafetensorsFile file,
      SafetensorsFile::Open("tests/reference/llama_golden.safetensors"));
  std::vector<GoldenCase> cases;
  for (const auto& [name, config] : file.contents().metadata) {
    ASSIGN_OR_RETURN(cases.emplace_back(),
                     ReadCase(file.contents(), name, config));
  }
  return cases;
}

std::vector<float> GoldenParameters(const ModelLayout& layout) {
  std::vector<float> parameters = InitialParameters(layout, 1);
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.init_stddev != 0) continue;
    for (int64_t i = 0; i < tensor.size; ++i) {
      parameters[tensor.offset + i] += 0.0625f * static_cast<float>(i % 5);
    }
  }
  return parameters;
}

}  // namespace causeway
