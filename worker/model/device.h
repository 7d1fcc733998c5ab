// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The devices that ranks compute on: the CPU, or one NVIDIA GPU if this program
// was built with CUDA (bazel --config=cuda).
//
//   ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevices("cuda:0,1"));
//   ASSIGN_OR_RETURN(const std::vector<Device> devices, FindDevices(choice));
//   RETURN_IF_ERROR(CheckDeviceModel(devices[0], config.model()));
//   ASSIGN_OR_RETURN(auto ops, MakeDeviceOps(devices[0], threads));
#ifndef WORKER_MODEL_DEVICE_H_
#define WORKER_MODEL_DEVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/run_config.pb.h"
#include "worker/model/ops.h"

namespace causeway {

struct Device {
  enum class Kind { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  // The index of a GPU, from 0, among those that CUDA_VISIBLE_DEVICES shows.
  int index = 0;

  // Returns whether the device's memory is the host's.
  bool is_host() const { return kind == Kind::kCpu; }
};

// A user's choice of devices.
struct DeviceChoice {
  // Is true if all existing GPUs are chosen; `devices` is empty then.
  bool all_gpus = false;
  std::vector<Device> devices;
};

// Parses "cpu", "cuda" (all GPUs), "cuda:N" or a list, "cuda:0,2,3", without
// using any device.
//   INVALID_ARGUMENT  anything else, or a GPU is named twice.
absl::StatusOr<DeviceChoice> ParseDevices(absl::string_view text);

// Returns the devices of a choice, at least one, after checking that each can
// be used. Logs which GPUs cannot reach each other's memory. Errors are those
// of MakeDeviceOps.
absl::StatusOr<std::vector<Device>> FindDevices(const DeviceChoice& choice);

// Describes devices for people: "CPU", "NVIDIA H200 (140 GiB)", "4 x NVIDIA
// H200 (140 GiB)". Errors are those of MakeDeviceOps.
absl::StatusOr<std::string> DescribeDevices(absl::Span<const Device> devices);

// Checks that the device's kernels can compute a resolved model.
//   INVALID_ARGUMENT  they cannot.
absl::Status CheckDeviceModel(const Device& device,
                              const v1::ModelConfig& model);

// Returns the operations on `device`. The CPU computes with `threads` threads;
// a GPU gets a stream of its own.
//   FAILED_PRECONDITION  the program was built without CUDA, or the GPU cannot
//                        be used: says why, and what to do.
//   INVALID_ARGUMENT     there is no such GPU.
absl::StatusOr<std::unique_ptr<Ops>> MakeDeviceOps(const Device& device,
                                                   int threads);

}  // namespace causeway

#endif  // WORKER_MODEL_DEVICE_H_
