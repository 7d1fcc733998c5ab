// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include "cli/status_report.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(LinkReportTest, ShowsBothDirectionsOfLiveIslands) {
  v1::ListIslandsResponse islands;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        islands {
          island_id: "north"
          state: LIVE
          progress {
            uplink {
              bytes_per_second: 2.5e6
              busy_seconds: 12
              paced_seconds: 3
              pace_bytes_per_second: 3e6
              bytes_sent_again: 1048576
            }
            downlink { tcp_bytes_retransmitted: 2048 }
            round_trip_seconds: 0.1504
          }
        }
        islands { island_id: "south" state: LEFT }
      )pb",
      &islands));
  std::ostringstream out;
  PrintLinks(islands, out);
  EXPECT_EQ(
      out.str(),
      "\nLINK   DIRECTION  ROUND TRIP  MBIT/S  PACED TO  BUSY  HELD BACK  "
      "SENT AGAIN  TCP AGAIN\n"
      "north  up           150.4 ms    20.0      24.0  12 s        3 s  "
      "  1.00 MiB        0 B\n"
      "north  down         150.4 ms       -         -   0 s        0 s  "
      "       0 B   2.00 KiB\n");
}

TEST(LinkReportTest, IsEmptyWithoutLiveIslands) {
  std::ostringstream out;
  PrintLinks({}, out);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace causeway
