// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs tests of Highway kernels with every instruction set of this machine.
//
//   class KernelsTest : public testing::TestWithParam<int64_t> {
//     const ScopedHighwayTarget target_{GetParam()};
//   };
//   INSTANTIATE_TEST_SUITE_P(Targets, KernelsTest,
//                            testing::ValuesIn(HighwayTargets()),
//                            [](const auto& info) {
//                              return hwy::TargetName(info.param);
//                            });
#ifndef COMMON_TESTING_HIGHWAY_TARGETS_H_
#define COMMON_TESTING_HIGHWAY_TARGETS_H_

#include <cstdint>
#include <vector>

#include "hwy/highway.h"

namespace causeway {

// Returns the instruction sets that kernels were compiled for and this machine
// has.
inline std::vector<int64_t> HighwayTargets() {
  std::vector<int64_t> targets;
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    targets.push_back(target);
  }
  return targets;
}

// Makes kernels use this instruction set as long as the object lives. Only one
// object may exist at a time.
class ScopedHighwayTarget {
 public:
  explicit ScopedHighwayTarget(int64_t target) { Use(target); }
  ScopedHighwayTarget(const ScopedHighwayTarget&) = delete;
  ScopedHighwayTarget& operator=(const ScopedHighwayTarget&) = delete;
  // 0 allows all that the machine has.
  ~ScopedHighwayTarget() { Use(0); }

 private:
  static void Use(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace causeway

#endif  // COMMON_TESTING_HIGHWAY_TARGETS_H_
