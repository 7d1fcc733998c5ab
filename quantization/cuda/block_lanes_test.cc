// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The CUDA kernels' parts on the CPU: the suite of
// quantization/cuda/block_kernels_suite.h with a loop over lanes instead of
// threads.
#include "quantization/cuda/block_lanes.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "quantization/cuda/block_kernels_suite.h"
#include "quantization/cuda/block_streams.h"

namespace causeway {
namespace {

using UnitQuads = Quad[kLanes][kQuads];

// Of the block `block` of the lanes that share it with lane `lane`.
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

template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize,
          typename Source, typename Rounds, typename Losses>
void EncodeUnit(const Source& source, const Rounds& rounding,
                const Losses& losses, uint64_t values, uint64_t unit,
                char* encoded) {
  using ThisLane = Lane<kFormat, kBlockSize>;
  const auto table = DecodeTable<kFormat>::Make();
  const auto place = PlaceOfUnit<kFormat, kBlockSize>(values, unit);
  const uint64_t begin = unit * kLaneUnit;
  UnitQuads quads;
  for (uint32_t i = 0; i < kLanes; ++i) {
    LoadQuads<kWhole>(ThisLane(i), place, begin, source, quads[i]);
  }
  uint16_t scales[kLanes][ThisLane::kBlocks];
  for (uint32_t i = 0; i < kLanes; ++i) {
    for (uint32_t block = 0; block < ThisLane::kBlocks; ++block) {
      scales[i][block] = BlockScale<kFormat, Rounds::kRounding>(
          LargestMagnitude<ThisLane>(quads, i, block));
    }
  }
  for (uint32_t i = 0; i < kLanes; ++i) {
    const ThisLane lane(i);
    uint32_t words[ThisLane::kWords] = {};
    for (uint32_t block = 0; block < ThisLane::kBlocks; ++block) {
      lane.Encode(rounding, begin, block, scales[i][block], quads[i], words);
    }
    lane.template StoreScales<kWhole>(scales[i], place, encoded);
    lane.template StoreCodes<kWhole>(words, place, encoded);
    StoreLosses<kWhole>(table, lane, place, begin, quads[i], scales[i], words,
                        losses);
  }
}

template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize, typename Sink>
void DecodeUnit(const char* encoded, uint64_t values, uint64_t unit,
                const Sink& sink) {
  const auto table = DecodeTable<kFormat>::Make();
  const auto place = PlaceOfUnit<kFormat, kBlockSize>(values, unit);
  for (uint32_t i = 0; i < kLanes; ++i) {
    DecodeQuads<kWhole>(table, Lane<kFormat, kBlockSize>(i), place,
                        unit * kLaneUnit, encoded, sink);
  }
}

// Calls visit.operator()<whole>(unit) as the warps of a GPU do: also for units
// beyond the end, which have no values.
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
  void Encode(const BlockSpec& spec, const BlockRounding& rounding,
              const std::vector<float>& values, uint64_t count,
              std::string& encoded) override {
    EncodeSum(spec, rounding, {values.data()}, {}, count, encoded);
  }
  void EncodeDifference(const BlockSpec& spec, const BlockRounding& rounding,
                        const std::vector<float>& anchor,
                        const std::vector<float>& parameters, uint64_t count,
                        std::string& encoded) override {
    if (rounding.rounding != Rounding::kNearest) {
      EncodeSum(spec, rounding, {anchor.data(), parameters.data()}, {}, count,
                encoded);
    } else {
      EncodeFrom(spec, DifferenceSource{anchor.data(), parameters.data()},
                 NearestRounding(), NoLosses(), count, encoded);
    }
  }
  void EncodeWithFeedback(const BlockSpec& spec, const BlockRounding& rounding,
                          const std::vector<float>& anchor,
                          const std::vector<float>& parameters,
                          const std::vector<float>& error, float decay,
                          uint64_t count, std::string& encoded,
                          std::vector<float>& next_error) override {
    EncodeSum(spec, rounding,
              {anchor.data(), parameters.data(),
               error.empty() ? nullptr : error.data()},
              {decay, next_error.data()}, count, encoded);
  }
  void Decode(const BlockSpec& spec, const std::string& encoded, uint64_t count,
              std::vector<float>& values) override {
    DecodeTo(spec, encoded, count, ValuesSink{values.data()});
  }
  void DecodeAccumulate(const BlockSpec& spec, const std::string& encoded,
                        uint64_t count, float weight,
                        std::vector<float>& accumulator) override {
    DecodeTo(spec, encoded, count, AccumulateSink{weight, accumulator.data()});
  }
  void DecodeMix(const BlockSpec& spec, const std::string& encoded,
                 uint64_t count, float mixing, std::vector<float>& anchor,
                 std::vector<float>& parameters) override {
    if (mixing == 1) {
      return DecodeAccumulate(spec, encoded, count, 1, anchor);
    }
    DecodeTo(spec, encoded, count,
             MixSink{mixing, anchor.data(), parameters.data()});
  }
  void DecodeRebase(const BlockSpec& spec, const std::string& encoded,
                    uint64_t count, std::vector<float>& anchor,
                    std::vector<float>& parameters) override {
    DecodeTo(spec, encoded, count,
             RebaseSink{anchor.data(), parameters.data()});
  }

 private:
  template <typename Source, typename Rounds, typename Losses>
  static void EncodeFrom(const BlockSpec& spec, const Source& source,
                         const Rounds& rounds, const Losses& losses,
                         uint64_t count, std::string& encoded) {
    const auto encode = [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
      ForEachUnit<kFormat, kBlockSize>(count, [&]<bool kWhole>(uint64_t unit) {
        EncodeUnit<kWhole, kFormat, kBlockSize>(source, rounds, losses, count,
                                                unit, encoded.data());
      });
    };
    ASSERT_TRUE(VisitBlockSpec(spec, encode));
  }
  static void EncodeSum(const BlockSpec& spec, const BlockRounding& rounding,
                        const SumSource& source, const ErrorLosses& losses,
                        uint64_t count, std::string& encoded) {
    VisitRounding(rounding, [&](const auto& rounds) {
      EncodeFrom(spec, source, rounds, losses, count, encoded);
    });
  }

  // Like a GPU's arrays, the encoding is aligned, however short it is.
  template <typename Sink>
  static void DecodeTo(const BlockSpec& spec, const std::string& encoded,
                       uint64_t count, const Sink& sink) {
    const std::vector<char> aligned(encoded.begin(), encoded.end());
    ASSERT_TRUE(
        VisitBlockSpec(spec, [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
          ForEachUnit<kFormat, kBlockSize>(
              count, [&]<bool kWhole>(uint64_t unit) {
                DecodeUnit<kWhole, kFormat, kBlockSize>(aligned.data(), count,
                                                        unit, sink);
              });
        }));
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
