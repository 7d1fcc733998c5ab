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
#include "worker/model/cuda/testing/ops_on_device.h"
#include "worker/model/device_array.h"
#include "worker/model/testing/ops_reference.h"
#include "worker/model/testing/random_values.h"

namespace causeway {
namespace {

// Half the largest relative distance of two neighbours in bf16.
constexpr double kRounding = 1.0 / 256;

class OpsCudaTest : public testing::Test {
 protected:
  void SetUp() override {
    ops_ = OpsOnDevice();
    if (ops_ == nullptr) GTEST_SKIP() << "there is no device";
  }

  // Activations in device memory; the host sees them as fp32.
  struct Activations {
    DeviceArray<uint16_t> memory;
    void* data() { return memory.data(); }
  };
  struct Values {
    DeviceArray<float> memory;
    float* data() { return memory.data(); }
  };
  struct Tokens {
    DeviceArray<int32_t> memory;
    int32_t* data() { return memory.data(); }
  };

  Values Device(const Floats& host) {
    auto memory = *DeviceArray<float>::Create(
        ops_.get(), static_cast<int64_t>(host.size()));
    ops_->CopyToDevice(host.data(), host.size() * 4, memory.data());
    return {std::move(memory)};
  }
  Tokens Device(const std::vector<int32_t>& host) {
    auto memory = *DeviceArray<int32_t>::Create(
        ops_.get(), static_cast<int64_t>(host.size()));
    ops_->CopyToDevice(host.data(), host.size() * 4, memory.data());
    return {std::move(memory)};
  }
  // Rounds `host` to bf16 and returns a copy on the device.
  Activations Rounded(Floats& host) {
    Values values = Device(host);
    auto memory = *DeviceArray<uint16_t>::Create(
        ops_.get(), static_cast<int64_t>(host.size()));
    ops_->RoundToActivations(values.data(), static_cast<int64_t>(host.size()),
                             memory.data());
    Activations activations = {std::move(memory)};
    host = Host(activations);
    return activations;
  }
  // Returns memory whose contents must be overwritten.
  Activations Garbage(int64_t size) {
    Floats values(static_cast<size_t>(size), NAN);
    return Rounded(values);
  }
  Values FloatGarbage(int64_t size) {
    return Device(Floats(static_cast<size_t>(size), NAN));
  }
  Floats Host(Activations& activations) {
    Floats host(static_cast<size_t>(activations.memory.size()));
    ops_->CopyActivationsToHost(activations.data(), activations.memory.size(),
                                host.data());
    EXPECT_THAT(ops_->Synchronize(), IsOk());
    return host;
  }
  Floats Host(Values& values) {
    Floats host(static_cast<size_t>(values.memory.size()));
    ops_->CopyToHost(values.data(), host.size() * 4, host.data());
    EXPECT_THAT(ops_->Synchronize(), IsOk());
    return host;
  }

