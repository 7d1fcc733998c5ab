// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The model that a run has reached: the outer parameters that the coordinator
// committed, read from its state directory. If the coordinator is running,
// every fragment is read at its newest version.
#ifndef CLI_TRAINED_MODEL_H_
#define CLI_TRAINED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model_layout.h"
#include "proto/run_config.pb.h"

namespace causeway {

struct TrainedModel {
  std::string run_id;
  // The run's configuration, resolved.
  v1::RunConfig config;
  ModelLayout layout;
  // The parameters, flat in layout order.
  std::vector<float> parameters;
  // The version of each fragment.
  std::vector<uint64_t> versions;
};

// Reads the model.
//   NOT_FOUND            `state_dir` is no state directory or has no run yet.
//   DATA_LOSS            a committed file is damaged.
//   FAILED_PRECONDITION  a newer version of Causeway wrote it.
absl::StatusOr<TrainedModel> LoadTrainedModel(const std::string& state_dir);

// Returns "run quick-0000002a at version 12", or "at versions 12 to 13".
std::string DescribeTrainedModel(const TrainedModel& model);

}  // namespace causeway

#endif  // CLI_TRAINED_MODEL_H_
