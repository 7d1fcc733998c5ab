// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The suite of ops_suite.h in the emulator; and that results do not depend on
// which thread of a block comes first, nor on when copies are done.
#include "worker/model/cuda/kernel_ops.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/model/cuda/device_emulator.h"
#include "worker/model/cuda/ops_emulated.h"
#include "worker/model/cuda/ops_suite.h"

namespace causeway {

std::unique_ptr<Ops> NewOpsUnderTest() { return MakeEmulatedOps(); }

namespace {

// With the threads in reverse order, a read that no barrier protects sees other
// values than in the suite.
class KernelOpsTest : public testing::Test {
 protected:
  ~KernelOpsTest() override { Run(emulator::Order::kForward); }

  static void Run(emulator::Order order,
                  emulator::Copies copies = emulator::Copies::kWhenAwaited) {
    emulator::SetOrder(order);
    emulator::SetCopies(copies);
  }

  // Of attention and its gradient, in order.
  std::vector<Bf16> AttendAndBack(int64_t head_dim) {
    const AttentionShape shape = {1, 150, 2, 1, head_dim};
    std::vector<Bf16> qkv(shape.rows() * shape.qkv_width() + kVector);
    for (size_t i = 0; i < qkv.size(); ++i) {
      qkv[i] = ToBf16(static_cast<float>(i * 7919 % 1009) / 500 - 1);
    }
    std::vector<float> log_sum_exp(shape.rows() * shape.heads);
    std::vector<Bf16> results(shape.rows() *
                              (shape.query_width() + shape.qkv_width()));
    Bf16* const d_qkv = results.data() + shape.rows() * shape.query_width();
    const std::unique_ptr<Ops> ops = MakeEmulatedOps();
    ops->Attention(shape, qkv.data(), results.data(), log_sum_exp.data());
    ops->AttentionBackward(shape, qkv.data(), results.data(),
                           log_sum_exp.data(), results.data(), d_qkv);
    return results;
  }
};

TEST_F(KernelOpsTest, AttentionDoesNotDependOnTheOrderOfThreadsAndCopies) {
  for (const int64_t head_dim : {64, 128}) {
    Run(emulator::Order::kForward);
    const std::vector<Bf16> want = AttendAndBack(head_dim);
    for (const auto copies :
         {emulator::Copies::kAtOnce, emulator::Copies::kWhenAwaited}) {
      Run(emulator::Order::kBackward, copies);
      const std::vector<Bf16> got = AttendAndBack(head_dim);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].bits, want[i].bits) << i;
      }
    }
  }
}

TEST_F(KernelOpsTest, BlockSumsDoNotDependOnTheOrderOfThreads) {
  std::vector<float> values(5000);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 1 / static_cast<float>(i + 1);
  }
  const std::unique_ptr<Ops> ops = MakeEmulatedOps();
  const double forward = ops->SquaredNorm(values.data(), 5000);
  Run(emulator::Order::kBackward);
  EXPECT_EQ(ops->SquaredNorm(values.data(), 5000), forward);
}

// What the emulator itself promises, by the definition in the PTX manual: A is
// the identity, so that the product shows where each value of B lies.
TEST_F(KernelOpsTest, TheEmulatedTensorCoreMultiplies) {
  float product[16][8] = {};
  emulator::Emulate({}, 32, 0, [&] {
    const int group = static_cast<int>(LaneIndex()) / 4;
    const int column = static_cast<int>(LaneIndex()) % 4 * 2;
    const auto identity = [&](int row, int k) {
      return PackBf16(row == k ? 1.0f : 0.0f, row == k + 1 ? 1.0f : 0.0f);
    };
    const uint32_t a[4] = {identity(group, column), identity(group + 8, column),
                           identity(group, column + 8),
                           identity(group + 8, column + 8)};
    // B[k][n] = 8 k + n; this lane's column is `group`.
    const auto of_b = [&](int k) {
      return PackBf16(static_cast<float>(8 * k + group),
                      static_cast<float>(8 * (k + 1) + group));
    };
    float sums[4] = {};
    MultiplyAdd(a, of_b(column), of_b(column + 8), sums);
    for (int i = 0; i < 4; ++i) {
      product[group + i / 2 * 8][column + i % 2] = sums[i];
    }
  });
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      EXPECT_EQ(product[row][column], 8 * row + column);
    }
  }
}

}  // namespace
}  // namespace causeway
