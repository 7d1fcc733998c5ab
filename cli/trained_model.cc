// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/trained_model.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "outer_optimizer/fragment_plan.h"
#include "server/storage/commit_log.h"
#include "server/storage/fragment_store.h"
#include "server/storage/state_directory.h"

namespace causeway {

absl::StatusOr<TrainedModel> LoadTrainedModel(const std::string& state_dir) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StateDirectory> state,
                   StateDirectory::OpenReadOnly(state_dir));
  ASSIGN_OR_RETURN(const RunRecord run, state->log().LoadRun());
  TrainedModel model{.run_id = run.run_id,
                     .config = run.config,
                     .layout = MakeModelLayout(run.config.model())};
  ASSIGN_OR_RETURN(const FragmentMap map,
                   FragmentMap::Create(model.layout, run.plan));
  model.parameters.resize(map.model_size());
  for (uint32_t fragment = 0; fragment < map.fragments(); ++fragment) {
    ASSIGN_OR_RETURN(const StoredFragment stored,
                     state->ReadHead(run.run_id, fragment));
    const FragmentContents& contents = stored.contents();
    if (contents.theta.size() != map.size(fragment)) {
      return absl::DataLossError(absl::Substitute(
          "$0: fragment $1 has $2 values, its plan $3", state_dir, fragment,
          contents.theta.size(), map.size(fragment)));
    }
    map.Scatter(fragment, contents.theta, absl::MakeSpan(model.parameters));
    model.versions.push_back(contents.head.version());
  }
  return model;
}

std::string DescribeTrainedModel(const TrainedModel& model) {
  const auto [oldest, newest] =
      std::minmax_element(model.versions.begin(), model.versions.end());
  return *oldest == *newest
             ? absl::StrCat("run ", model.run_id, " at version ", *oldest)
             : absl::StrCat("run ", model.run_id, " at versions ", *oldest,
                            " to ", *newest);
}

}  // namespace causeway
