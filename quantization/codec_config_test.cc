// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/codec_config.h"

#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(CodecConfigTest, EachDirectionHasItsFormat) {
  v1::SynchronizationConfig config;
  config.set_uplink_format(v1::E3M0);
  config.set_downlink_format(v1::INT8);
  config.set_block_size(128);
  config.set_entropy_coding(false);
  EXPECT_EQ(UplinkSpec(config),
            (CodecSpec{.format = v1::E3M0, .block_size = 128}));
  EXPECT_EQ(DownlinkSpec(config),
            (CodecSpec{.format = v1::INT8, .block_size = 128}));
}

TEST(CodecConfigTest, EntropyCodingIsOfFormatsWithCodes) {
  v1::SynchronizationConfig config;
  config.set_entropy_coding(true);
  config.set_uplink_format(v1::INT4);
  config.set_downlink_format(v1::BF16);
  EXPECT_TRUE(UplinkSpec(config).entropy_coded);
  EXPECT_FALSE(DownlinkSpec(config).entropy_coded);
}

TEST(CodecConfigTest, EcqIsAlwaysEntropyCoded) {
  v1::SynchronizationConfig config;
  config.set_uplink_format(v1::ECQ);
  config.set_entropy_coding(false);
  EXPECT_TRUE(UplinkSpec(config).entropy_coded);
}

}  // namespace
}  // namespace causeway
