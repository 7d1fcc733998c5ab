// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/testing/golden_models.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

// Sets a field of ModelConfig, or what has no field of its own there.
void SetConfig(const std::string& key, const std::string& value,
               GoldenCase& golden) {
  v1::ModelConfig& config = golden.config;
  if (key == "rope_factor") {
    config.mutable_rope_scaling()->set_factor(std::stod(value));
  } else if (key == "rope_original_length") {
    config.mutable_rope_scaling()->set_original_length(
        static_cast<uint32_t>(std::stoul(value)));
  } else if (key == "batch") {
    golden.batch = std::stol(value);
  } else {
    EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(
        absl::StrCat(key, ": ", value), &config));
  }
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

std::vector<GoldenCase> ReadGolden() {
  std::vector<GoldenCase> cases;
  std::ifstream file("tests/reference/llama_golden.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    std::string name;
    double value = 0;
    words >> kind;
    if (kind == "case") {
      words >> cases.emplace_back().name;
    } else if (kind == "config") {
      std::string setting;
      words >> name >> setting;
      SetConfig(name, setting, cases.back());
    } else if (kind == "loss") {
      words >> cases.back().loss;
    } else if (kind == "logit") {
      words >> cases.back().logits.emplace_back();
    } else if (kind == "gradient") {
      auto& gradient = cases.back().gradients.emplace_back();
      words >> gradient.tensor >> gradient.norm;
    } else if (kind == "value") {
      int64_t index = 0;
      words >> index >> value;
      cases.back().gradients.back().values[index] = value;
    }
    EXPECT_FALSE(words.fail()) << line;
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
