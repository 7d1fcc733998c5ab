// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares the operations between the projections of attention on a device with
// the double reference.

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/model/cuda/ops_cuda.h"
#include "worker/model/cuda/testing/ops_cuda_fixture.h"
#include "worker/model/ops.h"
#include "worker/model/testing/ops_reference.h"
#include "worker/model/testing/random_values.h"

namespace causeway {
namespace {

// Skips the test if there is no cuDNN, and fails it if cuDNN refuses the shape.
#define SKIP_WITHOUT_CUDNN(shape)                                         \
  const absl::Status cudnn = PrepareCudnn(shape, *ops_);                  \
  if (absl::IsFailedPrecondition(cudnn)) GTEST_SKIP() << cudnn.message(); \
  ASSERT_OK(cudnn)

class AttentionCudaTest : public OpsCudaTest {
 protected:
  struct Results {
    Floats output;
    Floats log_sum_exp;
    Floats d_qkv;
  };
  Results Attend(const AttentionShape& shape, Activations& qkv,
                 Activations& d_output, Ops& ops) {
    Activations output = Garbage(shape.rows() * shape.query_width());
    Values log_sum_exp = FloatGarbage(shape.rows() * shape.heads);
    Activations d_qkv = Garbage(shape.rows() * shape.qkv_width());
    ops.Attention(shape, qkv.data(), output.data(), log_sum_exp.data());
    ops.AttentionBackward(shape, qkv.data(), output.data(), log_sum_exp.data(),
                          d_output.data(), d_qkv.data());
    EXPECT_THAT(ops.Synchronize(), IsOk());
    return {Host(output), Host(log_sum_exp), Host(d_qkv)};
  }

