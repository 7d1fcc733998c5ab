// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/island_links.h"

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

class IslandLinksTest : public testing::Test {
 protected:
  v1::LinkUse Downlink(const std::string& island) const {
    v1::ListIslandsResponse islands;
    islands.add_islands()->set_island_id(island);
    // The island's own report stays.
    islands.mutable_islands(0)
        ->mutable_progress()
        ->mutable_downlink()
        ->set_busy_seconds(7);
    links_.Describe(islands);
    return islands.islands(0).progress().downlink();
  }

  absl::Time now_ = absl::UnixEpoch();
  IslandLinks links_{[this] { return now_; }};
};

TEST_F(IslandLinksTest, CompressedChunksHaveTheirMemoryUntilTheyAreSent) {
  auto chunks = std::make_unique<CompressedChunks>();
  constexpr uint64_t kHalf = CompressedChunks::kMostBytes / 2;
  std::shared_ptr<std::string> first = chunks->Allocate(kHalf);
  ASSERT_NE(first, nullptr);
  std::shared_ptr<const void> sending = first;
  const std::shared_ptr<std::string> second = chunks->Allocate(kHalf);
  ASSERT_NE(second, nullptr);
  first.reset();
  EXPECT_EQ(chunks->Allocate(1), nullptr);
  sending.reset();
  EXPECT_NE(chunks->Allocate(kHalf), nullptr);
  EXPECT_NE(chunks->Allocate(kHalf), nullptr) << "the last one is gone";
  EXPECT_EQ(chunks->Allocate(kHalf + 1), nullptr);
  chunks.reset();
  EXPECT_EQ(*second, "");
}

TEST_F(IslandLinksTest, PacesAllStreamsOfAnIslandTogether) {
  const std::shared_ptr<IslandLink> north = links_.Get("north");
  north->BeginDownload(1e6, "10.0.0.1:1");
  links_.Get("north")->BeginDownload(1e6, "10.0.0.1:2");
  EXPECT_EQ(north->Take(1'000'000), absl::ZeroDuration());
  EXPECT_EQ(links_.Get("north")->Take(1), absl::Seconds(1) - Pacer::kBurst);
  EXPECT_EQ(links_.Get("south")->Take(1), absl::ZeroDuration());
  EXPECT_EQ(Downlink("north").pace_bytes_per_second(), 1e6);
  EXPECT_DOUBLE_EQ(Downlink("north").paced_seconds(), 0.98);
  EXPECT_EQ(Downlink("north").busy_seconds(), 7);
  EXPECT_EQ(Downlink("south").paced_seconds(), 0);
}

TEST_F(IslandLinksTest, TheNewestRequestSaysTheRate) {
  const std::shared_ptr<IslandLink> north = links_.Get("north");
  north->BeginDownload(1e6, "10.0.0.1:1");
  north->BeginDownload(0, "10.0.0.1:1");
  EXPECT_EQ(north->Take(1'000'000'000), absl::ZeroDuration());
  EXPECT_EQ(north->Take(1), absl::ZeroDuration());
}

TEST_F(IslandLinksTest, SaysNothingOfAnIslandItDoesNotKnow) {
  EXPECT_EQ(Downlink("west").pace_bytes_per_second(), 0);
  EXPECT_EQ(Downlink("west").busy_seconds(), 7);
}

TEST_F(IslandLinksTest, TheTimesOfAllPausesAddUp) {
  const std::shared_ptr<IslandLink> north = links_.Get("north");
  north->BeginDownload(1e6, "10.0.0.1:1");
  north->Take(1'000'000);
  const absl::Duration first = north->Take(1'000'000);
  const absl::Duration second = north->Take(1'000'000);
  EXPECT_GT(first, absl::ZeroDuration());
  EXPECT_DOUBLE_EQ(Downlink("north").paced_seconds(),
                   absl::ToDoubleSeconds(first + second));
}

TEST_F(IslandLinksTest, EachConnectionOfTheIslandCountsOnce) {
  IslandLink link([this] { return now_; });
  link.BeginDownload(0, "10.0.0.1:1");
  link.BeginDownload(0, "10.0.0.1:2");
  link.BeginDownload(0, "10.0.0.1:1");
  v1::LinkUse downlink;
  link.Describe({{"10.0.0.1:1", 5}, {"10.0.0.1:2", 70}, {"10.0.0.2:1", 900}},
                downlink);
  EXPECT_EQ(downlink.tcp_bytes_retransmitted(), 75);
}

}  // namespace
}  // namespace causeway
