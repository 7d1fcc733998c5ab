// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/benchmarks/figures.h"

#include <cstdio>
#include <fstream>

namespace causeway {

void BenchmarkFigures::Add(const std::string& name, double value) {
  std::printf("%-40s %.3f\n", name.c_str(), value);
  std::fflush(stdout);
  json_[name] = value;
}

bool BenchmarkFigures::Write(const std::string& path) const {
  if (path.empty()) return true;
  std::ofstream file(path);
  file << json_.dump(2) << "\n";
  file.close();
  if (!file) std::fprintf(stderr, "error: cannot write %s\n", path.c_str());
  return !file.fail();
}

}  // namespace causeway