  std::unique_ptr<Ops> ops_;
};

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

TEST_F(OpsCudaTest, WideningKeepsValues) {
  for (const int64_t size : {1, 7, 8, 1003}) {
    Floats values = Random(size, 3);
    if (size > 1) values[1] = -INFINITY;
    Activations from = Rounded(values);
    Values to = FloatGarbage(size);
    ops_->WidenActivations(from.data(), size, to.data());
    EXPECT_EQ(Host(to), values) << size;
  }
}

// Each gradient is added to the earlier sum, which is rounded once.
TEST_F(OpsCudaTest, GradientsAreSummedInBf16) {
  const LinearShape shape = {.rows = 40, .in = 24, .out = 40};
  const std::vector<int32_t> tokens =
      RandomTokens(shape.rows, static_cast<int32_t>(shape.out), 1);
  Floats input = Random(shape.rows * shape.in, 2);
  Floats d_output = Random(shape.rows * shape.out, 3);
  const Floats inverse_rms(shape.rows, 1);
  const Floats gain = Random(shape.in, 4);
  Tokens device_tokens = Device(tokens);
  Activations device_input = Rounded(input);
  Activations device_d_output = Rounded(d_output);
  Values device_inverse_rms = Device(inverse_rms);
  Values device_gain = Device(gain);
  Activations ignored[] = {Garbage(shape.rows * shape.in),
                           Garbage(shape.rows * shape.in)};
  const std::pair<const char*, std::function<void(GradientSum)>> operations[] =
      {{"weights",
        [&](GradientSum sum) {
          ops_->LinearWeightGradient(device_d_output.data(),
                                     device_input.data(), shape, sum);
        }},
       {"embedding",
        [&](GradientSum sum) {
          ops_->EmbeddingBackward(device_tokens.data(), device_input.data(),
                                  shape.rows, shape.in, sum);
        }},
       {"bias",
        [&](GradientSum sum) {
          ops_->AddBiasBackward(device_input.data(), shape.rows, shape.in, sum);
        }},
       {"gain", [&](GradientSum sum) {
          ops_->RmsNormBackward(device_input.data(), device_input.data(),
                                device_inverse_rms.data(), device_gain.data(),
                                shape.rows, shape.in, /*accumulate=*/false,
                                ignored[0].data(), sum, ignored[1].data());
        }}};
  for (const auto& [name, operation] : operations) {
    SCOPED_TRACE(name);
    Floats before = Random(shape.out * shape.in, 5);
    Activations sums = Rounded(before);
    operation(GradientSum::Bf16(sums.data()));
    Values want = Device(before);
    operation(want.data());
    const Floats got = Host(sums);
    EXPECT_NE(got, before);
    const Floats exact = Host(want);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], exact[i], kRounding * std::abs(exact[i]) + 1e-4) << i;
    }
  }
}

TEST_F(OpsCudaTest, RoundsAtRandomAsTheReference) {
  for (const int64_t size : {1, 7, 8, 1003}) {
    Floats values = Random(size, 5);
    values[0] = std::numeric_limits<float>::max();
    if (size > 4) values[4] = -INFINITY;
    if (size > 5) values[5] = 0.5f;
    Values from = Device(values);
    Activations to = Garbage(size);
    const uint64_t seed = 0x123456789abcdef0 + static_cast<uint64_t>(size);
    ops_->RoundToActivationsAtRandom(from.data(), size, seed, to.data());
    for (int64_t i = 0; i < size; ++i) {
      values[i] = reference::RoundToBf16AtRandom(values[i], seed, i);
    }
    EXPECT_EQ(Host(to), values) << size;
  }
}

TEST_F(OpsCudaTest, RoundingAtRandomIsUnbiased) {
  // The mean of n roundings is within 5 standard deviations of the value. One
  // deviation is at most half the distance of the neighbours, 2^-8.
  constexpr int kSeeds = 2000;
  const Floats values = {1 + 0x1p-9f, -1 - 0x1.cp-8f, 1 + 0x1.1p-8f,
                         1.5f,        1 + 0x1p-15f,   -0x1.01p-120f};
  const auto size = static_cast<int64_t>(values.size());
  Values from = Device(values);
  Activations to = Garbage(size);
  Doubles sums(values.size());
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    ops_->RoundToActivationsAtRandom(from.data(), size, seed, to.data());
    const Floats rounded = Host(to);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += rounded[i];
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const double step = std::exp2(std::ilogb(values[i]) - 7);
    EXPECT_NEAR(sums[i] / kSeeds, values[i], 5 * 0.5 * step / std::sqrt(kSeeds))
        << i;
  }
  EXPECT_EQ(sums[3], 1.5 * kSeeds) << "what is a bf16 stays";
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
    constexpr int64_t kRows = 300;
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

