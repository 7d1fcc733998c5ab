// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the CUDA kernels against a copy within the device's memory.
//
//   kernels_cuda_benchmark [--json FILE] [--values N]
//
// Arrays are far larger than the caches. Each round times one copy and, right
// after it, every kernel, so that all run at the same clock rates; figures are
// from the medians of the rounds. `ratio` divides the bytes that a kernel moves
// per second, read and written, by those of the copy: 1 is as fast as memory
// moves. Exits with 77 if there is no GPU.
#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "common/cuda_status.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "quantization/cuda/kernels_cuda.h"

ABSL_FLAG(std::string, json, "", "file to write the figures to");
ABSL_FLAG(uint64_t, values, 256 << 20, "values of each array");

namespace causeway {
namespace {

constexpr int kRounds = 21;
constexpr int kSkipped = 77;

struct FreeOnDevice {
  void operator()(void* memory) const { cudaFree(memory); }
};
template <typename T>
using DeviceArray = std::unique_ptr<T[], FreeOnDevice>;

template <typename T>
absl::StatusOr<DeviceArray<T>> NewDeviceArray(uint64_t count) {
  void* memory = nullptr;
  RETURN_IF_ERROR(CudaStatus(
      cudaMalloc(&memory, count * sizeof(T)),
      absl::StrFormat("allocating %d bytes of the device's memory; --values "
                      "takes fewer",
                      count * sizeof(T))));
  return DeviceArray<T>(static_cast<T*>(memory));
}

absl::StatusOr<DeviceArray<float>> NewGaussianArray(uint64_t count,
                                                    uint32_t seed) {
  ASSIGN_OR_RETURN(DeviceArray<float> array, NewDeviceArray<float>(count));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3e-4f);
  // The array repeats these values, which makes no difference to a kernel.
  std::vector<float> some(1 << 20);
  for (float& value : some) value = normal(random);
  for (uint64_t begin = 0; begin < count; begin += some.size()) {
    const uint64_t part = std::min<uint64_t>(some.size(), count - begin);
    RETURN_IF_ERROR(
        CudaStatus(cudaMemcpy(array.get() + begin, some.data(),
                              part * sizeof(float), cudaMemcpyHostToDevice),
                   "copying values to the device"));
  }
  return array;
}

// An operation to be timed.
struct Operation {
  std::string name;
  std::string format;
  uint32_t block_size;
  // The bytes that it reads and writes.
  double bytes;
  // Launches the operation on the default stream.
  std::function<absl::Status()> start;
  std::vector<float> milliseconds;

  double BytesPerSecond() const {
    std::vector<float> sorted = milliseconds;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2,
                     sorted.end());
    return bytes / (1e-3 * sorted[sorted.size() / 2]);
  }
};

class Benchmark {
 public:
  absl::Status Run(uint64_t values) {
    values_ = values;
    ASSIGN_OR_RETURN(anchor_, NewGaussianArray(values, 1));
    ASSIGN_OR_RETURN(parameters_, NewGaussianArray(values, 2));
    // The buffer has room for every encoding.
    ASSIGN_OR_RETURN(encoded_, NewDeviceArray<char>(2 * values + 1024));
    operations_.push_back({"copy", "", 0, 8.0 * static_cast<double>(values),
                           [this] { return Copy(); }});
    AddKernels(BlockFormat::kE3m0, "e3m0", {64, 128, 256});
    AddKernels(BlockFormat::kInt8, "int8", {64, 128, 256});
    AddKernels(BlockFormat::kInt4, "int4", {256});
    return TimeAll();
  }

  void Print() const {
    absl::PrintF("%-18s %-9s %5s %9s %6s\n", "operation", "format", "block",
                 "GB/s", "ratio");
    for (const Operation& operation : operations_) {
      absl::PrintF("%-18s %-9s %5d %9.1f %6.3f\n", operation.name,
                   operation.format, operation.block_size,
                   operation.BytesPerSecond() / 1e9, Ratio(operation));
    }
  }

