// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/rank_parts.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Norms up to kMost pass, and those up to kUsual are plainly usual.
constexpr double kMost = 10;
constexpr double kUsual = 3;

const auto kNone = HasSubstr("no single rank's part explains that");
const auto kUnclear = HasSubstr("not clear which rank's part explains that");

auto Names(int rank, int ranks = 4) {
  return testing::StartsWith("; without the values of rank " +
                             std::to_string(rank) + " (of " +
                             std::to_string(ranks) + ") it would pass");
}

// Returns parts with these norms, of ranks that share no strip.
RankParts Parts(const std::vector<double>& norms) {
  RankParts parts{.ranks = norms.size()};
  for (uint32_t rank = 0; rank < norms.size(); ++rank) {
    parts.runs.push_back({.first_range = rank,
                          .last_range = rank,
                          .strips = 3,
                          .squares = norms[rank] * norms[rank]});
  }
  return parts;
}

// Returns parts of two ranks with a common strip between their own strips.
RankParts WithCommonStrip(double first, double common, double second) {
  return {.ranks = 2,
          .runs = {{0, 0, 2, first * first},
                   {0, 1, 1, common * common},
                   {1, 1, 2, second * second}}};
}

class RankPartsTest : public testing::Test {
 protected:
  // Explains a contribution to a fragment whose parts were `usual` before.
  static std::string Explain(const RankParts& parts, const RankParts& usual) {
    RankPartsOfFragment fragment;
    fragment.Passed(usual);
    return fragment.Explain(parts, kMost, kUsual);
  }
  static std::string ExplainFirst(const RankParts& parts) {
    return RankPartsOfFragment().Explain(parts, kMost, kUsual);
  }
};

TEST_F(RankPartsTest, NamesTheRankWithoutWhichItWouldPass) {
  const RankParts usual = Parts({.5, .5, .5, .5});
  for (int rank = 0; rank < 4; ++rank) {
    for (const double norm : {10.1, 1e3, 1e38}) {
      std::vector<double> norms(4, .5);
      norms[rank] = norm;
      EXPECT_THAT(Explain(Parts(norms), usual), Names(rank)) << norm;
    }
  }
}

TEST_F(RankPartsTest, NothingIsSaidOfUnknownParts) {
  EXPECT_THAT(ExplainFirst({}), IsEmpty());
}

TEST_F(RankPartsTest, NoneOfSeveralIsNamed) {
  const RankParts usual = Parts({.5, .5, .5, .5});
  // Neither would pass alone.
  EXPECT_THAT(Explain(Parts({.5, 11, .5, 11}), usual), kNone);
  // Without either, the rest would pass.
  EXPECT_THAT(Explain(Parts({.5, 8, .5, 8}), usual), kUnclear);
  EXPECT_THAT(Explain(Parts({.5, 9.9, .5, 3}), usual), kUnclear);
}

// A learning rate that is too large makes each part longer.
TEST_F(RankPartsTest, NoneIsNamedForAFaultThatHasSpread) {
  EXPECT_THAT(Explain(Parts({6, 6, 6, 6}), Parts({.5, .5, .5, .5})), kNone);
  EXPECT_THAT(Explain(Parts({60, 60, 60, 60}), Parts({.5, .5, .5, .5})), kNone);
  // Rank 1 has most of the fragment, or of what moves in it.
  for (const double other : {0., 1e-9, .01, .1, .3}) {
    for (const double factor : {11., 30., 1e9}) {
      EXPECT_THAT(Explain(Parts({other * factor, factor}), Parts({other, 1})),
                  testing::AnyOf(kNone, kUnclear))
          << other << " " << factor;
    }
  }
  // The others' parts have grown less than that of rank 1.
  EXPECT_THAT(Explain(Parts({.04, 11}), Parts({.01, 1})), kUnclear);
}

TEST_F(RankPartsTest, ARankThatHoldsAllIsNotTheOneToBlame) {
  EXPECT_THAT(Explain(Parts({0, 11, 0}), Parts({0, 1, 0})), kUnclear);
  const RankParts alone = {.ranks = 3, .runs = {{1, 1, 5, kNaN}}};
  EXPECT_THAT(ExplainFirst(alone), kUnclear);
}

