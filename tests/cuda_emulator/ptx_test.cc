// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cuda_emulator/ptx_machine.h"
#include "tests/cuda_emulator/ptx_program.h"

namespace causeway::ptx {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kThreads = 64;

// Runs kernels with one parameter, the address of kThreads words.
class PtxTest : public testing::Test {
 protected:
  PtxTest() : words_(kThreads, 0xdeadbeef) {
    memory_.Pin(words_.data(), words_.size() * sizeof(uint32_t));
  }

  // Runs `body`. %rd0 has the address of the words, %rd1 the address of this
  // thread's word, and %r0 the thread's number.
  absl::Status Run(const std::string& body, const std::string& before = "") {
    const absl::StatusOr<std::unique_ptr<Program>> program =
        ReadProgram(absl::StrCat(R"(
.version 9.0
.target sm_80
.address_size 64
)",
                                 before, R"(
.visible .entry Kernel(
	.param .u64 Kernel_param_0
)
{
	.reg .b64 %rd<9>;
	ld.param.u64 	%rd0, [Kernel_param_0];
	mov.u32 	%r0, %tid.x;
	mul.wide.u32 	%rd1, %r0, 4;
	add.s64 	%rd1, %rd0, %rd1;
)",
                                 body, "\n	ret;\n}\n"));
    if (!program.ok()) return program.status();
    const uint32_t* const address = words_.data();
    std::vector<char> parameters(sizeof(address));
    std::memcpy(parameters.data(), &address, sizeof(address));
    Grid grid;
    grid.threads = kThreads;
    return RunKernel(**program, "Kernel", grid, parameters, memory_);
  }

  // Returns the value of %r9 that thread 0 computes.
  uint32_t ResultOf(const std::string& code) {
    EXPECT_THAT(Run(absl::StrCat(code, "\nst.global.u32 [%rd1], %r9;")),
                IsOk());
    return words_[0];
  }

  std::vector<uint32_t> words_;
  DeviceMemory memory_;
};

TEST(DeviceMemoryTest, HostAndDeviceHaveDifferentAddresses) {
  DeviceMemory memory;
  auto* const address = static_cast<char*>(memory.Allocate(5000, 1));
  EXPECT_EQ(memory.InHost(address)[4999], static_cast<char>(0xff));
  const auto begin = reinterpret_cast<uintptr_t>(address);
  EXPECT_EQ(memory.Around(begin + 4999, 1), std::pair(begin, begin + 5000));
  EXPECT_EQ(memory.Around(begin + 5000, 1).second, 0);
  EXPECT_EQ(memory.Around(begin, 0).second, 0);
  EXPECT_DEATH(address[7] = 1, "");
  EXPECT_TRUE(memory.Remove(address, /*pinned=*/false).has_value());
  EXPECT_DEATH(memory.InHost(address)[7] = 1, "");
  EXPECT_NE(memory.Allocate(5000, 1), address);
}

TEST_F(PtxTest, LanesGoTheirOwnWaysAndMeetAgain) {
  // The kernel counts steps of the Collatz sequence, then sums a warp's
  // numbers.
  ASSERT_THAT(Run(R"(
	add.s32 	%r1, %r0, 1;
	mov.u32 	%r2, 0;
$L_next:
	setp.eq.s32 	%p1, %r1, 1;
	@%p1 bra 	$L_end;
	add.s32 	%r2, %r2, 1;
	and.b32 	%r3, %r1, 1;
	setp.eq.b32 	%p2, %r3, 0;
	@%p2 bra 	$L_even;
	mad.lo.s32 	%r1, %r1, 3, 1;
	bra.uni 	$L_next;
$L_even:
	shr.u32 	%r1, %r1, 1;
	bra.uni 	$L_next;
$L_end:
	shfl.sync.bfly.b32 	%r4|%p3, %r2, 1, 31, -1;
	add.s32 	%r5, %r2, %r4;
	st.global.u32 	[%rd1], %r5;
)"),
              IsOk());
  const auto steps = [](uint32_t number) {
    uint32_t count = 0;
    for (; number != 1; ++count) {
      number = number % 2 == 0 ? number / 2 : 3 * number + 1;
    }
    return count;
  };
  for (uint32_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(words_[i], steps(i + 1) + steps((i ^ 1) + 1)) << i;
  }
}

