// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of the C interface for programs that start ranks.
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "proto/coordinator.pb.h"
#include "worker/collective/rank_stamps.h"
#include "worker/embedding/c_guard.h"
#include "worker/embedding/causeway.h"
#include "worker/supervisor/rank_watch.h"
#include "worker/supervisor/stamp_reader.h"

struct causeway_watch {
  explicit causeway_watch(std::unique_ptr<causeway::RankStampPage> stamps)
      : page(std::move(stamps)), reader(page.get()) {}

  const std::unique_ptr<causeway::RankStampPage> page;
  causeway::StampReader reader;
  const causeway::Clock now = causeway::SteadyWallClock();
  std::string variable;
  std::string text;
};

using causeway::Guard;

namespace {

// Has rank 0 report the trouble. With `replaces` it replaces earlier reports,
// and no rank may run, because it could take one of those.
absl::Status Say(causeway_watch* watch, causeway::v1::RankTrouble::Kind kind,
                 int32_t rank, const char* text, bool replaces) {
  if (rank < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", rank, "; it is 0 or more"));
  }
  causeway::v1::RankTrouble trouble;
  trouble.set_kind(kind);
  trouble.set_rank(static_cast<uint32_t>(rank));
  trouble.set_text(text == nullptr ? "" : text);
  if (replaces) watch->page->DropVerdict();
  watch->page->SetVerdict(trouble);
  return absl::OkStatus();
}

}  // namespace

causeway_code causeway_watch_open(causeway_watch** watch,
                                  const char** variable) {
  return Guard({watch, variable}, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(std::unique_ptr<causeway::RankStampPage> page,
                     causeway::RankStampPage::Create());
    auto opened = std::make_unique<causeway_watch>(std::move(page));
    opened->variable =
        absl::StrCat(causeway::kRankStampsVariable, "=", opened->page->path());
    *variable = opened->variable.c_str();
    *watch = opened.release();
    return absl::OkStatus();
  });
}

causeway_code causeway_watch_look(causeway_watch* watch, double silence_seconds,
                                  double least_seconds, double most_seconds,
                                  causeway_stuck_rank* stuck) {
  return Guard({watch, stuck}, [&]() -> absl::Status {
    const absl::Duration silence = absl::Seconds(silence_seconds);
    const std::optional<causeway::RankFault> fault =
        causeway::FindStuckRank(watch->reader.Read(watch->now()),
                                {.least = absl::Seconds(least_seconds),
                                 .most = absl::Seconds(most_seconds),
                                 .silence = silence,
                                 // Ranks in PyTorch take long to start.
                                 .stopped = silence});
    *stuck = {.text = "", .last_step = watch->reader.LastStep()};
    if (!fault.has_value()) return absl::OkStatus();
    watch->text = fault->text;
    stuck->process = fault->process;
    stuck->rank = fault->rank;
    stuck->is_sure = fault->is_sure;
    stuck->text = watch->text.c_str();
    return absl::OkStatus();
  });
}

causeway_code causeway_watch_failed(causeway_watch* watch, int32_t rank,
                                    int32_t is_stuck, const char* text) {
  return Guard({watch}, [&] {
    return is_stuck != 0
               ? Say(watch, causeway::v1::RankTrouble::STUCK_RANK, rank, text,
                     /*replaces=*/false)
               : Say(watch, causeway::v1::RankTrouble::DEAD_RANK, rank, text,
                     /*replaces=*/true);
  });
}

causeway_code causeway_watch_returned(causeway_watch* watch, int32_t rank,
                                      const char* text) {
  return Guard({watch}, [&] {
    return Say(watch, causeway::v1::RankTrouble::RETURNED_RANK, rank, text,
               /*replaces=*/false);
  });
}

causeway_code causeway_watch_take_corrupt(causeway_watch* watch, int32_t* rank,
                                          int32_t* count) {
  return Guard({watch, rank, count}, [&] {
    *count = 0;
    for (int other = causeway::kMostRanks - 1; other >= 0; --other) {
      if (!watch->page->TakeCorrupt(other)) continue;
      *rank = other;
      ++*count;
    }
    return absl::OkStatus();
  });
}

void causeway_watch_close(causeway_watch* watch) { delete watch; }
