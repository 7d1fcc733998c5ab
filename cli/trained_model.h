// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The model that a run has reached: the outer parameters that the coordinator
// committed, read from its state directory. If the coordinator is running,
// every fragment is read at its newest version.
#ifndef CLI_TRAINED_MODEL_H_
#define CLI_TRAINED_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/tensors/model_layout.h"
#include "proto/run_config.pb.h"
#include "server/storage/commit_log.h"
#include "server/storage/fragment_store.h"
#include "worker/model/device.h"
#include "worker/model/device_array.h"
#include "worker/model/ops.h"
#include "worker/model/transformer.h"

namespace causeway {

// A run with the newest version of each fragment, mapped into memory.
struct StoredModel {
  RunRecord run;
  // See TrainedModel.
  std::string data_digest;
  // The fragments, each with as many values as the run's plan says.
  std::vector<StoredFragment> fragments;

  // Returns the version of each fragment.
  std::vector<uint64_t> Versions() const;
};

// Opens the files of a state directory. Errors of LoadTrainedModel.
absl::StatusOr<StoredModel> OpenStoredModel(const std::string& state_dir);

struct TrainedModel {
  std::string run_id;
  // The run's configuration, resolved.
  v1::RunConfig config;
  ModelLayout layout;
  // The parameters, flat in layout order.
  std::vector<float> parameters;
  // The version of each fragment.
  std::vector<uint64_t> versions;
  // Dataset::Digest of the run's data; empty if it is not known.
  std::string data_digest;
};

// Reads the model.
//   NOT_FOUND            `state_dir` is not a state directory or has no run
//                        yet.
//   DATA_LOSS            a committed file is damaged.
//   FAILED_PRECONDITION  a newer version of Causeway wrote it, or the run is
//                        defined by its tensors, not by a model.
absl::StatusOr<TrainedModel> LoadTrainedModel(const std::string& state_dir);

// Returns "run quick-0000002a at version 12", or "at versions 12 to 13".
std::string DescribeVersions(absl::string_view run_id,
                             absl::Span<const uint64_t> versions);

// Checks the value of a flag that gives Inference its threads: 0 to 1024, of
// which 0 stands for one for each processor.
absl::Status CheckThreads(absl::string_view text);

class Inference {
 public:
  // Prepares for at most `batch` sequences at once, on a usable device; the CPU
  // computes with `threads` threads.
  //   INVALID_ARGUMENT    `threads` is not in 1 to 1024, or the device cannot
  //                       compute the model.
  //   RESOURCE_EXHAUSTED  There is not enough memory.
  static absl::StatusOr<std::unique_ptr<Inference>> Create(
      const TrainedModel& model, int64_t batch, const Device& device,
      uint64_t threads);

  // Computes Transformer::Loss.
  absl::StatusOr<double> Loss(absl::Span<const int32_t> tokens,
                              absl::Span<const int32_t> targets) {
    return transformer_->Loss(parameters_.data(), tokens, targets);
  }

  // Computes Transformer::NextTokenLogits. The result is valid until the next
  // call.
  absl::StatusOr<absl::Span<const float>> NextTokenLogits(
      absl::Span<const int32_t> prefix);

 private:
  Inference() = default;

  // Each member needs those above it.
  std::unique_ptr<Ops> ops_;
  DeviceArray<float> parameters_;
  std::unique_ptr<Transformer> transformer_;
  std::vector<float> logits_;
};

}  // namespace causeway

#endif  // CLI_TRAINED_MODEL_H_
