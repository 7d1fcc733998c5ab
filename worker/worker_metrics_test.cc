// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_metrics.h"

#include <string>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

std::string Text(const WorkerMetrics& metrics,
                 const std::optional<v1::IslandProgress>& progress,
                 absl::Time expiry = absl::InfiniteFuture()) {
  MetricFamilies families;
  metrics.Add(progress, expiry, expiry - absl::Seconds(5), families);
  return families.Text();
}

TEST(WorkerMetricsTest, AWorkerIsReadyOnceItHasJoined) {
  WorkerMetrics metrics;
  EXPECT_THAT(metrics.CheckJoined(), IsUnavailable());
  EXPECT_THAT(Text(metrics, v1::IslandProgress()),
              HasSubstr("causeway_worker_joined 0\n"));
  metrics.SetRun({});
  EXPECT_OK(metrics.CheckJoined());
}

TEST(WorkerMetricsTest, ShowsTheProgressAndTheRanks) {
  v1::JoinResponse joined;
  joined.mutable_config()->set_name("r");
  joined.mutable_identity()->set_island_id("east");
  WorkerMetrics metrics;
  metrics.SetRun(joined);
  v1::IslandProgress progress;
  progress.set_run_step(40);
  progress.set_exposed_communication_seconds(0.25);
  progress.mutable_uplink()->set_bytes_per_second(5);
  progress.add_ranks()->set_tokens(7);
  progress.add_ranks()->set_tokens(8);
  const std::string text =
      Text(metrics, progress, absl::FromUnixSeconds(1'700'000'000));
  for (const char* const sample :
       {"joined{run=\"r\",island=\"east\"} 1",
        "run_step{run=\"r\",island=\"east\"} 40",
        "rank_communication_exposed_seconds_total{run=\"r\",island=\"east\"} "
        "0.25",
        "link_bytes_per_second{run=\"r\",island=\"east\",direction=\"up\"} 5",
        "rank_tokens_total{run=\"r\",island=\"east\",rank=\"1\"} 8",
        "certificate_expiry_timestamp_seconds{run=\"r\",island=\"east\"} "
        "1700000000",
        "certificate_notice_timestamp_seconds{run=\"r\",island=\"east\"} "
        "1699999995"}) {
    EXPECT_THAT(text, HasSubstr(std::string("causeway_worker_") + sample));
  }
  EXPECT_THAT(Text(metrics, progress),
              Not(AnyOf(HasSubstr("certificate_expiry_timestamp_seconds{"),
                        HasSubstr("certificate_notice_timestamp_seconds{"))));
  // The island starts again.
  EXPECT_THAT(Text(metrics, std::nullopt), Not(HasSubstr("run_step")));
}

}  // namespace
}  // namespace causeway
