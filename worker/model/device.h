// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a rank computes on: the CPU, or one NVIDIA GPU if this program was built
// with CUDA (bazel --config=cuda).
//
//   ASSIGN_OR_RETURN(const Device device, ParseDevice("cuda:1"));
//   RETURN_IF_ERROR(CheckDeviceModel(device, config.model()));
//   ASSIGN_OR_RETURN(auto ops, MakeDeviceOps(device, threads));
#ifndef WORKER_MODEL_DEVICE_H_
#define WORKER_MODEL_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/run_config.pb.h"
#include "worker/model/ops.h"

namespace causeway {

struct Device {
  enum class Kind { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  // Of GPUs, from 0, of those that CUDA_VISIBLE_DEVICES shows.
  int index = 0;

  // Whether its memory is the host's.
  bool is_host() const { return kind == Kind::kCpu; }
};

// "cpu", "cuda" (the first GPU) or "cuda:N"; anything else is
// INVALID_ARGUMENT.
absl::StatusOr<Device> ParseDevice(absl::string_view text);

// For people: "CPU", "NVIDIA H200 (140 GiB)". Opens a GPU; errors of
// MakeDeviceOps.
absl::StatusOr<std::string> DescribeDevice(const Device& device);

// INVALID_ARGUMENT if the device's kernels cannot compute such a model, which
// is resolved.
absl::Status CheckDeviceModel(const Device& device,
                              const v1::ModelConfig& model);

// `threads` compute on the CPU; a GPU gets a stream of its own.
//   FAILED_PRECONDITION  the program was built without CUDA, or the GPU cannot
//                        be used: says why, and what to do.
//   INVALID_ARGUMENT     there is no such GPU.
absl::StatusOr<std::unique_ptr<Ops>> MakeDeviceOps(const Device& device,
                                                   int threads);

}  // namespace causeway

#endif  // WORKER_MODEL_DEVICE_H_
