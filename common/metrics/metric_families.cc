// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metric_families.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "prometheus/text_serializer.h"

namespace causeway {

prometheus::MetricFamily& MetricFamilies::Find(const Family& family,
                                               prometheus::MetricType type) {
  const auto [found, is_new] =
      indices_.try_emplace(family.name, families_.size());
  if (is_new) {
    prometheus::MetricFamily& added = families_.emplace_back();
    added.name = family.name;
    added.help = std::string(family.help);
    added.type = type;
  }
  return families_[found->second];
}

void MetricFamilies::AddSample(const Family& family, double value,
                               const MetricLabels& labels,
                               absl::string_view label,
                               absl::string_view label_value) {
  const bool is_counter = absl::EndsWith(family.name, "_total");
  prometheus::MetricFamily& found =
      Find(family, is_counter ? prometheus::MetricType::Counter
                              : prometheus::MetricType::Gauge);
  if (std::isnan(value)) return;
  prometheus::ClientMetric& sample = found.metric.emplace_back();
  sample.label = labels;
  if (!label.empty()) {
    sample.label.push_back({std::string(label), std::string(label_value)});
  }
  if (is_counter) {
    sample.counter.value = value;
  } else {
    sample.gauge.value = value;
  }
}

void MetricFamilies::AddState(const Family& family,
                              const google::protobuf::EnumDescriptor& states,
                              int state, const MetricLabels& labels) {
  for (int i = 0; i < states.value_count(); ++i) {
    const google::protobuf::EnumValueDescriptor& value = *states.value(i);
    if (value.number() == 0) continue;
    AddSample(family, value.number() == state ? 1 : 0, labels, "state",
              absl::AsciiStrToLower(value.name()));
  }
}

void MetricFamilies::AddHistogram(const Family& family,
                                  const v1::DurationHistogram& histogram,
                                  const MetricLabels& labels) {
  prometheus::ClientMetric& sample =
      Find(family, prometheus::MetricType::Histogram).metric.emplace_back();
  sample.label = labels;
  sample.histogram.sample_sum = histogram.sum_seconds();
  uint64_t count = 0;
  for (int i = 0; i < histogram.counts_size(); ++i) {
    count += histogram.counts(i);
    if (i < histogram.upper_bounds_seconds_size()) {
      sample.histogram.bucket.push_back(
          {count, histogram.upper_bounds_seconds(i)});
    }
  }
  sample.histogram.sample_count = count;
}

std::string MetricFamilies::Text() const {
  return prometheus::TextSerializer().Serialize(families_);
}

}  // namespace causeway