  void ExpectLikeReference(const AttentionShape& shape,
                           const std::vector<int32_t>& documents) {
    Floats qkv = Random(shape.rows() * shape.qkv_width(), 1);
    Floats d_output = Random(shape.rows() * shape.query_width(), 2);
    Activations device_qkv = Rounded(qkv);
    Activations device_d_output = Rounded(d_output);
    Tokens device_documents = Device(documents);
    AttentionShape device_shape = shape;
    if (!documents.empty()) {
      device_shape.document_begin = device_documents.data();
    }
    const Results got =
        Attend(device_shape, device_qkv, device_d_output, *ops_);

    Doubles output(shape.rows() * shape.query_width());
    Doubles log_sum_exp(shape.rows() * shape.heads);
    Doubles d_qkv(qkv.size());
    reference::Attention(shape, Widen(qkv).data(), output.data(),
                         log_sum_exp.data());
    reference::AttentionBackward(shape, Widen(qkv).data(), output.data(),
                                 log_sum_exp.data(), Widen(d_output).data(),
                                 d_qkv.data());
    ExpectNear(got.output, output, 2 * kRounding);
    ExpectNear(got.log_sum_exp, log_sum_exp, 1e-5);
    ExpectNear(got.d_qkv, d_qkv, 3 * kRounding);
  }
};

// Batch, length, heads, key heads, head size. Tiles of 128 or 64 positions meet
// tiles of 64 or 32.
const AttentionShape kAttentionShapes[] = {
    {1, 1, 1, 1, 16},  {2, 5, 4, 4, 32},   {1, 64, 2, 1, 64},
    {2, 65, 6, 2, 48}, {1, 200, 1, 1, 64}, {1, 150, 2, 1, 128},
    {1, 33, 3, 3, 80},
};

TEST_F(AttentionCudaTest, Bias) {
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

TEST_F(AttentionCudaTest, QkNorm) {
  std::vector<QkNormShape> shapes;
  for (const AttentionShape& shape : kAttentionShapes) {
    shapes.push_back({shape, /*across_heads=*/false});
    shapes.push_back({shape, /*across_heads=*/true});
  }
  // More rows than one pass of the gradient's blocks takes.
  shapes.push_back({AttentionShape{1, 4100, 2, 1, 16}, false});
  shapes.push_back({AttentionShape{1, 600, 9, 1, 16}, true});
  for (const QkNormShape& shape : shapes) {
    const Floats gains = Random(shape.gains(), 1);
    Floats qkv = Random(shape.rows * shape.row_width, 2);
    Values device_gains = Device(gains);
    Activations device_qkv = Rounded(qkv);
    Activations raw = Garbage(shape.rows * shape.qk_width);
    Values inverse_rms = FloatGarbage(shape.rows * shape.groups());
    ops_->QkNorm(shape, device_gains.data(), 1e-3f, device_qkv.data(),
                 raw.data(), inverse_rms.data());
    Doubles want = Widen(qkv);
    Doubles want_raw(shape.rows * shape.qk_width);
    Doubles want_inverse_rms(shape.rows * shape.groups());
    reference::QkNorm(shape, Widen(gains).data(), 1e-3, want.data(),
                      want_raw.data(), want_inverse_rms.data());
    ExpectNear(Host(device_qkv), want, kRounding);
    ExpectNear(Host(raw), want_raw, 0);
    ExpectNear(Host(inverse_rms), want_inverse_rms, 1e-6);

    Floats d_qkv = Random(shape.rows * shape.row_width, 3);
    const Floats before = Random(shape.gains(), 4);
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

TEST_F(AttentionCudaTest, Rope) {
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

TEST_F(AttentionCudaTest, Attention) {
  for (const auto& [shape, documents] : WithDocuments(kAttentionShapes)) {
    ExpectLikeReference(shape, documents);
  }
}

// cuDNN takes multiples of 128 positions.
TEST_F(AttentionCudaTest, AttentionByCudnn) {
  for (const AttentionShape& shape :
       {AttentionShape{2, 128, 4, 2, 64}, AttentionShape{1, 256, 2, 1, 128},
        AttentionShape{1, 384, 3, 3, 80}, AttentionShape{3, 128, 2, 2, 16}}) {
    SKIP_WITHOUT_CUDNN(shape);
    ExpectLikeReference(shape, {});
  }
}

TEST_F(AttentionCudaTest, AttentionByCudnnInAGraph) {
  const AttentionShape shape = {2, 256, 4, 2, 64};
  SKIP_WITHOUT_CUDNN(shape);
  Floats qkv = Random(shape.rows() * shape.qkv_width(), 1);
  Floats d_output = Random(shape.rows() * shape.query_width(), 2);
  Activations device_qkv = Rounded(qkv);
  Activations device_d_output = Rounded(d_output);
  const Results want = Attend(shape, device_qkv, device_d_output, *ops_);
  Activations output = Garbage(shape.rows() * shape.query_width());
  Values log_sum_exp = FloatGarbage(shape.rows() * shape.heads);
  Activations d_qkv = Garbage(shape.rows() * shape.qkv_width());
  const int64_t allocations = ops_->allocations();
  int calls = 0;
  for (int i = 0; i < 3; ++i) {
    ops_->Zero(shape.rows() * shape.qkv_width() / 2,
               static_cast<float*>(d_qkv.data()));
    ops_->Replay({1, 2, 3, 4, 5}, [&] {
      ++calls;
      ops_->Attention(shape, device_qkv.data(), output.data(),
                      log_sum_exp.data());
      ops_->AttentionBackward(shape, device_qkv.data(), output.data(),
                              log_sum_exp.data(), device_d_output.data(),
                              d_qkv.data());
    });
  }
  EXPECT_EQ(calls, 2) << "the third pass is no recording";
  EXPECT_EQ(ops_->allocations(), allocations);
  EXPECT_EQ(Host(output), want.output);
  EXPECT_EQ(Host(log_sum_exp), want.log_sum_exp);
  EXPECT_EQ(Host(d_qkv), want.d_qkv);
}

// On devices with less than 256 GiB the backward pass takes a part of the heads
// at a time, or of the sequences.
TEST_F(AttentionCudaTest, AttentionByCudnnInParts) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Ops> kernels,
                       MakeCudaOps(0, {.may_use_cudnn = false}));
  for (const AttentionShape& shape : {AttentionShape{1, 16384, 8, 8, 16},
                                      AttentionShape{4, 4096, 32, 8, 16}}) {
    SKIP_WITHOUT_CUDNN(shape);
    Floats qkv = Random(shape.rows() * shape.qkv_width(), 1);
    Floats d_output = Random(shape.rows() * shape.query_width(), 2);
    Activations device_qkv = Rounded(qkv);
    Activations device_d_output = Rounded(d_output);
    const Results want = Attend(shape, device_qkv, device_d_output, *kernels);
    const Results got = Attend(shape, device_qkv, device_d_output, *ops_);
    ExpectNear(got.output, Widen(want.output), 2 * kRounding);
    ExpectNear(got.log_sum_exp, Widen(want.log_sum_exp), 1e-5);
    ExpectNear(got.d_qkv, Widen(want.d_qkv), 3 * kRounding);
    // The same call gives the same bits.
    const Results again = Attend(shape, device_qkv, device_d_output, *ops_);
    EXPECT_EQ(again.output, got.output);
    EXPECT_EQ(again.log_sum_exp, got.log_sum_exp);
    EXPECT_EQ(again.d_qkv, got.d_qkv);
  }
}

TEST_F(AttentionCudaTest, AttentionOfHugeScoresStaysFinite) {
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

}  // namespace
}  // namespace causeway
