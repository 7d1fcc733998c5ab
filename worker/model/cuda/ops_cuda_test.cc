// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares every operation on a device with the double reference.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/model/cuda/testing/ops_cuda_fixture.h"
#include "worker/model/device_array.h"
#include "worker/model/testing/ops_reference.h"
#include "worker/model/testing/random_values.h"

namespace causeway {
namespace {

TEST_F(OpsCudaTest, RoundsToNearestEven) {
  Floats values = {1,
                   1 + 0x1p-8f,
                   1 + 0x1.8p-7f,
                   1 + 0x1.04p-8f,
                   -3.14159f,
                   0x1.fep127f,
                   std::numeric_limits<float>::max(),
                   0x1p-130f,
                   0};
  const Floats want = {1,
                       1,
                       1 + 0x1p-6f,
                       1 + 0x1p-7f,
                       -3.140625f,
                       0x1.fep127f,
                       std::numeric_limits<float>::infinity(),
                       0x1p-130f,
                       0};
  Rounded(values);
  EXPECT_EQ(values, want);
  Floats nan = {NAN};
  Rounded(nan);
  EXPECT_TRUE(std::isnan(nan[0]));
}

TEST_F(OpsCudaTest, AllocatesZeros) {
  auto array = *DeviceArray<float>::Create(ops_.get(), 1000);
  Values values = {std::move(array)};
  EXPECT_THAT(Host(values), testing::Each(0.0f));
}

TEST_F(OpsCudaTest, ZeroCopyAndSums) {
  for (const int64_t size : {1, 255, 256, 140000}) {
    const Floats values = Random(size, 1);
    double sum = 0;
    double squares = 0;
    for (const double value : values) {
      sum += value;
      squares += value * value;
    }
    Values device = Device(values);
    auto total = *DeviceArray<double>::Create(ops_.get(), 1);
    ops_->AddSum(device.data(), size, 0.5, total.data());
    ops_->AddSum(device.data(), size, 1, total.data());
    double got = 0;
    ops_->CopyToHost(total.data(), sizeof(got), &got);
    EXPECT_NEAR(got, 1.5 * sum, 1e-9);
    EXPECT_NEAR(ops_->SquaredNorm(device.data(), size), squares,
                1e-12 * squares);
    Values copy = FloatGarbage(size);
    ops_->Copy(device.data(), size, copy.data());
    EXPECT_EQ(Host(copy), values);
    ops_->Zero(size, device.data());
    EXPECT_THAT(Host(device), testing::Each(0.0f));
  }
}

// The host need not keep the memory that was copied from, either.
TEST_F(OpsCudaTest, ShortCopiesToTheDeviceDoNotWait) {
  constexpr int kCopies = 20;
  std::vector<Values> copies;
  for (int i = 0; i < kCopies; ++i) copies.push_back(FloatGarbage(1000));
  const int64_t waits = ops_->waits();
  Floats host(1000);
  for (int i = 0; i < kCopies; ++i) {
    host = Random(1000, i);
    ops_->CopyToDevice(host.data(), host.size() * 4, copies[i].data());
  }
  EXPECT_EQ(ops_->waits(), waits);
  for (int i = 0; i < kCopies; ++i) {
    EXPECT_EQ(Host(copies[i]), Random(1000, i)) << i;
  }
  EXPECT_GT(ops_->waits(), waits);
}

TEST_F(OpsCudaTest, Embedding) {
  for (const int64_t width : {8, 264, 520}) {
    constexpr int64_t kRows = 1300;
    // Token 3 occurs often, most others once or not at all.
    std::vector<int32_t> tokens = RandomTokens(kRows, 700, 1);
    for (int64_t i = 0; i < kRows; i += 3) tokens[i] = 3;
    const Floats table = Random(700 * width, 2);
    Tokens device_tokens = Device(tokens);
    Values device_table = Device(table);
    Activations output = Garbage(kRows * width);
    ops_->Embedding(device_tokens.data(), device_table.data(), kRows, width,
                    output.data());
    Doubles want(kRows * width);
    reference::Embedding(tokens.data(), Widen(table).data(), kRows, width,
                         want.data());
    ExpectNear(Host(output), want, kRounding);

    const Floats before = Random(700 * width, 3);
    Floats d_output = Random(kRows * width, 4);
    Values d_table = Device(before);
    Activations device_d_output = Rounded(d_output);
    ops_->EmbeddingBackward(device_tokens.data(), device_d_output.data(), kRows,
                            width, d_table.data());
    Doubles want_d_table = Widen(before);
    reference::EmbeddingBackward(tokens.data(), Widen(d_output).data(), kRows,
                                 width, want_d_table.data());
    ExpectNear(Host(d_table), want_d_table, 3e-6);
  }
}

TEST_F(OpsCudaTest, AddActivations) {
  for (const int64_t size : {8, 264, 5000}) {
    Floats x = Random(size, 1);
    Floats y = Random(size, 2);
    Activations device_x = Rounded(x);
    Activations device_y = Rounded(y);
    ops_->AddActivations(device_x.data(), device_y.data(), size,
                         device_y.data());
    Doubles want = Widen(x);
    for (int64_t i = 0; i < size; ++i) want[i] += y[i];
    ExpectNear(Host(device_y), want, kRounding);
  }
}

TEST_F(OpsCudaTest, RmsNorm) {
  for (const int64_t rows : {1, 11, 600}) {
    // A thread has 1, 2, 4, 8 and 16 vectors of the longest rows.
    for (const int64_t width : {8, 264, 2056, 8192, 12000, 17000}) {
      if (rows > 11 && width > 264) continue;
      if (rows > 1 && width > 8192) continue;
      for (const bool add : {false, true}) {
        Floats x = Random(rows * width, 1);
        Floats delta = Random(rows * width, 2);
        const Floats gain = Random(width, 3);
        Activations device_x = Rounded(x);
        Activations device_delta = Rounded(delta);
        Values device_gain = Device(gain);
        Values inverse_rms = FloatGarbage(rows);
        Activations normalized = Garbage(rows * width);
        // This is in place, as the header allows.
        ops_->RmsNorm(device_x.data(), add ? device_delta.data() : nullptr,
                      device_gain.data(), rows, width, 1e-3f,
                      add ? device_x.data() : nullptr, inverse_rms.data(),
                      normalized.data());
        Doubles want_sum = Widen(x);
        Doubles want_inverse_rms(rows);
        Doubles want_normalized(rows * width);
        reference::RmsNorm<double>(
            Widen(x).data(), add ? Widen(delta).data() : nullptr,
            Widen(gain).data(), rows, width, 1e-3, want_sum.data(),
            want_inverse_rms.data(), want_normalized.data());
        const Floats sum = Host(device_x);
        ExpectNear(sum, want_sum, kRounding);
        ExpectNear(Host(inverse_rms), want_inverse_rms, kRounding);
        ExpectNear(Host(normalized), want_normalized, 2 * kRounding);

        Floats d_normalized = Random(rows * width, 4);
        Activations device_d_normalized = Rounded(d_normalized);
        for (const bool accumulate : {false, true}) {
          Floats d_x = Random(rows * width, 5);
          const Floats d_gain = Random(width, 6);
          Activations device_d_x = Rounded(d_x);
          Values device_d_gain = Device(d_gain);
          Activations again = Garbage(rows * width);
          ops_->RmsNormBackward(device_d_normalized.data(), device_x.data(),
                                inverse_rms.data(), device_gain.data(), rows,
                                width, accumulate, device_d_x.data(),
                                device_d_gain.data(), again.data());
          Doubles want_d_x = Widen(d_x);
          Doubles want_d_gain = Widen(d_gain);
          reference::RmsNormBackward(
              Widen(d_normalized).data(), Widen(sum).data(),
              Widen(Host(inverse_rms)).data(), Widen(gain).data(), rows, width,
              accumulate, want_d_x.data(), want_d_gain.data(),
              want_normalized.data());
          ExpectNear(Host(device_d_x), want_d_x, kRounding);
          ExpectNear(Host(device_d_gain), want_d_gain, 1e-5);
          EXPECT_EQ(Host(again), Host(normalized))
              << "the same bits as in the forward";
        }
      }
    }
  }
}

TEST_F(OpsCudaTest, Linear) {
  for (const LinearShape& shape :
       {LinearShape{1, 16, 8}, LinearShape{33, 48, 72}, LinearShape{40, 24, 37},
        LinearShape{130, 136, 64}}) {
    Floats input = Random(shape.rows * shape.in, 1);
    Floats weight = Random(shape.out * shape.in, 2);
    Floats d_output = Random(shape.rows * shape.out, 3);
    const Floats before = Random(shape.out * shape.in, 4);
    Activations device_input = Rounded(input);
    Activations device_weight = Rounded(weight);
    Activations device_d_output = Rounded(d_output);
    Activations output = Garbage(shape.rows * shape.out);
    Activations d_input = Garbage(shape.rows * shape.in);
    Values d_weight = Device(before);
    ops_->Linear(device_input.data(), device_weight.data(), shape,
                 output.data());
    ops_->LinearInputGradient(device_d_output.data(), device_weight.data(),
                              shape, d_input.data());
    ops_->LinearWeightGradient(device_d_output.data(), device_input.data(),
                               shape, d_weight.data());
    Doubles want_output(shape.rows * shape.out);
    Doubles want_d_input(shape.rows * shape.in);
    Doubles want_d_weight = Widen(before);
    reference::Linear(Widen(input).data(), Widen(weight).data(), shape,
                      want_output.data());
    reference::LinearInputGradient(Widen(d_output).data(), Widen(weight).data(),
                                   shape, want_d_input.data());
    reference::LinearWeightGradient(Widen(d_output).data(), Widen(input).data(),
                                    shape, want_d_weight.data());
    ExpectNear(Host(output), want_output, kRounding);
    ExpectNear(Host(d_input), want_d_input, kRounding);
    ExpectNear(Host(d_weight), want_d_weight, 1e-5);
  }
}

TEST_F(OpsCudaTest, SwiGlu) {
  for (const int64_t rows : {1, 50}) {
    for (const int64_t width : {8, 104}) {
      Floats gate_up = Random(2 * rows * width, 1);
      // The sigmoid's exponential overflows and underflows.
      gate_up[0] = -100;
      gate_up[gate_up.size() - width - 1] = 100;
      Activations device_gate_up = Rounded(gate_up);
      Activations output = Garbage(rows * width);
      ops_->SwiGlu(device_gate_up.data(), rows, width, output.data());
      Doubles want(rows * width);
      reference::SwiGlu(Widen(gate_up).data(), rows, width, want.data());
      ExpectNear(Host(output), want, kRounding);

      Floats d_output = Random(rows * width, 2);
      Activations shared = Rounded(d_output);
      Doubles want_d_gate_up(gate_up.size());
      reference::SwiGluBackward(Widen(gate_up).data(), Widen(d_output).data(),
                                rows, width, want_d_gate_up.data(),
                                want.data());
      // This is in place, as the header allows.
      ops_->SwiGluBackward(device_gate_up.data(), shared.data(), rows, width,
                           device_gate_up.data(), shared.data());
      ExpectNear(Host(device_gate_up), want_d_gate_up, kRounding);
      EXPECT_EQ(Host(shared), Host(output)) << "the same bits as forward";
    }
  }
}

TEST_F(OpsCudaTest, CrossEntropy) {
  for (const int64_t vocab_size : {1, 2, 16, 258, 1001, 6200}) {
    constexpr int64_t kRows = 5;
    std::vector<int32_t> targets =
        RandomTokens(kRows, static_cast<int32_t>(vocab_size), 1);
    targets[3] = -1;
    Floats logits = Random(kRows * vocab_size, 2);
    // The softmax must not depend on a common offset.
    for (float& logit : logits) logit = 10 * logit - 300;
    Tokens device_targets = Device(targets);
    Activations device_logits = Rounded(logits);
    Values losses = FloatGarbage(kRows);
    Doubles want = Widen(logits);
    Doubles want_losses(kRows);
    reference::CrossEntropyWithGradient<double>(targets.data(), kRows,
                                                vocab_size, 0.125, want.data(),
                                                want_losses.data());
    ops_->CrossEntropy(device_targets.data(), kRows, vocab_size, std::nullopt,
                       device_logits.data(), losses.data());
    ExpectNear(Host(losses), want_losses, 1e-4);
    device_logits = Rounded(logits);
    ops_->CrossEntropy(device_targets.data(), kRows, vocab_size, 0.125f,
                       device_logits.data(), losses.data());
    ExpectNear(Host(losses), want_losses, 1e-4);
    ExpectNear(Host(device_logits), want, kRounding);
  }
}

// Divergence must show in the loss wherever it begins.
TEST_F(OpsCudaTest, CrossEntropyKeepsNanOfAnyLogit) {
  for (const int64_t vocab_size : {37, 40}) {
    std::vector<int32_t> targets(vocab_size, 5);
    Floats logits(vocab_size * vocab_size, 1.0f);
    for (int64_t at = 0; at < vocab_size; ++at) {
      logits[at * vocab_size + at] = NAN;
    }
    Tokens device_targets = Device(targets);
    Activations device_logits = Rounded(logits);
    Values losses = FloatGarbage(vocab_size);
    ops_->Zero(vocab_size, losses.data());
    ops_->CrossEntropy(device_targets.data(), vocab_size, vocab_size, 1,
                       device_logits.data(), losses.data());
    for (const float loss : Host(losses)) EXPECT_TRUE(std::isnan(loss));
  }
}

TEST_F(OpsCudaTest, AdamW) {
  const AdamWCoefficients coefficients = {.gradient_scale = 0.5f,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.95f,
                                          .step_size = 0.3f,
                                          .inverse_sqrt_correction2 = 2,
                                          .epsilon = 1e-3f,
                                          .decay = 0.99f};
  for (const int64_t size : {1, 16, 1003}) {
    // Some arrays are not aligned to 16 bytes.
    for (const int64_t first : {0, 1}) {
      const Floats gradients = Random(size + first, 1);
      const Floats parameters = Random(size + first, 2);
      const Floats moments = Random(size + first, 3);
      Floats squares = Random(size + first, 4);
      for (float& value : squares) value = std::abs(value);
      Doubles want = Widen(parameters);
      Doubles want_first = Widen(moments);
      Doubles want_second = Widen(squares);
      reference::AdamW(coefficients, Widen(gradients).data() + first, size,
                       want.data() + first, want_first.data() + first,
                       want_second.data() + first);
      Values device_gradients = Device(gradients);
      Values device_parameters = Device(parameters);
      Values device_moments = Device(moments);
      Values device_squares = Device(squares);
      Values estimate = Device(parameters);
      ops_->AdamW(coefficients, device_gradients.data() + first, size,
                  device_parameters.data() + first,
                  device_moments.data() + first, device_squares.data() + first,
                  estimate.data() + first);
      EXPECT_EQ(Host(device_parameters), parameters);
      EXPECT_EQ(Host(device_moments), moments);
      EXPECT_EQ(Host(device_squares), squares);
      ops_->AdamW(coefficients, device_gradients.data() + first, size,
                  device_parameters.data() + first,
                  device_moments.data() + first, device_squares.data() + first,
                  /*estimate=*/nullptr);
      ExpectNear(Host(device_parameters), want, 3e-6);
      ExpectNear(Host(device_moments), want_first, 3e-6);
      ExpectNear(Host(device_squares), want_second, 3e-6);
      EXPECT_EQ(Host(estimate), Host(device_parameters))
          << "the same bits as the update";
    }
  }
}

TEST_F(OpsCudaTest, LinearCombination) {
  const Floats x = Random(1003, 1);
  const Floats y = Random(1003, 2);
  Doubles want = Widen(x);
  for (size_t i = 0; i < x.size(); ++i) want[i] = 3.0 * x[i] - 0.5 * y[i];
  Values to = Device(y);
  ops_->LinearCombination(3, Device(x).data(), -0.5f, to.data(), 1003,
                          to.data());
  ExpectNear(Host(to), want, 3e-6);
}

// bf16 has 8 bits, and errors carry over from product to product.
TEST_F(OpsCudaTest, Orthogonalize) {
  const std::vector<Quintic> iterations(5, {3.4445f, -4.7750f, 2.0315f});
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{16, 16}, {24, 72}, {72, 24}}) {
    const Floats matrix = Random(rows * columns, 1);
    Doubles want = Widen(matrix);
    reference::Orthogonalize<double>(iterations, rows, columns, want);
    Values values = Device(matrix);
    Values scratch = FloatGarbage(OrthogonalizeScratchSize(rows, columns));
    ops_->Orthogonalize(iterations, rows, columns, values.data(),
                        scratch.data());
    ExpectNear(Host(values), want, 0.06);
  }
}

}  // namespace
}  // namespace causeway
