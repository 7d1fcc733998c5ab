// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Turns the fields of messages into Prometheus metrics by tables, one row for
// each metric.
//
//   constexpr Metric<v1::RunStatus> kMetrics[] = {
//       {"rounds_merged_total", "Rounds merged over all fragments.",
//        Field<&v1::RunStatus::rounds>},
//   };
//   MetricFamilies families;
//   families.Add<v1::RunStatus>("causeway_", kMetrics, run, {{"run", "a"}});
//   std::string text = families.Text();
#ifndef COMMON_METRICS_METRIC_FAMILIES_H_
#define COMMON_METRICS_METRIC_FAMILIES_H_

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "prometheus/metric_family.h"
#include "proto/status.pb.h"

namespace causeway {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

template <typename Message>
struct Metric {
  // The name after the family's prefix, as Prometheus's conventions want it: a
  // counter, and nothing else, ends in _total; units are seconds and bytes.
  absl::string_view name;
  // Empty for further rows of the same name.
  absl::string_view help;
  // NaN leaves the sample out, but not the name and its help.
  double (*value)(const Message& message) = nullptr;
  // A label that distinguishes rows of the same name, or empty.
  absl::string_view label = "";
  absl::string_view label_value = "";
};

// Returns the value of an integer field.
template <typename Integer>
constexpr double Number(Integer value) {
  return static_cast<double>(value);
}

// Returns the value of a field that is 0 if unknown.
constexpr double Known(double value) {
  return value == 0 ? std::numeric_limits<double>::quiet_NaN() : value;
}

// Return the value of a number or flag of a message, for Metric::value.
template <auto getter, typename Message>
double Field(const Message& message) {
  return Number((message.*getter)());
}
template <auto getter, typename Message>
double KnownField(const Message& message) {
  return Known(Field<getter>(message));
}

class MetricFamilies {
 public:
  // Adds a sample of each row, with `labels` and the row's own.
  template <typename Message>
  void Add(absl::string_view prefix, absl::Span<const Metric<Message>> rows,
           const Message& message, const MetricLabels& labels) {
    for (const Metric<Message>& row : rows) {
      AddSample({.name = absl::StrCat(prefix, row.name), .help = row.help},
                row.value(message), labels, row.label, row.label_value);
    }
  }

  struct Family {
    std::string name;
    absl::string_view help;
  };
  // Adds one sample; `label`, if not empty, is one more label. NaN adds the
  // family only.
  void AddSample(const Family& family, double value, const MetricLabels& labels,
                 absl::string_view label = "",
                 absl::string_view label_value = "");

  // Adds a sample of 1 for the state that holds and of 0 for each other one.
  // `states` have names in capitals; 0 is never a state.
  void AddState(const Family& family,
                const google::protobuf::EnumDescriptor& states, int state,
                const MetricLabels& labels);

  void AddHistogram(const Family& family,
                    const v1::DurationHistogram& histogram,
                    const MetricLabels& labels);

  // Returns Prometheus's text format, version 0.0.4.
  std::string Text() const;

 private:
  prometheus::MetricFamily& Find(const Family& family,
                                 prometheus::MetricType type);

  std::vector<prometheus::MetricFamily> families_;
  // By name, the index in families_.
  absl::flat_hash_map<std::string, size_t> indices_;
};

// The content type of MetricFamilies::Text.
inline constexpr char kMetricsContentType[] =
    "text/plain; version=0.0.4; charset=utf-8";

}  // namespace causeway

#endif  // COMMON_METRICS_METRIC_FAMILIES_H_
