// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The model that a run has come to: the outer parameters, as the coordinator
// committed them, read from its state directory. The coordinator may be
// running; every fragment is then read at its newest version.
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
  // Resolved.
  v1::RunConfig config;
  ModelLayout layout;
  // Flat, in layout order.
  std::vector<float> parameters;
  // Of each fragment.
  std::vector<uint64_t> versions;
};

//   NOT_FOUND            `state_dir` is no state directory or has no run yet.
//   DATA_LOSS            a committed file is damaged.
//   FAILED_PRECONDITION  a newer version of Causeway wrote it.
absl::StatusOr<TrainedModel> LoadTrainedModel(const std::string& state_dir);

// "run quick-0000002a at version 12", or "at versions 12 to 13".
std::string DescribeTrainedModel(const TrainedModel& model);

}  // namespace causeway

#endif  // CLI_TRAINED_MODEL_H_
