// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/config/run_config.h"
#include "common/tensors/model_layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/run_config.pb.h"
#include "worker/model/ops.h"
#include "worker/model/ops_cpu.h"
#include "worker/model/testing/golden_models.h"

namespace causeway {
namespace {

v1::ModelConfig SmallConfig() {
  v1::ModelConfig config;
  config.set_layers(3);
  config.set_hidden_size(24);
  config.set_intermediate_size(40);
  config.set_heads(4);
  config.set_kv_heads(2);
  config.set_vocab_size(31);
  config.set_sequence_length(12);
  config.set_init_stddev(0.2);
  return config;
}

// Returns a model with all that Qwen2, Qwen3 and SmolLM3 add.
v1::ModelConfig RichConfig() {
  v1::ModelConfig config = SmallConfig();
  config.set_head_dim(10);
  config.set_qkv_bias(true);
  config.set_qk_norm(true);
  config.set_no_rope_interval(2);
  return config;
}

// Returns a model with all that OLMo 2 adds.
v1::ModelConfig PostNormConfig() {
  v1::ModelConfig config = SmallConfig();
  config.set_qk_norm(true);
  config.set_qk_norm_across_heads(true);
  config.set_post_norm(true);
  return config;
}

struct Result {
  double loss = 0;
  std::vector<float> gradients;
};

// Runs one ForwardBackward from the initial parameters.
Result RunOnce(const v1::ModelConfig& config,
               const Transformer::Options& options, int threads) {
  const std::unique_ptr<Ops> ops = MakeCpuOps(threads);
  auto model = Transformer::Create(config, options, ops.get());
  EXPECT_OK(model.status());
  const std::vector<float> parameters =
      InitialParameters((*model)->layout(), 1);
  const Batch batch(config, options.micro_batch);
  Result result;
  result.gradients.resize(parameters.size());
  auto loss =
      (*model)->ForwardBackward(parameters.data(), batch.tokens, batch.targets,
                                1, result.gradients.data());
  EXPECT_OK(loss.status());
  result.loss = *loss;
  return result;
}

// Returns the largest difference relative to the largest value.
double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  double scale = 0;
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    scale = std::max<double>(scale, std::abs(b[i]));
    difference = std::max<double>(difference, std::abs(a[i] - b[i]));
  }
  return difference / scale;
}

void ExpectGolden(const GoldenCase& golden, int threads) {
  SCOPED_TRACE(golden.name);
  const std::unique_ptr<Ops> ops = MakeCpuOps(threads);
  ASSERT_OK_AND_ASSIGN(
      auto model, Transformer::Create(
                      golden.config, {.micro_batch = golden.batch}, ops.get()));
  const std::vector<float> parameters = GoldenParameters(model->layout());
  const Batch batch(golden.config, golden.batch);
  std::vector<float> gradients(parameters.size());
  EXPECT_THAT(model->ForwardBackward(parameters.data(), batch.tokens,
                                     batch.targets, 1, gradients.data()),
              IsOkAndHolds(testing::DoubleNear(golden.loss, 2e-6)));
  EXPECT_THAT(model->Loss(parameters.data(), batch.tokens, batch.targets),
              IsOkAndHolds(testing::DoubleNear(golden.loss, 2e-6)));

  ASSERT_EQ(golden.gradients.size(), model->layout().tensors.size());
  for (size_t t = 0; t < golden.gradients.size(); ++t) {
    const TensorSpec& tensor = model->layout().tensors[t];
    const GoldenCase::Gradient& want = golden.gradients[t];
    ASSERT_EQ(tensor.name, want.tensor);
    double squares = 0;
    for (int64_t i = 0; i < tensor.size; ++i) {
      squares += std::pow(gradients[tensor.offset + i], 2);
    }
    EXPECT_NEAR(std::sqrt(squares), want.norm, 1e-5 * want.norm) << tensor.name;
    EXPECT_GE(want.values.size(), std::min<size_t>(tensor.size, 12));
    for (const auto& [index, value] : want.values) {
      EXPECT_NEAR(gradients[tensor.offset + index], value, 1e-5 * want.norm)
          << tensor.name << " at " << index;
    }
  }

  std::vector<float> logits(golden.logits.size());
  const size_t length = static_cast<size_t>(model->sequence_length());
  ASSERT_OK(model->NextTokenLogits(
      parameters.data(), absl::MakeConstSpan(batch.tokens).first(length),
      absl::MakeSpan(logits)));
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_NEAR(logits[i], golden.logits[i], 2e-5);
  }
}

