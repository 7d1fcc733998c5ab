// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tells which of an island's ranks has the values that make a contribution an
// outlier. Wrong memory, or a processor that computes wrong numbers, shows in
// the part of one rank; a wrong gradient or a learning rate that is too large
// spreads over all parts. Nobody is named by guess, so
//
//  * exactly one rank's part must explain the objection: without its values the
//    contribution would pass;
//  * a norm that is too large must not have grown in proportion in the others'
//    values. Ranks' parts differ in size and in how far they move, so this
//    takes the parts of an earlier contribution to compare with;
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

// The parts that an island's ranks have of a contribution. Without `runs`
// nothing is known of them.
struct RankParts {
  uint64_t ranks = 0;
  std::vector<StripRun> runs;
};

// Knows the contributions to one fragment.
class RankPartsOfFragment {
 public:
  // Islands of so many different numbers of ranks are remembered, those that
  // contributed last.
  static constexpr size_t kLayouts = 4;

  // Notes a contribution that has passed.
  void Passed(const RankParts& parts);

  // Returns the end of a sentence that says why a contribution does not pass:
  // which rank's part explains it, or that none does, or that it is not clear;
  // empty if the parts are not known. Finite norms up to `most` pass, and those
  // up to `usual` are plainly usual.
  std::string Explain(const RankParts& parts, double most, double usual) const;

 private:
  // Returns whether the other ranks' parts are as usual, where only the part of
  // `rank` explains the objection.
  bool IsClear(const RankParts& parts, uint64_t rank, double usual) const;
  // Returns the last contribution that passed with such runs, or null.
  const RankParts* FindUsual(const RankParts& parts) const;

  // Newest first.
  std::deque<RankParts> passed_;
};

}  // namespace causeway

#endif  // SERVER_RULES_RANK_PARTS_H_
