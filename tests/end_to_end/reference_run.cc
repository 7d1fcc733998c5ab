// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/end_to_end/reference_run.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "common/tensors/model_layout.h"
#include "glog/logging.h"
#include "outer_optimizer/fragment_plan.h"
#include "outer_optimizer/sync_schedule.h"
#include "tests/end_to_end/synthetic_run.h"

namespace causeway {
namespace {

using Vector = std::vector<double>;

// One fragment on one island.
struct Local {
  double target = 0;
  uint64_t overlap_steps = 0;
  Vector theta;
  // The sent parameters, the resulting global ones, and the step at which these
  // apply; 0 if none are due.
  Vector sent;
  Vector next;
  uint64_t apply_at = 0;
};

class Fragment {
 public:
  Fragment(const v1::RunConfig& config,
           const std::vector<ReferenceIsland>& islands, Vector theta)
      : lr_(config.outer_optimizer().learning_rate()),
        mu_(config.outer_optimizer().momentum()),
        theta_(std::move(theta)),
        momentum_(theta_.size()) {
    for (const ReferenceIsland& island : islands) {
      locals_.push_back({.target = island.target,
                         .overlap_steps = island.overlap_steps.value_or(
                             config.synchronization().overlap_steps()),
                         .theta = theta_});
    }
  }

  const Vector& Train(const SyncSchedule& schedule, uint32_t fragment) {
    const uint64_t end = schedule.total_steps();
    for (uint64_t step = 1; step <= end; ++step) {
      for (Local& local : locals_) {
        for (double& value : local.theta) {
          value -= QuadraticTrainer::kRate * (value - local.target);
        }
        if (local.apply_at == step || (local.apply_at != 0 && step == end)) {
          Apply(local);
        }
      }
      if (!schedule.IsSentAt(fragment, step)) continue;
      Merge();
      for (Local& local : locals_) {
        local.apply_at = std::min(step + local.overlap_steps, end);
        if (local.apply_at == step) Apply(local);
      }
    }
    return theta_;
  }

 private:
  void Merge() {
    const double share = 1.0 / static_cast<double>(locals_.size());
    Vector merged(theta_.size());
    for (Local& local : locals_) {
      local.sent = local.theta;
      for (size_t k = 0; k < merged.size(); ++k) {
        merged[k] += share * (theta_[k] - local.sent[k]);
      }
    }
    for (size_t k = 0; k < theta_.size(); ++k) {
      momentum_[k] = mu_ * momentum_[k] + merged[k];
      theta_[k] -= lr_ * (merged[k] + mu_ * momentum_[k]);
    }
    for (Local& local : locals_) local.next = theta_;
  }

  static void Apply(Local& local) {
    for (size_t k = 0; k < local.next.size(); ++k) {
      local.theta[k] += local.next[k] - local.sent[k];
    }
    local.apply_at = 0;
  }

  const double lr_;
  const double mu_;
  Vector theta_;
  Vector momentum_;
  std::vector<Local> locals_;
};

}  // namespace

std::vector<float> ReferenceRun(const v1::RunConfig& config,
                                const std::vector<ReferenceIsland>& islands) {
  CHECK_EQ(config.outer_optimizer().algorithm(),
           v1::OuterOptimizerConfig::NESTEROV);
  const ModelLayout layout = MakeModelLayout(config.model());
  const v1::FragmentPlan plan = *MakeFragmentPlan(layout, config);
  const FragmentMap map = *FragmentMap::Create(layout, plan);
  const SyncSchedule schedule = *SyncSchedule::Create(config, plan);
  std::vector<float> parameters = InitialParameters(layout, config.seed());
  for (uint32_t id = 0; id < map.fragments(); ++id) {
    std::vector<float> values(map.size(id));
    map.Gather(id, parameters, absl::MakeSpan(values));
    Fragment fragment(config, islands, {values.begin(), values.end()});
    const Vector& result = fragment.Train(schedule, id);
    values.assign(result.begin(), result.end());
    map.Scatter(id, values, absl::MakeSpan(parameters));
  }
  return parameters;
}

std::vector<float> Descend(std::vector<float> values, float target,
                           uint64_t steps) {
  for (uint64_t step = 0; step < steps; ++step) {
    for (float& value : values) {
      value -= QuadraticTrainer::kRate * (value - target);
    }
  }
  return values;
}

}  // namespace causeway