TEST_F(RankPartsTest, NamesTheRankWithValuesThatAreNotFinite) {
  EXPECT_THAT(ExplainFirst(Parts({.5, .5, kNaN, .5})), Names(2));
  EXPECT_THAT(ExplainFirst(Parts({kNaN, .5})), Names(0, 2));
  EXPECT_THAT(ExplainFirst(Parts({.5, kNaN, kNaN, .5})), kNone);
  EXPECT_THAT(ExplainFirst(Parts({kNaN, kNaN, kNaN, kNaN})), kNone);
  // The others' values do not pass either.
  EXPECT_THAT(ExplainFirst(Parts({kNaN, 11, .5, .5})), kNone);
  // If nothing is too large, they do.
  EXPECT_THAT(RankPartsOfFragment().Explain(Parts({kNaN, 11}), kInfinity, 0),
              Names(0, 2));
  // Nothing but this part changes at all.
  EXPECT_THAT(ExplainFirst(Parts({0, kNaN})), kUnclear);
}

TEST_F(RankPartsTest, ACommonStripBelongsToBothRanks) {
  const RankParts usual = WithCommonStrip(.5, .5, .5);
  for (const double norm : {11., kNaN}) {
    EXPECT_THAT(Explain(WithCommonStrip(norm, .5, .5), usual), Names(0, 2));
    EXPECT_THAT(Explain(WithCommonStrip(.5, .5, norm), usual), Names(1, 2));
    EXPECT_THAT(Explain(WithCommonStrip(.5, norm, .5), usual), kUnclear);
    EXPECT_THAT(Explain(WithCommonStrip(norm, norm, .5), usual), Names(0, 2));
    EXPECT_THAT(Explain(WithCommonStrip(norm, .5, norm), usual), kNone);
  }
  // Rank 1 has no strip of its own.
  const RankParts edge = {.ranks = 2, .runs = {{0, 0, 1, .1}, {0, 1, 1, kNaN}}};
  EXPECT_THAT(Explain(edge, edge), kUnclear);
}

TEST_F(RankPartsTest, NormsAreComparedWithPartsOfTheSameLayout) {
  RankPartsOfFragment fragment;
  const RankParts wrong = Parts({.5, 20, .5});
  EXPECT_THAT(fragment.Explain(wrong, kMost, kUsual), kUnclear);
  fragment.Passed({});
  fragment.Passed(Parts({1, 1}));
  EXPECT_THAT(fragment.Explain(wrong, kMost, kUsual), kUnclear);
  // Another layout has as many ranks.
  RankParts other = Parts({1, 1, 1});
  ++other.runs[0].strips;
  fragment.Passed(other);
  EXPECT_THAT(fragment.Explain(wrong, kMost, kUsual), kUnclear);
  fragment.Passed(Parts({1, 1, 1}));
  for (size_t i = 1; i < RankPartsOfFragment::kLayouts; ++i) {
    fragment.Passed(Parts(std::vector<double>(10 + i, 1)));
    fragment.Passed(Parts(std::vector<double>(10 + i, 2)));
    EXPECT_THAT(fragment.Explain(wrong, kMost, kUsual), Names(1, 3));
  }
  fragment.Passed(Parts({1, 1, 1}));
  fragment.Passed(Parts({1}));
  EXPECT_THAT(fragment.Explain(wrong, kMost, kUsual), Names(1, 3));
  for (size_t i = 1; i < RankPartsOfFragment::kLayouts; ++i) {
    fragment.Passed(Parts(std::vector<double>(20 + i, 1)));
  }
  EXPECT_THAT(fragment.Explain(wrong, kMost, kUsual), kUnclear);
}

TEST_F(RankPartsTest, TheNewestPartsCount) {
  RankPartsOfFragment fragment;
  fragment.Passed(Parts({.01, 1}));
  fragment.Passed(Parts({.5, .5}));
  EXPECT_THAT(fragment.Explain(Parts({.5, 20}), kMost, kUsual), Names(1, 2));
  fragment.Passed(Parts({.01, 1}));
  EXPECT_THAT(fragment.Explain(Parts({.5, 20}), kMost, kUsual), kUnclear);
}

}  // namespace
}  // namespace causeway