TEST(TransformerTest, LossGradientsAndLogitsAreThoseOfPyTorch) {
  ASSERT_OK_AND_ASSIGN(const std::vector<GoldenCase> cases, ReadGolden());
  ASSERT_EQ(cases.size(), 11u);
  for (const GoldenCase& golden : cases) {
    for (const int threads : {1, 2}) ExpectGolden(golden, threads);
  }
}

TEST(TransformerTest, RunsWithTheSameThreadCountGiveTheSameBits) {
  for (const int threads : {1, 2, 3}) {
    const Result first = RunOnce(SmallConfig(), {.micro_batch = 5}, threads);
    const Result second = RunOnce(SmallConfig(), {.micro_batch = 5}, threads);
    EXPECT_EQ(first.loss, second.loss);
    EXPECT_EQ(first.gradients, second.gradients);
  }
}

TEST(TransformerTest, ThreadCountsAgreeToRounding) {
  const Result one = RunOnce(SmallConfig(), {.micro_batch = 5}, 1);
  const Result three = RunOnce(SmallConfig(), {.micro_batch = 5}, 3);
  EXPECT_NEAR(one.loss, three.loss, 1e-6);
  EXPECT_LT(Difference(three.gradients, one.gradients), 1e-5);
}

TEST(TransformerTest, RecomputationChangesNoBitAndSavesMemory) {
  const Transformer::Options keep = {.micro_batch = 4};
  const Transformer::Options recompute = {.micro_batch = 4,
                                          .recompute_activations = true};
  for (const v1::ModelConfig& config :
       {SmallConfig(), RichConfig(), PostNormConfig()}) {
    const Result kept = RunOnce(config, keep, 2);
    const Result recomputed = RunOnce(config, recompute, 2);
    EXPECT_EQ(recomputed.loss, kept.loss);
    EXPECT_EQ(recomputed.gradients, kept.gradients);
  }

  const std::unique_ptr<Ops> ops = MakeCpuOps(1);
  ASSERT_OK_AND_ASSIGN(auto large,
                       Transformer::Create(SmallConfig(), keep, ops.get()));
  ASSERT_OK_AND_ASSIGN(
      auto small, Transformer::Create(SmallConfig(), recompute, ops.get()));
  EXPECT_LT(small->activation_bytes(), large->activation_bytes() * 3 / 4);
}

TEST(TransformerTest, MicroBatchesAddUpToTheBatch) {
  const v1::ModelConfig config = SmallConfig();
  const Result whole = RunOnce(config, {.micro_batch = 6}, 2);
  const std::unique_ptr<Ops> ops = MakeCpuOps(2);
  ASSERT_OK_AND_ASSIGN(
      auto model, Transformer::Create(config, {.micro_batch = 2}, ops.get()));
  const std::vector<float> parameters = InitialParameters(model->layout(), 1);
  const Batch batch(config, 6);
  std::vector<float> gradients(parameters.size());
  double loss = 0;
  const size_t size = 2 * config.sequence_length();
  for (size_t first = 0; first < batch.tokens.size(); first += size) {
    ASSERT_OK_AND_ASSIGN(
        const double part,
        model->ForwardBackward(
            parameters.data(),
            absl::MakeConstSpan(batch.tokens).subspan(first, size),
            absl::MakeConstSpan(batch.targets).subspan(first, size), 1.0 / 3,
            gradients.data()));
    loss += part / 3;
  }
  EXPECT_NEAR(loss, whole.loss, 1e-6);
  EXPECT_LT(Difference(gradients, whole.gradients), 1e-5);
}

TEST(TransformerTest, LogitsInChunksGiveTheSameLoss) {
  // 7 * 128 + 1 rows of a large vocabulary do not fit into one chunk.
  v1::ModelConfig config = SmallConfig();
  config.set_layers(1);
  config.set_sequence_length(299);
  config.set_vocab_size(9000);
  const std::unique_ptr<Ops> ops = MakeCpuOps(2);
  ASSERT_OK_AND_ASSIGN(
      auto chunked, Transformer::Create(config, {.micro_batch = 3}, ops.get()));
  // The limit is the size of all 897 * 9000 logits.
  EXPECT_LT(chunked->activation_bytes(), int64_t{897} * 9000 * 4);
  const std::vector<float> parameters = InitialParameters(chunked->layout(), 1);
  const Batch batch(config, 3);
  ASSERT_OK_AND_ASSIGN(
      const double loss,
      chunked->Loss(parameters.data(), batch.tokens, batch.targets));
  double mean = 0;
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(
        const double part,
        chunked->Loss(
            parameters.data(),
            absl::MakeConstSpan(batch.tokens).subspan(i * 299, 299),
            absl::MakeConstSpan(batch.targets).subspan(i * 299, 299)));
    mean += part / 3;
  }
  EXPECT_NEAR(loss, mean, 1e-6);
}

