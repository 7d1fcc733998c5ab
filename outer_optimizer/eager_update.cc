// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/eager_update.h"

#include <algorithm>

#include "glog/logging.h"
#include "outer_optimizer/mixing.h"

namespace causeway {
namespace {

using Outer = v1::OuterOptimizerConfig;

double Momentum(const Outer& config) {
  return config.algorithm() == Outer::SGD ? 0 : config.momentum();
}

double GradientRate(const Outer& config) {
  const double lr = config.learning_rate();
  return config.algorithm() == Outer::NESTEROV ? lr * (1 + Momentum(config))
                                               : lr;
}

double MomentumRate(const Outer& config) {
  const double rate = config.learning_rate() * Momentum(config);
  return config.algorithm() == Outer::NESTEROV ? rate * Momentum(config) : rate;
}

}  // namespace

EagerUpdate::EagerUpdate(const Outer& config, double mixing, size_t size)
    : momentum_decay_(static_cast<float>(Momentum(config))),
      gradient_rate_(static_cast<float>(GradientRate(config))),
      momentum_rate_(static_cast<float>(MomentumRate(config))),
      mixing_(static_cast<float>(mixing)),
      own_(size),
      others_(size),
      momentum_(size) {
  CHECK_EQ(config.merge(), Outer::MEAN);
  CHECK_NE(config.algorithm(), Outer::DELAYED_NESTEROV);
}

void EagerUpdate::Begin(absl::Span<const float> anchor, Segments segments,
                        absl::Span<float> model) {
  CHECK(!under_way_);
  CHECK_EQ(anchor.size(), own_.size());
  under_way_ = true;
  for (const FragmentMap::Segment& segment : segments) {
    const absl::Span<float> local =
        model.subspan(segment.model_offset, segment.size);
    const size_t begin = segment.fragment_offset;
    PseudoGradient(anchor.subspan(begin, segment.size), local,
                   absl::MakeSpan(own_).subspan(begin, segment.size));
    for (size_t i = 0; i < local.size(); ++i) {
      const float expected = anchor[begin + i] + Expected(begin + i);
      local[i] = mixing_ * local[i] + (1 - mixing_) * expected;
    }
  }
}

void EagerUpdate::Correct(absl::Span<const float> update, double share,
                          Segments segments, absl::Span<float> model) {
  CHECK(under_way_);
  CHECK_EQ(update.size(), own_.size());
  under_way_ = false;
  const float moved = 1 - mixing_;
  for (const FragmentMap::Segment& segment : segments) {
    for (size_t i = 0; i < segment.size; ++i) {
      const size_t at = segment.fragment_offset + i;
      model[segment.model_offset + i] +=
          share > 0 ? moved * (update[at] - Expected(at))
                    : update[at] - moved * (Expected(at) + own_[at]);
    }
  }
}

void EagerUpdate::Observe(absl::Span<const float> update, double share) {
  CHECK(!under_way_);
  CHECK_EQ(update.size(), own_.size());
  const bool included = share > 0;
  if (included) share_ = static_cast<float>(share);
  for (size_t i = 0; i < own_.size(); ++i) {
    const float gradient =
        -(update[i] + momentum_rate_ * momentum_[i]) / gradient_rate_;
    momentum_[i] = momentum_decay_ * momentum_[i] + gradient;
    // A merge without this island consists of the others' part only. In the
    // next merge the others will have the rest of the weight.
    others_[i] =
        included ? gradient - share_ * own_[i] : (1 - share_) * gradient;
  }
}

void EagerUpdate::Forget() {
  CHECK(!under_way_);
  share_ = 1;
  std::fill(others_.begin(), others_.end(), 0.0f);
  std::fill(momentum_.begin(), momentum_.end(), 0.0f);
}

}  // namespace causeway