// In this kernel each thread writes its number, and reads one that another warp
// wrote.
std::string Exchange(const std::string& between) {
  return absl::StrCat(R"(
	shl.b32 	%r1, %r0, 2;
	mov.u32 	%r2, shared_words;
	add.s32 	%r3, %r2, %r1;
	st.shared.u32 	[%r3], %r0;
)",
                      between, R"(
	xor.b32 	%r4, %r1, 252;
	add.s32 	%r5, %r2, %r4;
	ld.shared.u32 	%r6, [%r5];
	st.global.u32 	[%rd1], %r6;
)");
}
constexpr char kSharedWords[] = ".shared .align 4 .b8 shared_words[256];";

TEST_F(PtxTest, BarriersSeparateWarps) {
  ASSERT_THAT(Run(Exchange("bar.sync 0;"), kSharedWords), IsOk());
  for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(words_[i], 63 - i);
}

TEST_F(PtxTest, AMissingBarrierIsSeen) {
  EXPECT_THAT(Run(Exchange(""), kSharedWords),
              IsInternal("with no barrier between"));
}

TEST_F(PtxTest, SharedMemoryHasAnEnd) {
  EXPECT_THAT(Run("ld.shared.u32 %r1, [shared_words+256];", kSharedWords),
              IsInternal("beyond shared memory"));
}

TEST_F(PtxTest, GlobalMemoryHasAnEnd) {
  EXPECT_THAT(Run("ld.global.u32 %r1, [%rd0+256];"),
              IsInternal("the device has no memory"));
}

TEST_F(PtxTest, VectorsAreAligned) {
  EXPECT_THAT(Run("ld.global.v2.u32 {%r1, %r2}, [%rd0+4];"),
              IsInternal("misaligned address"));
}

TEST_F(PtxTest, TrapsAreErrors) {
  EXPECT_THAT(Run("setp.eq.s32 %p1, %r0, 40;\n@%p1 trap;"),
              IsInternal("trap: @%p1 trap, block 0,0,0, threads from "
                         "32"));
}

TEST_F(PtxTest, AShuffleIsForAllLanes) {
  EXPECT_THAT(Run(R"(
	setp.lt.u32 	%p1, %r0, 7;
	@%p1 bra 	$L_end;
	shfl.sync.bfly.b32 	%r4|%p3, %r0, 1, 31, -1;
$L_end:
)"),
              IsInternal("wait for others of their warp that never "
                         "come"));
}

TEST_F(PtxTest, FunctionsGetTheirArguments) {
  ASSERT_THAT(Run(R"(
	{
	.param .b64 param0;
	st.param.b64 	[param0+0], %rd1;
	.param .b32 param1;
	st.param.b32 	[param1+0], %r0;
	call.uni Square, (param0, param1);
	}
)",
                  R"(
.func Square(.param .b64 Square_param_0, .param .b32 Square_param_1);
.func Square(
	.param .b64 Square_param_0,
	.param .b32 Square_param_1
)
{
	ld.param.u64 	%rd1, [Square_param_0];
	ld.param.u32 	%r1, [Square_param_1];
	mul.lo.s32 	%r2, %r1, %r1;
	st.u32 	[%rd1], %r2;
	ret;
}
)"),
              IsOk());
  for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(words_[i], i * i);
}