TEST(TransformerTest, ALaterTokenChangesNoEarlierLogits) {
  const v1::ModelConfig config = SmallConfig();
  const std::unique_ptr<Ops> ops = MakeCpuOps(1);
  ASSERT_OK_AND_ASSIGN(
      auto model,
      Transformer::Create(config, {.micro_batch = 1, .training = false},
                          ops.get()));
  const std::vector<float> parameters = InitialParameters(model->layout(), 1);
  const std::vector<int32_t> tokens = TokenStream(12, config.vocab_size());
  // By the chain rule of probability, the mean of the prefixes' losses is the
  // sequence's loss.
  std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
  targets.push_back(5);
  double mean = 0;
  for (size_t length = 1; length <= 12; ++length) {
    std::vector<float> logits(config.vocab_size());
    ASSERT_OK(model->NextTokenLogits(parameters.data(),
                                     absl::MakeConstSpan(tokens).first(length),
                                     absl::MakeSpan(logits)));
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit);
    mean += (std::log(sum) - logits[targets[length - 1]]) / 12;
  }
  EXPECT_THAT(model->Loss(parameters.data(), tokens, targets),
              IsOkAndHolds(testing::DoubleNear(mean, 1e-5)));
}

void ExpectSameLogitsWithKeptPrefix(const v1::ModelConfig& config) {
  const std::unique_ptr<Ops> ops = MakeCpuOps(2);
  const auto create = [&](bool keep_prefix) {
    return *Transformer::Create(
        config,
        {.micro_batch = 1, .training = false, .keep_prefix = keep_prefix},
        ops.get());
  };
  const auto keeps = create(true);
  const auto forgets = create(false);
  const std::vector<float> parameters = GoldenParameters(keeps->layout());
  std::vector<int32_t> tokens = TokenStream(12, config.vocab_size());
  const auto compare = [&](size_t length) {
    const auto prefix = absl::MakeConstSpan(tokens).first(length);
    std::vector<float> got(config.vocab_size());
    std::vector<float> want(config.vocab_size());
    ASSERT_OK(
        keeps->NextTokenLogits(parameters.data(), prefix, absl::MakeSpan(got)));
    ASSERT_OK(forgets->NextTokenLogits(parameters.data(), prefix,
                                       absl::MakeSpan(want)));
    EXPECT_THAT(got, testing::Pointwise(testing::FloatNear(1e-5f), want));
  };
  for (const size_t length : {3, 4, 7, 7, 5, 12}) compare(length);
  tokens[4] = (tokens[4] + 1) % static_cast<int32_t>(config.vocab_size());
  for (const size_t length : {10, 3, 11}) compare(length);
  // Loss overwrites the memory of the kept prefix.
  const std::vector<int32_t> others(12, 1);
  ASSERT_OK(keeps->Loss(parameters.data(), others, others));
  compare(12);
}

TEST(TransformerTest, AKeptPrefixChangesNoLogits) {
  ExpectSameLogitsWithKeptPrefix(SmallConfig());
  ExpectSameLogitsWithKeptPrefix(RichConfig());
  ExpectSameLogitsWithKeptPrefix(PostNormConfig());
}

// Documents that share a sequence are computed as if each had its own: a token
// has the logits of its document alone.
TEST(TransformerTest, DocumentsOfASequenceDoNotSeeOneAnother) {
  const v1::ModelConfig config = SmallConfig();
  const std::unique_ptr<Ops> ops = MakeCpuOps(2);
  ASSERT_OK_AND_ASSIGN(
      auto model,
      Transformer::Create(
          config, {.micro_batch = 1, .keep_prefix = true, .document_end = 3},
          ops.get()));
  const std::vector<float> parameters = InitialParameters(model->layout(), 1);
  const std::vector<int32_t> tokens = {5, 1, 3, 7, 7, 2, 3, 3, 1, 4, 6, 0};
  ASSERT_EQ(static_cast<int64_t>(tokens.size()), model->sequence_length());
  const auto logits_of = [&](absl::Span<const int32_t> prefix) {
    std::vector<float> logits(config.vocab_size());
    EXPECT_OK(model->NextTokenLogits(parameters.data(), prefix,
                                     absl::MakeSpan(logits)));
    return logits;
  };
  std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
  targets.push_back(5);
  double mean = 0;
  size_t document = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && tokens[i - 1] == 3) document = i;
    const std::vector<float> alone = logits_of(
        absl::MakeConstSpan(tokens).subspan(document, i + 1 - document));
    const std::vector<float> packed =
        logits_of(absl::MakeConstSpan(tokens).first(i + 1));
    // Products of other shapes may have sums of another order.
    EXPECT_THAT(packed, testing::Pointwise(testing::FloatNear(1e-5f), alone))
        << i;
    double sum = 0;
    for (const float logit : alone) sum += std::exp(logit);
    mean += (std::log(sum) - alone[targets[i]]) / 12;
  }
  EXPECT_THAT(model->Loss(parameters.data(), tokens, targets),
              IsOkAndHolds(testing::DoubleNear(mean, 1e-5)));
}

