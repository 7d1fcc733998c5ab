// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds the rank of an island whose values make a contribution an outlier.
// Faulty memory or a faulty processor shows in one rank's part; a wrong
// gradient or a too large learning rate spreads over all parts. No rank is
// named by guess, so
//
//  * exactly one rank's part must explain the objection: without its values the
//    contribution would pass;
//  * if the norm is too large, the other ranks' values must not have grown in
//    proportion since an earlier contribution, because parts differ in size and
//    in how far they move;
//  * a strip with values of several ranks belongs to each of them.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_RANK_PARTS_H_
#define SERVER_RULES_RANK_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "quantization/strips/encoding_reader.h"

namespace causeway {

// The ranks' parts of a contribution; unknown if `runs` is empty.
struct RankParts {
  uint64_t ranks = 0;
  std::vector<StripRun> runs;
};

class RankPartsOfFragment {
 public:
  // At most this many layouts of parts are remembered, those that passed last.
  static constexpr size_t kLayouts = 4;

  // Notes a contribution that has passed.
  void Passed(const RankParts& parts);

  // Returns the end of a sentence that says why a contribution does not pass:
  // which rank's part explains it, or that none does, or that it is not clear;
  // empty if the parts are not known. Finite norms up to `most` pass, and those
  // up to `usual` are plainly usual.
  std::string Explain(const RankParts& parts, double most, double usual) const;

 private:
  // Returns whether the other ranks' parts are as usual. Only the part of
  // `rank` explains the objection.
  bool IsClear(const RankParts& parts, uint64_t rank, double usual) const;
  // Returns the last contribution that passed with the same runs, or null.
  const RankParts* FindUsual(const RankParts& parts) const;

  // Newest first.
  std::deque<RankParts> passed_;
};

}  // namespace causeway

#endif  // SERVER_RULES_RANK_PARTS_H_
