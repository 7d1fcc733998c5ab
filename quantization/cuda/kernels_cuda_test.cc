// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs the suite of quantization/cuda/testing/block_kernels_suite.h on the
// current device. Skipped if there is none.
#include "quantization/cuda/kernels_cuda.h"

#include "common/cuda_status.h"
#include "common/testing/cuda_device.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/cuda/testing/block_kernels_suite.h"

namespace causeway {
namespace {

// An array of `count` elements in the device's memory.
template <typename T>
class DeviceArray {
 public:
  template <typename Container>
  explicit DeviceArray(const Container& from)
      : bytes_(from.size() * sizeof(T)) {
    EXPECT_THAT(CudaStatus(cudaMalloc(&data_, bytes_), "allocating"), IsOk());
    EXPECT_THAT(CudaStatus(cudaMemcpy(data_, from.data(), bytes_,
                                      cudaMemcpyHostToDevice),
                           "copying to the device"),
                IsOk());
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return static_cast<T*>(data_); }

  // Copies the array to the host after the kernels that write it.
  template <typename Container>
  void CopyTo(Container& to) const {
    EXPECT_THAT(
        CudaStatus(cudaMemcpy(to.data(), data_, bytes_, cudaMemcpyDeviceToHost),
                   "copying from the device"),
        IsOk());
  }

 private:
  const size_t bytes_;
  void* data_ = nullptr;
};

class CudaKernels final : public BlockKernelsUnderTest {
 public:
  void EncodeDifference(const BlockSpec& spec, const std::vector<float>& anchor,
                        const std::vector<float>& parameters, uint64_t count,
                        std::string& encoded) override {
    const DeviceArray<float> device_anchor(anchor);
    const DeviceArray<float> device_parameters(parameters);
    const DeviceArray<char> device_encoded(encoded);
    EXPECT_THAT(EncodeDifferenceCuda(spec, device_anchor.data(),
                                     device_parameters.data(), count,
                                     device_encoded.data(), nullptr),
                IsOk());
    device_encoded.CopyTo(encoded);
  }

  void DecodeAdd(const BlockSpec& spec, const std::string& encoded,
                 uint64_t count, std::vector<float>& values) override {
    const DeviceArray<char> device_encoded(encoded);
    const DeviceArray<float> device_values(values);
    EXPECT_THAT(DecodeAddCuda(spec, device_encoded.data(), count,
                              device_values.data(), nullptr),
                IsOk());
    device_values.CopyTo(values);
  }
};

constexpr BlockSpec kSpec = {BlockFormat::kE3m0, 256};

TEST(KernelsCudaTest, RefusesUnknownBlockSizes) {
  EXPECT_THAT(
      DecodeAddCuda({BlockFormat::kInt8, 100}, nullptr, 1, nullptr, nullptr),
      IsInvalidArgument("blocks of 100 values"));
}

TEST(KernelsCudaTest, RefusesMisalignedArrays) {
  alignas(16) float values[8] = {};
  alignas(16) char encoded[80] = {};
  EXPECT_THAT(
      EncodeDifferenceCuda(kSpec, values, values + 1, 4, encoded, nullptr),
      IsInvalidArgument("aligned to 16 bytes"));
  EXPECT_THAT(DecodeAddCuda(kSpec, encoded + 2, 4, values, nullptr),
              IsInvalidArgument());
}

TEST(KernelsCudaTest, SaysSoIfThereIsNoDevice) {
  if (CudaDevice().ok()) GTEST_SKIP() << "there is a device";
  EXPECT_THAT(DecodeAddCuda(kSpec, nullptr, 4, nullptr, nullptr),
              IsFailedPrecondition());
}

// A captured call is one kernel and nothing else: it neither allocates nor
// copies, and replays give the same bytes.
TEST(KernelsCudaTest, CanBeCapturedInAGraph) {
  SKIP_WITHOUT_CUDA_DEVICE();
  const std::vector<float> values(1000, 0.5f);
  std::string want(1024, 'x');
  const std::vector<float> zeros(values.size());
  CudaKernels().EncodeDifference(kSpec, values, zeros, values.size(), want);

  const DeviceArray<float> device_values(values);
  const DeviceArray<float> device_zeros(zeros);
  const DeviceArray<char> device_encoded(std::string(want.size(), 'x'));
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
            cudaSuccess);
  EXPECT_THAT(
      EncodeDifferenceCuda(kSpec, device_values.data(), device_zeros.data(),
                           values.size(), device_encoded.data(), stream),
      IsOk());
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  size_t nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 1u);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  std::string encoded(want.size(), ' ');
  device_encoded.CopyTo(encoded);
  EXPECT_EQ(encoded, want);
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace

std::unique_ptr<BlockKernelsUnderTest> NewBlockKernelsUnderTest() {
  if (!CudaDevice().ok()) return nullptr;
  return std::make_unique<CudaKernels>();
}

}  // namespace causeway
