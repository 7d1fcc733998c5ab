// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares each operation of the CPU backend with the double reference, on
// random inputs of awkward shapes, with several thread counts, and with every
// instruction set that the kernels are compiled for and this CPU has.
#include "worker/model/ops_cpu.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/highway_targets.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "worker/model/ops.h"
#include "worker/model/testing/ops_reference.h"
#include "worker/model/testing/random_values.h"

// The sanitizers end the program when an allocation cannot succeed, unless told
// to return null as malloc does.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace causeway {
namespace {

// The parameters are the number of threads and the Highway target.
class OpsCpuTest : public testing::TestWithParam<std::tuple<int, int64_t>> {
 protected:
  const ScopedHighwayTarget target_{std::get<1>(GetParam())};
  const std::unique_ptr<Ops> ops_ = MakeCpuOps(std::get<0>(GetParam()));
};

INSTANTIATE_TEST_SUITE_P(ThreadsAndTargets, OpsCpuTest,
                         testing::Combine(testing::Values(1, 2, 3),
                                          testing::ValuesIn(HighwayTargets())),
                         [](const auto& test) {
                           return absl::StrCat(
                               std::get<0>(test.param), "Threads",
                               hwy::TargetName(std::get<1>(test.param)));
                         });

TEST_P(OpsCpuTest, AllocatesAlignedZeroedMemory) {
  for (const size_t bytes : {0u, 1u, 4096u, (2u << 20) - 1, (5u << 20) + 3}) {
    ASSERT_OK_AND_ASSIGN(void* memory, ops_->Allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    const char* begin = static_cast<const char*>(memory);
    EXPECT_TRUE(std::all_of(begin, begin + bytes, [](char c) { return !c; }));
    if (bytes > 0) std::memset(memory, 1, bytes);
    ops_->Free(memory, bytes);
  }
}

TEST_P(OpsCpuTest, AnImpossibleAllocationIsRefused) {
  EXPECT_THAT(ops_->Allocate(size_t{1} << 60),
              IsResourceExhausted("1152921504606846976 bytes"));
}

TEST_P(OpsCpuTest, ZeroAndSums) {
  for (const int64_t size : {0, 1, 15, 16, 17, 1000}) {
    Floats values = Random(size, 1);
    double sum = 0;
    double squares = 0;
    for (const double value : values) {
      sum += value;
      squares += value * value;
    }
    double total = 3;
    ops_->AddSum(values.data(), size, 0.5, &total);
    EXPECT_NEAR(total, 3 + 0.5 * sum, 1e-10);
    EXPECT_NEAR(ops_->SquaredNorm(values.data(), size), squares, 1e-10);
    ops_->Zero(size, values.data());
    EXPECT_THAT(values, testing::Each(0.0f));
  }
}

TEST_P(OpsCpuTest, Embedding) {
  for (const int64_t width : {1, 16, 33}) {
    constexpr int64_t kRows = 29;
    const std::vector<int32_t> tokens = RandomTokens(kRows, 7, 1);
    const Floats table = Random(7 * width, 2);
    Floats output(kRows * width);
    Doubles want(output.size());
    ops_->Embedding(tokens.data(), table.data(), kRows, width, output.data());
    reference::Embedding(tokens.data(), Widen(table).data(), kRows, width,
                         want.data());
    ExpectNear(output, want, 0);

    Floats d_table = Random(7 * width, 3);
    Doubles want_d_table = Widen(d_table);
    const Floats d_output = Random(kRows * width, 4);
    ops_->EmbeddingBackward(tokens.data(), d_output.data(), kRows, width,
                            d_table.data());
    reference::EmbeddingBackward(tokens.data(), Widen(d_output).data(), kRows,
                                 width, want_d_table.data());
    ExpectNear(d_table, want_d_table);
  }
}

TEST_P(OpsCpuTest, RmsNorm) {
  // One thread computes the last of these, after others have left their sums.
  for (const int64_t rows : {2, 11, 1}) {
    for (const int64_t width : {1, 8, 16, 31, 32, 33, 129}) {
      for (const bool add : {false, true}) {
        const Floats x = Random(rows * width, 1);
        const Floats delta = Random(rows * width, 2);
        const Floats gain = Random(width, 3);
        const Doubles wide_x = Widen(x);
        const Doubles wide_delta = Widen(delta);
        const Doubles wide_gain = Widen(gain);
        Floats sum = x;
        Floats inverse_rms(rows);
        Floats normalized(rows * width);
        Doubles want_sum = wide_x;
        Doubles want_inverse_rms(rows);
        Doubles want_normalized(rows * width);
        ops_->RmsNorm(x.data(), add ? delta.data() : nullptr, gain.data(), rows,
                      width, 1e-3f, sum.data(), inverse_rms.data(),
                      normalized.data());
        reference::RmsNorm<double>(
            wide_x.data(), add ? wide_delta.data() : nullptr, wide_gain.data(),
            rows, width, 1e-3, want_sum.data(), want_inverse_rms.data(),
            want_normalized.data());
        ExpectNear(sum, want_sum);
        ExpectNear(inverse_rms, want_inverse_rms);
        ExpectNear(normalized, want_normalized);

        const Floats d_normalized = Random(rows * width, 4);
        for (const bool accumulate : {false, true}) {
          Floats d_x = Random(rows * width, 5);
          Floats d_gain = Random(width, 6);
          Floats again(rows * width);
          Doubles want_d_x = Widen(d_x);
          Doubles want_d_gain = Widen(d_gain);
          ops_->RmsNormBackward(
              d_normalized.data(), sum.data(), inverse_rms.data(), gain.data(),
              rows, width, accumulate, d_x.data(), d_gain.data(), again.data());
          reference::RmsNormBackward(Widen(d_normalized).data(),
                                     want_sum.data(), want_inverse_rms.data(),
                                     wide_gain.data(), rows, width, accumulate,
                                     want_d_x.data(), want_d_gain.data(),
                                     want_normalized.data());
          // In rows of one value the gradient nearly cancels.
          ExpectNear(d_x, want_d_x, width == 1 ? 1e-4 : 5e-6);
          ExpectNear(d_gain, want_d_gain, 5e-6);
          EXPECT_EQ(again, normalized) << "the same bits as in the forward";
        }
      }
    }
  }
}

TEST_P(OpsCpuTest, Linear) {
  for (const LinearShape& shape :
       {LinearShape{1, 1, 1}, LinearShape{1, 17, 70}, LinearShape{70, 5, 3},
        LinearShape{33, 48, 31}, LinearShape{2, 64, 258}}) {
    const Floats input = Random(shape.rows * shape.in, 1);
    const Floats weight = Random(shape.out * shape.in, 2);
    const Floats d_output = Random(shape.rows * shape.out, 3);
    Floats output(shape.rows * shape.out);
    Floats d_input(input.size());
    Floats d_weight = Random(shape.out * shape.in, 4);
    Doubles want_output(output.size());
    Doubles want_d_input(input.size());
    Doubles want_d_weight = Widen(d_weight);
    ops_->Linear(input.data(), weight.data(), shape, output.data());
    reference::Linear(Widen(input).data(), Widen(weight).data(), shape,
                      want_output.data());
    ExpectNear(output, want_output);
    ops_->LinearInputGradient(d_output.data(), weight.data(), shape,
                              d_input.data());
    reference::LinearInputGradient(Widen(d_output).data(), Widen(weight).data(),
                                   shape, want_d_input.data());
    ExpectNear(d_input, want_d_input);
    ops_->LinearWeightGradient(d_output.data(), input.data(), shape,
                               d_weight.data());
    reference::LinearWeightGradient(Widen(d_output).data(), Widen(input).data(),
                                    shape, want_d_weight.data());
    ExpectNear(d_weight, want_d_weight);
  }
}

// Batch, length, heads, key heads, head size. The CPU backend works in blocks
// of 64 queries.
const AttentionShape kAttentionShapes[] = {
    {2, 5, 4, 4, 6},    {1, 64, 2, 1, 16}, {3, 65, 6, 2, 8},
    {1, 150, 3, 3, 34}, {2, 33, 4, 1, 10}, {1, 1, 1, 1, 2},
};

TEST_P(OpsCpuTest, Bias) {
  for (const int64_t rows : {1, 2, 29}) {
    for (const int64_t width : {1, 16, 33}) {
      const Floats bias = Random(width, 1);
      Floats values = Random(rows * width, 2);
      Floats d_bias = Random(width, 3);
      Doubles want = Widen(values);
      Doubles want_d_bias = Widen(d_bias);
      ops_->AddBias(bias.data(), rows, width, values.data());
      reference::AddBias(Widen(bias).data(), rows, width, want.data());
      ExpectNear(values, want);
      ops_->AddBiasBackward(values.data(), rows, width, d_bias.data());
      reference::AddBiasBackward(Widen(values).data(), rows, width,
                                 want_d_bias.data());
      ExpectNear(d_bias, want_d_bias);
    }
  }
}

void ExpectQkNorm(const QkNormShape& shape, Ops* ops) {
  const Floats gains = Random(shape.gains(), 1);
  Floats qkv = Random(shape.rows * shape.row_width, 2);
  Floats raw(shape.rows * shape.qk_width);
  Floats inverse_rms(shape.rows * shape.groups());
  Doubles want = Widen(qkv);
  Doubles want_raw(raw.size());
  Doubles want_inverse_rms(inverse_rms.size());
  ops->QkNorm(shape, gains.data(), 1e-3f, qkv.data(), raw.data(),
              inverse_rms.data());
  reference::QkNorm(shape, Widen(gains).data(), 1e-3, want.data(),
                    want_raw.data(), want_inverse_rms.data());
  ExpectNear(qkv, want);
  ExpectNear(raw, want_raw, 0);
  ExpectNear(inverse_rms, want_inverse_rms);

  Floats d_qkv = Random(shape.rows * shape.row_width, 3);
  Floats d_gains = Random(shape.gains(), 4);
  Doubles want_d_qkv = Widen(d_qkv);
  Doubles want_d_gains = Widen(d_gains);
  ops->QkNormBackward(shape, raw.data(), inverse_rms.data(), gains.data(),
                      d_qkv.data(), d_gains.data());
  reference::QkNormBackward(shape, want_raw.data(), want_inverse_rms.data(),
                            Widen(gains).data(), want_d_qkv.data(),
                            want_d_gains.data());
  // In heads of two values the gradient nearly cancels.
  ExpectNear(d_qkv, want_d_qkv, 1e-5);
  ExpectNear(d_gains, want_d_gains, 5e-6);
}

TEST_P(OpsCpuTest, QkNorm) {
  for (const AttentionShape& shape : kAttentionShapes) {
    ExpectQkNorm({shape, /*across_heads=*/false}, ops_.get());
    ExpectQkNorm({shape, /*across_heads=*/true}, ops_.get());
  }
}

TEST_P(OpsCpuTest, AddActivations) {
  for (const int64_t size : {1, 16, 1003}) {
    const Floats x = Random(size, 1);
    Floats y = Random(size, 2);
    Floats want(size);
    for (int64_t i = 0; i < size; ++i) want[i] = x[i] + y[i];
    ops_->AddActivations(x.data(), y.data(), size, y.data());
    EXPECT_EQ(y, want);
  }
}

TEST_P(OpsCpuTest, Rope) {
  for (const AttentionShape& shape : kAttentionShapes) {
    const Floats cosine = Random(shape.length * shape.head_dim / 2, 1);
    const Floats sine = Random(shape.length * shape.head_dim / 2, 2);
    for (const RopeDirection direction :
         {RopeDirection::kForward, RopeDirection::kBackward}) {
      Floats qkv = Random(shape.rows() * shape.qkv_width(), 3);
      Doubles want = Widen(qkv);
      ops_->Rope(shape, {cosine.data(), sine.data()}, direction, qkv.data());
      reference::Rope(shape, Widen(cosine).data(), Widen(sine).data(),
                      direction, want.data());
      ExpectNear(qkv, want);
    }
  }
}

TEST_P(OpsCpuTest, Attention) {
  for (const auto& [shape, documents] : WithDocuments(kAttentionShapes)) {
    const Floats qkv = Random(shape.rows() * shape.qkv_width(), 1);
    Floats output(shape.rows() * shape.query_width());
    Floats log_sum_exp(shape.rows() * shape.heads);
    Doubles want_output(output.size());
    Doubles want_log_sum_exp(log_sum_exp.size());
    ops_->Attention(shape, qkv.data(), output.data(), log_sum_exp.data());
    reference::Attention(shape, Widen(qkv).data(), want_output.data(),
                         want_log_sum_exp.data());
    ExpectNear(output, want_output);
    ExpectNear(log_sum_exp, want_log_sum_exp);

    const Floats d_output = Random(shape.rows() * shape.query_width(), 2);
    // The earlier contents must be overwritten.
    Floats d_qkv(qkv.size(), NAN);
    Doubles want_d_qkv(qkv.size());
    ops_->AttentionBackward(shape, qkv.data(), output.data(),
                            log_sum_exp.data(), d_output.data(), d_qkv.data());
    reference::AttentionBackward(shape, Widen(qkv).data(), want_output.data(),
                                 want_log_sum_exp.data(),
                                 Widen(d_output).data(), want_d_qkv.data());
    ExpectNear(d_qkv, want_d_qkv);
  }
}

TEST_P(OpsCpuTest, AttentionOfHugeScoresStaysFinite) {
  const AttentionShape shape = {1, 70, 1, 1, 4};
  Floats qkv = Random(shape.rows() * shape.qkv_width(), 1);
  for (float& value : qkv) value *= 1e4f;
  Floats output(shape.rows() * shape.query_width());
  Floats log_sum_exp(shape.rows());
  Floats d_qkv(qkv.size());
  ops_->Attention(shape, qkv.data(), output.data(), log_sum_exp.data());
  ops_->AttentionBackward(shape, qkv.data(), output.data(), log_sum_exp.data(),
                          output.data(), d_qkv.data());
  const auto finite = [](float value) { return std::isfinite(value); };
  EXPECT_TRUE(std::all_of(output.begin(), output.end(), finite));
  EXPECT_TRUE(std::all_of(d_qkv.begin(), d_qkv.end(), finite));
}

TEST_P(OpsCpuTest, SwiGlu) {
  for (const int64_t rows : {1, 5}) {
    for (const int64_t width : {1, 16, 37}) {
      Floats gate_up = Random(2 * rows * width, 1);
      // The sigmoid's exponential overflows and underflows.
      gate_up[0] = -100;
      gate_up[gate_up.size() - width - 1] = 100;
      Floats output(rows * width);
      Doubles want(output.size());
      ops_->SwiGlu(gate_up.data(), rows, width, output.data());
      reference::SwiGlu(Widen(gate_up).data(), rows, width, want.data());
      ExpectNear(output, want);

      const Floats d_output = Random(rows * width, 2);
      Floats d_gate_up(gate_up.size());
      Floats again(output.size());
      Doubles want_d_gate_up(gate_up.size());
      ops_->SwiGluBackward(gate_up.data(), d_output.data(), rows, width,
                           d_gate_up.data(), again.data());
      reference::SwiGluBackward(Widen(gate_up).data(), Widen(d_output).data(),
                                rows, width, want_d_gate_up.data(),
                                want.data());
      ExpectNear(d_gate_up, want_d_gate_up);
      EXPECT_EQ(again, output) << "the same bits as in the forward";

      // This is in place, as the header allows.
      Floats shared = d_output;
      ops_->SwiGluBackward(gate_up.data(), shared.data(), rows, width,
                           gate_up.data(), shared.data());
      EXPECT_EQ(gate_up, d_gate_up);
      EXPECT_EQ(shared, again);
    }
  }
}

TEST_P(OpsCpuTest, CrossEntropy) {
  for (const int64_t rows : {1, 7}) {
    for (const int64_t vocab_size : {1, 2, 16, 258}) {
      std::vector<int32_t> targets =
          RandomTokens(rows, static_cast<int32_t>(vocab_size), 1);
      if (rows > 1) targets[2] = -1;
      Floats logits = Random(rows * vocab_size, 2);
      // The softmax must not depend on a common offset.
      for (float& logit : logits) logit = 10 * logit - 300;
      Floats losses(rows);
      Doubles want = Widen(logits);
      Doubles want_losses(rows);
      reference::CrossEntropyWithGradient<double>(
          targets.data(), rows, vocab_size, 0.125, want.data(),
          want_losses.data());
      Floats scratch = logits;
      ops_->CrossEntropy(targets.data(), rows, vocab_size, std::nullopt,
                         scratch.data(), losses.data());
      ExpectNear(losses, want_losses, 1e-5);
      ops_->CrossEntropy(targets.data(), rows, vocab_size, 0.125f,
                         logits.data(), losses.data());
      ExpectNear(losses, want_losses, 1e-5);
      ExpectNear(logits, want, 1e-5);
    }
  }
}

// Divergence must show in the loss wherever it begins.
TEST_P(OpsCpuTest, CrossEntropyKeepsNanOfAnyLogit) {
  constexpr int64_t kVocabSize = 37;
  for (int64_t at = 0; at < kVocabSize; ++at) {
    Floats logits(kVocabSize, 1.0f);
    logits[at] = std::numeric_limits<float>::quiet_NaN();
    const int32_t target = 5;
    float loss = 0;
    ops_->CrossEntropy(&target, 1, kVocabSize, 1, logits.data(), &loss);
    EXPECT_TRUE(std::isnan(loss)) << at;
  }
}

TEST_P(OpsCpuTest, AdamW) {
  const AdamWCoefficients coefficients = {.gradient_scale = 0.5f,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.95f,
                                          .step_size = 0.3f,
                                          .inverse_sqrt_correction2 = 2,
                                          .epsilon = 1e-3f,
                                          .decay = 0.99f};
  for (const int64_t size : {1, 16, 1003}) {
    const Floats gradients = Random(size, 1);
    Floats parameters = Random(size, 2);
    Floats first = Random(size, 3);
    Floats second = Random(size, 4);
    for (float& value : second) value = std::abs(value);
    Doubles want = Widen(parameters);
    Doubles want_first = Widen(first);
    Doubles want_second = Widen(second);
    reference::AdamW(coefficients, Widen(gradients).data(), size, want.data(),
                     want_first.data(), want_second.data());
    Floats estimate(size);
    for (float* const to : {estimate.data(), static_cast<float*>(nullptr)}) {
      ops_->AdamW(coefficients, gradients.data(), size, parameters.data(),
                  first.data(), second.data(), to);
    }
    ExpectNear(parameters, want);
    ExpectNear(first, want_first);
    ExpectNear(second, want_second);
    EXPECT_EQ(estimate, parameters) << "the same bits as the update";
  }
}

TEST_P(OpsCpuTest, LinearCombination) {
  for (const int64_t size : {0, 1, 16, 1003}) {
    const Floats x = Random(size, 1);
    const Floats y = Random(size, 2);
    Doubles want(size);
    for (int64_t i = 0; i < size; ++i) want[i] = 3.0 * x[i] - 0.5 * y[i];
    Floats got(size);
    ops_->LinearCombination(3, x.data(), -0.5f, y.data(), size, got.data());
    ExpectNear(got, want);
    for (Floats in_place : {x, y}) {
      float* const to = in_place.data();
      ops_->LinearCombination(3, in_place == x ? to : x.data(), -0.5f,
                              in_place == x ? y.data() : to, size, to);
      EXPECT_EQ(in_place, got);
    }
  }
}

}  // namespace
}  // namespace causeway