  nlohmann::json Json() const {
    nlohmann::json rows = nlohmann::json::array();
    for (const Operation& operation : operations_) {
      rows.push_back({{"operation", operation.name},
                      {"format", operation.format},
                      {"block_size", operation.block_size},
                      {"bytes_per_second", operation.BytesPerSecond()},
                      {"ratio", Ratio(operation)}});
    }
    return {{"values", values_}, {"kernels", rows}};
  }

 private:
  absl::Status Copy() {
    return CudaStatus(
        cudaMemcpyAsync(parameters_.get(), anchor_.get(),
                        values_ * sizeof(float), cudaMemcpyDeviceToDevice),
        "copying within the device's memory");
  }

  void AddKernels(BlockFormat format, const std::string& name,
                  const std::vector<uint32_t>& block_sizes) {
    for (const uint32_t block_size : block_sizes) {
      AddKernelsOf({format, block_size}, name);
    }
  }

  void AddKernelsOf(BlockSpec spec, const std::string& format) {
    const double encoded = CodeBits(spec.format) / 8.0 + 2.0 / spec.block_size;
    const auto add = [&](const char* name, double float_bytes,
                         std::function<absl::Status()> start) {
      operations_.push_back(
          {name, format, spec.block_size,
           static_cast<double>(values_) * (float_bytes + encoded),
           std::move(start)});
    };
    add("encode_difference", 8, [this, spec] {
      return EncodeDifferenceCuda(spec, anchor_.get(), parameters_.get(),
                                  values_, encoded_.get(), nullptr);
    });
    add("decode_add", 8, [this, spec] {
      return DecodeAddCuda(spec, encoded_.get(), values_, parameters_.get(),
                           nullptr);
    });
  }

  absl::Status TimeAll() {
    cudaEvent_t begin;
    cudaEvent_t end;
    RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&begin), "creating an event"));
    RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&end), "creating an event"));
    // The first round warms up.
    for (int round = -1; round < kRounds; ++round) {
      for (Operation& operation : operations_) {
        float milliseconds = 0;
        RETURN_IF_ERROR(
            CudaStatus(cudaEventRecord(begin), "recording an event"));
        RETURN_IF_ERROR(operation.start());
        RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end), "recording an event"));
        RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(end),
                                   "waiting for " + operation.name));
        RETURN_IF_ERROR(
            CudaStatus(cudaEventElapsedTime(&milliseconds, begin, end),
                       "reading the time of " + operation.name));
        if (round >= 0) operation.milliseconds.push_back(milliseconds);
      }
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return absl::OkStatus();
  }

  double Ratio(const Operation& operation) const {
    return operation.BytesPerSecond() / operations_.front().BytesPerSecond();
  }

  uint64_t values_ = 0;
  DeviceArray<float> anchor_;
  DeviceArray<float> parameters_;
  DeviceArray<char> encoded_;
  // The first one is the copy that the others are compared with.
  std::vector<Operation> operations_;
};

int Main() {
  cudaDeviceProp device;
  const absl::Status found =
      CudaStatus(cudaGetDeviceProperties(&device, 0), "looking at device 0");
  if (!found.ok()) {
    std::cout << "skipped: " << found.message() << "\n";
    return kSkipped;
  }
  Benchmark benchmark;
  if (const absl::Status status = benchmark.Run(absl::GetFlag(FLAGS_values));
      !status.ok()) {
    std::cerr << status << "\n";
    return 1;
  }
  std::cout << device.name << "\n";
  benchmark.Print();
  const std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty()) return 0;
  nlohmann::json json = benchmark.Json();
  json["device"] = device.name;
  std::ofstream file(path);
  file << json.dump(2) << "\n";
  file.close();
  if (file.fail()) {
    std::cerr << path << ": cannot be written\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return causeway::Main();
}
