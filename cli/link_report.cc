// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/link_report.h"

#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/human.h"
#include "cli/table.h"

namespace causeway {
namespace {

std::string Megabits(double bytes_per_second) {
  return bytes_per_second > 0
             ? absl::StrFormat("%.1f", bytes_per_second * 8 / 1e6)
             : "-";
}

}  // namespace

void PrintLinks(const v1::ListIslandsResponse& islands, std::ostream& out) {
  Table table({{"LINK"},
               {"DIRECTION"},
               {"ROUND TRIP", Table::kRight},
               {"MBIT/S", Table::kRight},
               {"PACED TO", Table::kRight},
               {"BUSY", Table::kRight},
               {"HELD BACK", Table::kRight},
               {"SENT AGAIN", Table::kRight},
               {"TCP AGAIN", Table::kRight}});
  bool any = false;
  for (const v1::IslandStatus& island : islands.islands()) {
    if (island.state() != v1::IslandStatus::LIVE) continue;
    any = true;
    const v1::IslandProgress& progress = island.progress();
    const auto add = [&](const char* direction, const v1::LinkUse& use) {
      table.AddRow(
          {island.island_id(), direction,
           progress.round_trip_seconds() > 0
               ? absl::StrFormat("%.1f ms", progress.round_trip_seconds() * 1e3)
               : "-",
           Megabits(use.bytes_per_second()),
           Megabits(use.pace_bytes_per_second()),
           HumanDuration(absl::Seconds(use.busy_seconds())),
           HumanDuration(absl::Seconds(use.paced_seconds())),
           HumanBytes(static_cast<double>(use.bytes_sent_again())),
           HumanBytes(static_cast<double>(use.tcp_bytes_retransmitted()))});
    };
    add("up", progress.uplink());
    add("down", progress.downlink());
  }
  if (!any) return;
  out << "\n";
  table.Print(out);
}

}  // namespace causeway