TEST_F(OpsCudaTest, RmsNorm) {
  for (const int64_t rows : {1, 11, 600}) {
    for (const int64_t width : {8, 264, 2056}) {
      if (rows > 11 && width > 264) continue;
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

// Batch, length, heads, key heads, head size. Tiles of 128 or 64 positions meet
// tiles of 64 or 32.
const AttentionShape kAttentionShapes[] = {
    {1, 1, 1, 1, 16},  {2, 5, 4, 4, 32},   {1, 64, 2, 1, 64},
    {2, 65, 6, 2, 48}, {1, 200, 1, 1, 64}, {1, 150, 2, 1, 128},
    {1, 33, 3, 3, 80},
};

TEST_F(OpsCudaTest, Bias) {
  for (const int64_t rows : {1, 11, 600}) {
    for (const int64_t width : {8, 264, 2056}) {
      if (rows > 11 && width > 264) continue;
      const Floats bias = Random(width, 1);
      Floats values = Random(rows * width, 2);
      const Floats before = Random(width, 3);
      Values device_bias = Device(bias);
      Activations device_values = Rounded(values);
      Values d_bias = Device(before);
      ops_->AddBiasBackward(device_values.data(), rows, width, d_bias.data());
      Doubles want_d_bias = Widen(before);
      reference::AddBiasBackward(Widen(values).data(), rows, width,
                                 want_d_bias.data());
      ExpectNear(Host(d_bias), want_d_bias, 1e-5);
      ops_->AddBias(device_bias.data(), rows, width, device_values.data());
      Doubles want = Widen(values);
      reference::AddBias(Widen(bias).data(), rows, width, want.data());
      ExpectNear(Host(device_values), want, kRounding);
    }
  }
}

TEST_F(OpsCudaTest, QkNorm) {
  std::vector<AttentionShape> shapes(std::begin(kAttentionShapes),
                                     std::end(kAttentionShapes));
  // More rows than one pass of the gradient's blocks takes.
  shapes.push_back({1, 4100, 2, 1, 16});
  for (const AttentionShape& shape : shapes) {
    const Floats gains = Random(2 * shape.head_dim, 1);
    Floats qkv = Random(shape.rows() * shape.qkv_width(), 2);
    Values device_gains = Device(gains);
    Activations device_qkv = Rounded(qkv);
    Activations raw = Garbage(shape.rows() * shape.qk_width());
    Values inverse_rms = FloatGarbage(shape.rows() * shape.qk_heads());
    ops_->QkNorm(shape, device_gains.data(), 1e-3f, device_qkv.data(),
                 raw.data(), inverse_rms.data());
    Doubles want = Widen(qkv);
    Doubles want_raw(shape.rows() * shape.qk_width());
    Doubles want_inverse_rms(shape.rows() * shape.qk_heads());
    reference::QkNorm(shape, Widen(gains).data(), 1e-3, want.data(),
                      want_raw.data(), want_inverse_rms.data());
    ExpectNear(Host(device_qkv), want, kRounding);
    ExpectNear(Host(raw), want_raw, 0);
    ExpectNear(Host(inverse_rms), want_inverse_rms, 1e-6);

    Floats d_qkv = Random(shape.rows() * shape.qkv_width(), 3);
    const Floats before = Random(2 * shape.head_dim, 4);
    Activations device_d_qkv = Rounded(d_qkv);
    Values d_gains = Device(before);
    ops_->QkNormBackward(shape, raw.data(), inverse_rms.data(),
                         device_gains.data(), device_d_qkv.data(),
                         d_gains.data());
    Doubles want_d_qkv = Widen(d_qkv);
    Doubles want_d_gains = Widen(before);
    reference::QkNormBackward(shape, want_raw.data(), want_inverse_rms.data(),
                              Widen(gains).data(), want_d_qkv.data(),
                              want_d_gains.data());
    ExpectNear(Host(device_d_qkv), want_d_qkv, kRounding);
    ExpectNear(Host(d_gains), want_d_gains, 1e-5);
  }
}

TEST_F(OpsCudaTest, Rope) {
  for (const AttentionShape& shape : kAttentionShapes) {
    const Floats cosine = Random(shape.length * shape.head_dim / 2, 1);
    const Floats sine = Random(shape.length * shape.head_dim / 2, 2);
    Values device_cosine = Device(cosine);
    Values device_sine = Device(sine);
    for (const RopeDirection direction :
         {RopeDirection::kForward, RopeDirection::kBackward}) {
      Floats qkv = Random(shape.rows() * shape.qkv_width(), 3);
      Activations device_qkv = Rounded(qkv);
      Doubles want = Widen(qkv);
      ops_->Rope(shape, {device_cosine.data(), device_sine.data()}, direction,
                 device_qkv.data());
      reference::Rope(shape, Widen(cosine).data(), Widen(sine).data(),
                      direction, want.data());
      ExpectNear(Host(device_qkv), want, kRounding);
    }
  }
}

TEST_F(OpsCudaTest, Attention) {
  for (const auto& [shape, documents] : WithDocuments(kAttentionShapes)) {
    Floats qkv = Random(shape.rows() * shape.qkv_width(), 1);
    Tokens device_documents = Device(documents);
    AttentionShape device_shape = shape;
    if (!documents.empty()) {
      device_shape.document_begin = device_documents.data();
    }
    Activations device_qkv = Rounded(qkv);
    Activations output = Garbage(shape.rows() * shape.query_width());
    Values log_sum_exp = FloatGarbage(shape.rows() * shape.heads);
    ops_->Attention(device_shape, device_qkv.data(), output.data(),
                    log_sum_exp.data());
    Doubles want_output(shape.rows() * shape.query_width());
    Doubles want_log_sum_exp(shape.rows() * shape.heads);
    reference::Attention(shape, Widen(qkv).data(), want_output.data(),
                         want_log_sum_exp.data());
    ExpectNear(Host(output), want_output, 2 * kRounding);
    ExpectNear(Host(log_sum_exp), want_log_sum_exp, 1e-5);

    Floats d_output = Random(shape.rows() * shape.query_width(), 2);
    Activations device_d_output = Rounded(d_output);
    Activations d_qkv = Garbage(shape.rows() * shape.qkv_width());
    ops_->AttentionBackward(device_shape, device_qkv.data(), output.data(),
                            log_sum_exp.data(), device_d_output.data(),
                            d_qkv.data());
    Doubles want_d_qkv(qkv.size());
    reference::AttentionBackward(shape, Widen(qkv).data(), want_output.data(),
                                 want_log_sum_exp.data(),
                                 Widen(d_output).data(), want_d_qkv.data());
    ExpectNear(Host(d_qkv), want_d_qkv, 3 * kRounding);
  }
}

TEST_F(OpsCudaTest, AttentionOfHugeScoresStaysFinite) {
  const AttentionShape shape = {1, 70, 1, 1, 16};
  Floats qkv = Random(shape.rows() * shape.qkv_width(), 1);
  for (float& value : qkv) value *= 1e3f;
  Activations device_qkv = Rounded(qkv);
  Activations output = Garbage(shape.rows() * shape.query_width());
  Values log_sum_exp = FloatGarbage(shape.rows());
  Activations d_qkv = Garbage(static_cast<int64_t>(qkv.size()));
  ops_->Attention(shape, device_qkv.data(), output.data(), log_sum_exp.data());
  ops_->AttentionBackward(shape, device_qkv.data(), output.data(),
                          log_sum_exp.data(), output.data(), d_qkv.data());
  const auto finite = [](float value) { return std::isfinite(value); };
  const Floats got = Host(output);
  const Floats gradient = Host(d_qkv);
  EXPECT_TRUE(std::all_of(got.begin(), got.end(), finite));
  EXPECT_TRUE(std::all_of(gradient.begin(), gradient.end(), finite));
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
  for (const int64_t vocab_size : {1, 2, 16, 258, 3000}) {
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

}  // namespace
}  // namespace causeway
