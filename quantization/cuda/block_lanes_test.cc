// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs the parts of the CUDA kernels on the CPU: the suite of
// quantization/cuda/testing/block_kernels_suite.h, with a loop over lanes
// instead of threads.
#include "quantization/cuda/block_lanes.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "quantization/cuda/block_streams.h"
#include "quantization/cuda/testing/block_kernels_suite.h"

namespace causeway {
namespace {

using UnitQuads = Quad[kLanes][kQuads];

// Returns the largest magnitude of block `block` in the lanes that share it
// with lane `lane`.
template <typename ThisLane>
float LargestMagnitude(const UnitQuads& quads, uint32_t lane, uint32_t block) {
  const uint32_t first = lane / ThisLane::kSharers * ThisLane::kSharers;
  float largest = 0;
  for (uint32_t i = first; i < first + ThisLane::kSharers; ++i) {
    largest =
        MaxMagnitude(largest, ThisLane::LargestMagnitude(quads[i], block));
  }
  return largest;
}

template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize>
void EncodeUnit(const float* anchor, const float* parameters, uint64_t values,
                uint64_t unit, char* encoded) {
  using ThisLane = Lane<kFormat, kBlockSize>;
  const auto place = PlaceOfUnit<kFormat, kBlockSize>(values, unit);
  UnitQuads quads;
  for (uint32_t i = 0; i < kLanes; ++i) {
    LoadDifference<kWhole>(ThisLane(i), place, unit * kLaneUnit, anchor,
                           parameters, quads[i]);
  }
  for (uint32_t i = 0; i < kLanes; ++i) {
    const ThisLane lane(i);
    uint16_t scales[ThisLane::kBlocks];
    uint32_t words[ThisLane::kWords] = {};
    for (uint32_t block = 0; block < ThisLane::kBlocks; ++block) {
      scales[block] =
          BlockScale<kFormat>(LargestMagnitude<ThisLane>(quads, i, block));
      lane.Encode(block, scales[block], quads[i], words);
    }
    lane.template StoreScales<kWhole>(scales, place, encoded);
    lane.template StoreCodes<kWhole>(words, place, encoded);
  }
}

template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize>
void DecodeUnit(const char* encoded, uint64_t count, uint64_t unit,
                float* values) {
  const auto table = DecodeTable<kFormat>::Make();
  const auto place = PlaceOfUnit<kFormat, kBlockSize>(count, unit);
  for (uint32_t i = 0; i < kLanes; ++i) {
    DecodeAddQuads<kWhole>(table, Lane<kFormat, kBlockSize>(i), place,
                           unit * kLaneUnit, encoded, values);
  }
}

// Calls visit.operator()<whole>(unit) for the units that a GPU's warps visit,
// including units beyond the end, which have no values.
template <BlockFormat kFormat, uint32_t kBlockSize, typename Visitor>
void ForEachUnit(uint64_t values, const Visitor& visit) {
  for (uint64_t first = 0; first < LaneUnits(values); first += kUnitsOfWarp) {
    for (uint64_t unit = first; unit < first + kUnitsOfWarp; ++unit) {
      if (AreWhole<kFormat, kBlockSize>(values, first)) {
        visit.template operator()<true>(unit);
      } else {
        visit.template operator()<false>(unit);
      }
    }
  }
}

class LanesOnTheHost final : public BlockKernelsUnderTest {
 public:
  void EncodeDifference(const BlockSpec& spec, const std::vector<float>& anchor,
                        const std::vector<float>& parameters, uint64_t count,
                        std::string& encoded) override {
    const auto encode = [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
      ForEachUnit<kFormat, kBlockSize>(count, [&]<bool kWhole>(uint64_t unit) {
        EncodeUnit<kWhole, kFormat, kBlockSize>(
            anchor.data(), parameters.data(), count, unit, encoded.data());
      });
    };
    ASSERT_TRUE(VisitBlockSpec(spec, encode));
  }

  // The encoding is aligned, like a GPU's arrays, however short it is.
  void DecodeAdd(const BlockSpec& spec, const std::string& encoded,
                 uint64_t count, std::vector<float>& values) override {
    const std::vector<char> aligned(encoded.begin(), encoded.end());
    const auto decode = [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
      ForEachUnit<kFormat, kBlockSize>(count, [&]<bool kWhole>(uint64_t unit) {
        DecodeUnit<kWhole, kFormat, kBlockSize>(aligned.data(), count, unit,
                                                values.data());
      });
    };
    ASSERT_TRUE(VisitBlockSpec(spec, decode));
  }
};

TEST(BlockLanesTest, KnowsNoOtherBlockSizes) {
  for (const uint32_t block_size : {0, 32, 100, 512}) {
    EXPECT_FALSE(VisitBlockSpec({BlockFormat::kInt8, block_size},
                                []<BlockFormat, uint32_t>() {}));
  }
}

}  // namespace

std::unique_ptr<BlockKernelsUnderTest> NewBlockKernelsUnderTest() {
  return std::make_unique<LanesOnTheHost>();
}

}  // namespace causeway