TEST_F(PtxTest, CopiesAreDoneWhenTheyAreWaitedFor) {
  const auto copy = [](const std::string& wait) {
    return absl::StrCat(R"(
	setp.ne.s32 	%p1, %r0, 0;
	@%p1 bra 	$L_end;
	mov.u32 	%r1, shared_words;
	cp.async.cg.shared.global 	[%r1], [%rd0], 16, 8;
	cp.async.commit_group;
)",
                        wait, R"(
	ld.shared.v4.u32 	{%r2, %r3, %r4, %r5}, [%r1];
	st.global.v4.u32 	[%rd0+16], {%r2, %r3, %r4, %r5};
$L_end:
)");
  };
  const std::string shared = ".shared .align 16 .b8 shared_words[16];";
  ASSERT_THAT(Run(copy("cp.async.wait_group 1;"), shared), IsOk());
  EXPECT_EQ(words_[4], 0xffffffff);
  ASSERT_THAT(Run(copy("cp.async.wait_group 0;"), shared), IsOk());
  EXPECT_EQ(words_[4], 0xdeadbeef);
  EXPECT_EQ(words_[6], 0u) << "beyond the bytes that are read";
}

TEST_F(PtxTest, NumbersAreRoundedAsTheManualSays) {
  const auto bits = [](float value) {
    return absl::StrCat("0f", absl::Hex(std::bit_cast<uint32_t>(value)));
  };
  const auto convert = [&](const std::string& operation, float value) {
    return static_cast<int32_t>(ResultOf(absl::StrCat(
        "mov.f32 %f1, ", bits(value), ";\n", operation, " %r9, %f1;")));
  };
  EXPECT_EQ(convert("cvt.rni.s32.f32", 2.5f), 2);
  EXPECT_EQ(convert("cvt.rni.s32.f32", 3.5f), 4);
  EXPECT_EQ(convert("cvt.rzi.s32.f32", -2.5f), -2);
  EXPECT_EQ(convert("cvt.rmi.s32.f32", -2.5f), -3);
  EXPECT_EQ(convert("cvt.rzi.s32.f32", 1e20f), 2147483647);
  EXPECT_EQ(convert("cvt.rzi.s32.f32", std::nanf("")), 0);
  EXPECT_EQ(convert("cvt.rzi.u32.f32", -1.0f), 0);
  // The first operand goes to the upper half; ties go to even.
  EXPECT_EQ(ResultOf("cvt.rn.bf16x2.f32 %r9, 0f3f808000, 0f3f818000;"),
            0x3f803f82u);
  // 1 + 2^-24 is between two numbers.
  EXPECT_EQ(ResultOf("mov.f32 %f1, 0f33800000;\n"
                     "fma.rm.f32 %r9, %f1, 0f3f800000, 0f3f800000;"),
            0x3f800000u);
  EXPECT_EQ(ResultOf("mov.f32 %f1, 0fb3000000;\n"
                     "fma.rm.f32 %r9, %f1, 0f3f800000, 0f3f800000;"),
            0x3f7fffffu);
}

TEST_F(PtxTest, BitsArePutWhereTheManualSays) {
  EXPECT_EQ(ResultOf("prmt.b32 %r9, 0x33221100, 0x77665544, 0x7250;"),
            0x77225500u);
  EXPECT_EQ(ResultOf("bfi.b32 %r9, 0xab, 0xffffffff, 4, 8;"), 0xfffffabfu);
  EXPECT_EQ(ResultOf("shl.b32 %r9, 1, 32;"), 0u);
  EXPECT_EQ(ResultOf("shr.s32 %r9, 0x80000000, 40;"), 0xffffffffu);
  EXPECT_EQ(ResultOf("mov.b64 %rd5, {7, 9};\nmov.b64 {%r8, %r9}, %rd5;"), 9u);
}

TEST_F(PtxTest, UnknownOperationsAreNamed) {
  EXPECT_THAT(Run("wgmma.fence.sync.aligned;"),
              IsUnimplemented("wgmma.fence.sync.aligned"));
}

}  // namespace
}  // namespace causeway::ptx