// The gradients of a sequence of two documents are the sum over two sequences,
// in each of which the other half has no targets.
TEST(TransformerTest, GradientsOfDocumentsAndOfMaskedTargetsAddUp) {
  const v1::ModelConfig config = SmallConfig();
  const std::unique_ptr<Ops> ops = MakeCpuOps(2);
  const auto create = [&](std::optional<int32_t> document_end) {
    return *Transformer::Create(
        config, {.micro_batch = 2, .document_end = document_end}, ops.get());
  };
  const auto packed = create(3);
  const auto plain = create(std::nullopt);
  const std::vector<float> parameters = InitialParameters(plain->layout(), 1);
  const std::vector<int32_t> first = {5, 1, 3};
  const std::vector<int32_t> second = {7, 7, 2, 1, 4, 6, 0, 2, 4};

  std::vector<int32_t> tokens = first;
  tokens.insert(tokens.end(), second.begin(), second.end());
  const std::vector<int32_t> targets = {1, 3, kNoTarget, 7, 2, 1,
                                        4, 6, 0,         2, 4, 5};
  std::vector<float> got(parameters.size());
  ASSERT_OK_AND_ASSIGN(const double got_loss,
                       packed->ForwardBackward(parameters.data(), tokens,
                                               targets, 1, got.data()));

  std::vector<int32_t> apart = first;
  apart.resize(12, 1);
  apart.insert(apart.end(), second.begin(), second.end());
  apart.resize(24, 1);
  std::vector<int32_t> apart_targets(24, kNoTarget);
  std::copy(targets.begin(), targets.begin() + 3, apart_targets.begin());
  std::copy(targets.begin() + 3, targets.end(), apart_targets.begin() + 12);
  std::vector<float> want(parameters.size());
  // Two sequences have twice the tokens.
  ASSERT_OK_AND_ASSIGN(const double want_loss,
                       plain->ForwardBackward(parameters.data(), apart,
                                              apart_targets, 2, want.data()));
  EXPECT_NEAR(got_loss, 2 * want_loss, 1e-5);
  EXPECT_THAT(got, testing::Pointwise(testing::FloatNear(1e-5f), want));
}

TEST(TransformerTest, BadInputIsRefusedAndNothingChanges) {
  const v1::ModelConfig config = SmallConfig();
  const std::unique_ptr<Ops> ops = MakeCpuOps(1);
  EXPECT_THAT(Transformer::Create(config, {.micro_batch = 0}, ops.get()),
              IsInvalidArgument("micro_batch is 0"));
  ASSERT_OK_AND_ASSIGN(
      auto model, Transformer::Create(config, {.micro_batch = 2}, ops.get()));
  const std::vector<float> parameters = InitialParameters(model->layout(), 1);
  std::vector<float> gradients(parameters.size());
  Batch batch(config, 2);
  const auto expect_refused = [&](absl::Span<const int32_t> tokens,
                                  absl::Span<const int32_t> targets,
                                  const char* why) {
    EXPECT_THAT(model->ForwardBackward(parameters.data(), tokens, targets, 1,
                                       gradients.data()),
                IsInvalidArgument(why));
  };
  const absl::Span<const int32_t> tokens = batch.tokens;
  expect_refused({}, {}, "got 0 tokens");
  expect_refused(tokens.first(13), tokens.first(13), "1 to 2 sequences of 12");
  expect_refused(tokens, tokens.first(12), "12 targets for 24 tokens");
  batch.targets[7] = 31;
  expect_refused(tokens, batch.targets,
                 "targets[7] is 31; the vocabulary has the tokens 0 to 30");
  batch.tokens[0] = -1;
  EXPECT_THAT(model->Loss(parameters.data(), batch.tokens, batch.tokens),
              IsInvalidArgument("tokens[0] is -1"));
  std::vector<float> logits(31);
  EXPECT_THAT(
      model->NextTokenLogits(parameters.data(), {}, absl::MakeSpan(logits)),
      IsInvalidArgument("prefix of 0 tokens"));
  EXPECT_THAT(gradients, testing::Each(0.0f));
}

}  // namespace
}  // namespace causeway
