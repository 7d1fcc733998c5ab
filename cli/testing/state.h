// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// State directories for the tests of commands that read one.
#ifndef CLI_TESTING_STATE_H_
#define CLI_TESTING_STATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/checkpoint/initial_values.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "outer_optimizer/fragment_plan.h"
#include "server/storage/commit_log.h"
#include "server/storage/fragment_store.h"
#include "server/storage/state_directory.h"

namespace causeway {

// A model of two blocks in two fragments, with grouped-query attention.
inline constexpr char kTestConfig[] = R"pb(
  name: "test"
  model {
    layers: 2
    hidden_size: 16
    intermediate_size: 24
    heads: 4
    kv_heads: 2
    sequence_length: 8
    rope_theta: 5000
  }
  training { total_steps: 100 batch_size: 2 }
  synchronization {
    inner_steps_per_round: 10
    fragments: 2
    uplink_format: FP32
    downlink_format: FP32
  }
)pb";

// Tensors that no model of Causeway has, in two fragments.
inline constexpr char kTensorsConfig[] = R"pb(
  name: "tensors"
  tensors {
    tensor { name: "wte.weight" shape: 5 shape: 4 }
    tensor { name: "h.0.attn.weight" shape: 4 shape: 4 }
    tensor { name: "h.0.attn.mask" shape: 3 }
    tensor { name: "h.1.attn.weight" shape: 4 shape: 4 }
    exclude: "*.mask"
    sequence_length: 8
  }
  training { total_steps: 100 batch_size: 2 }
  synchronization {
    inner_steps_per_round: 10
    fragments: 2
    uplink_format: FP32
    downlink_format: FP32
  }
)pb";

// Writes the state of a run with the model `parameters`: fragment 0 at version
// 0, fragment 1 at version 1.
inline absl::Status WriteTestState(const std::string& directory,
                                   const v1::RunConfig& config,
                                   absl::Span<const float> parameters) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StateDirectory> state,
                   StateDirectory::Open(directory, {.create = true}));
  ASSIGN_OR_RETURN(const ModelLayout layout, NewRunLayout(config, ""));
  RunRecord run{
      .run_id = "test-1", .config = config, .created_at = absl::UnixEpoch()};
  ASSIGN_OR_RETURN(run.plan, MakeFragmentPlan(layout, config));
  ASSIGN_OR_RETURN(const FragmentMap map,
                   FragmentMap::Create(layout, run.plan));
  RETURN_IF_ERROR(state->log().CreateRun(run));
  for (const uint64_t version : {0, 1}) {
    LogBatch batch;
    for (uint32_t fragment = 0; fragment < map.fragments(); ++fragment) {
      if (version == 1 && fragment != 1) continue;
      std::vector<float> theta(map.size(fragment));
      map.Gather(fragment, parameters, absl::MakeSpan(theta));
      FragmentContents contents{.run_id = run.run_id, .theta = theta};
      contents.head.set_fragment(fragment);
      contents.head.set_version(version);
      SnapshotRecord snapshot;
      ASSIGN_OR_RETURN(snapshot.file,
                       state->fragments().WriteFragment(contents));
      snapshot.head = contents.head;
      batch.commits.push_back(
          {.head = contents.head, .committed_at = absl::UnixEpoch()});
      batch.snapshots.push_back(std::move(snapshot));
    }
    RETURN_IF_ERROR(state->log().Apply(batch));
  }
  return absl::OkStatus();
}

}  // namespace causeway

#endif  // CLI_TESTING_STATE_H_
