// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The figures of a benchmark, printed as they are measured and written to a
// file at the end.
//
//   BenchmarkFigures figures;
//   figures.Add("encode_ratio", ratio);
//   return figures.Write(absl::GetFlag(FLAGS_json)) ? 0 : 1;
#ifndef SERVER_BENCHMARKS_FIGURES_H_
#define SERVER_BENCHMARKS_FIGURES_H_

#include <string>

#include "nlohmann/json.hpp"

namespace causeway {

// Not thread-safe.
class BenchmarkFigures {
 public:
  // Prints a figure and keeps it. Names are unique.
  void Add(const std::string& name, double value);

  // Writes all figures as one JSON object, in the order of Add, unless `path`
  // is empty. On failure, says so on stderr and returns false.
  bool Write(const std::string& path) const;

 private:
  nlohmann::ordered_json json_;
};

}  // namespace causeway

#endif  // SERVER_BENCHMARKS_FIGURES_H_
