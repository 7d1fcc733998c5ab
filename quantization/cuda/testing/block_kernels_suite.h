// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The tests of kernels that consist of quantization/cuda/block_lanes.h. They
// run on the CPU, one lane after the other (block_lanes_test.cc), and on a GPU
// (kernels_cuda_test.cc), and compare every format and block size with
// quantization/formats/testing/block_reference.h. A test that links the suite
// defines NewBlockKernelsUnderTest().
#ifndef QUANTIZATION_CUDA_TESTING_BLOCK_KERNELS_SUITE_H_
#define QUANTIZATION_CUDA_TESTING_BLOCK_KERNELS_SUITE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quantization/cuda/block_units.h"

namespace causeway {

// The calls of quantization/cuda/kernels_cuda.h with arrays of the host. These
// may be longer than the `count` that the kernel is given: the rest must stay
// as it is.
class BlockKernelsUnderTest {
 public:
  virtual ~BlockKernelsUnderTest() = default;

  virtual void EncodeDifference(const BlockSpec& spec,
                                const std::vector<float>& anchor,
                                const std::vector<float>& parameters,
                                uint64_t count, std::string& encoded) = 0;
  virtual void DecodeAdd(const BlockSpec& spec, const std::string& encoded,
                         uint64_t count, std::vector<float>& values) = 0;
};

// Returns null if the kernels cannot run; the tests are then skipped.
std::unique_ptr<BlockKernelsUnderTest> NewBlockKernelsUnderTest();

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_TESTING_BLOCK_KERNELS_SUITE_H_
