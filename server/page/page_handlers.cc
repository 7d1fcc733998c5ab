// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/page/page_handlers.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "google/protobuf/repeated_field.h"
#include "server/page/assets.h"
#include "server/page/page_json.h"
#include "server/rules/event_filter.h"

namespace causeway {
namespace {

// Requests within this time share an answer, which takes milliseconds to make
// in a large run.
constexpr absl::Duration kShared = absl::Milliseconds(500);

// The time that a request waits for an earlier one of the same kind.
constexpr absl::Duration kPatience = absl::Seconds(1);

// The most islands on the page that have left or were evicted: those that
// joined last.
constexpr size_t kMostEnded = 100;

HttpHandler Asset(absl::string_view type, absl::string_view body) {
  return [=](const HttpRequest&) {
    return HttpResponse{.content_type = absl::StrCat(type, "; charset=utf-8"),
                        .body = std::string(body)};
  };
}

HttpResponse Json(absl::StatusOr<std::string> json) {
  if (!json.ok()) {
    return {.status = absl::IsInvalidArgument(json.status()) ? 400 : 503,
            .body = absl::StrCat(json.status().message(), "\n")};
  }
  return {.content_type = "application/json", .body = *std::move(json)};
}

// Returns the value after `name`= in a query; 0 if there is none.
//   INVALID_ARGUMENT  It is no whole number.
absl::StatusOr<uint64_t> NumberOf(absl::string_view query,
                                  absl::string_view name) {
  uint64_t number = 0;
  for (const absl::string_view part : absl::StrSplit(query, '&')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first != name) continue;
    if (absl::SimpleAtoi(pair.second, &number)) break;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be a whole number from 0"));
  }
  return number;
}

// Removes what the page does not show: the ranks' work, and most of the islands
// that have ended.
void ShortenIslands(
    google::protobuf::RepeatedPtrField<v1::IslandStatus>& islands) {
  std::vector<int64_t> ended;
  for (v1::IslandStatus& island : islands) {
    island.mutable_progress()->clear_ranks();
    if (island.state() != v1::IslandStatus::LIVE) {
      ended.push_back(island.joined_at().seconds());
    }
  }
  if (ended.size() <= kMostEnded) return;
  const auto oldest = ended.begin() + kMostEnded - 1;
  std::nth_element(ended.begin(), oldest, ended.end(), std::greater<>());
  size_t kept = 0;
  islands.erase(
      std::remove_if(islands.begin(), islands.end(),
                     [&](const v1::IslandStatus& island) {
                       return island.state() != v1::IslandStatus::LIVE &&
                              (island.joined_at().seconds() < *oldest ||
                               ++kept > kMostEnded);
                     }),
      islands.end());
}

absl::StatusOr<std::string> StatusJson(const PageSource& source) {
  ASSIGN_OR_RETURN(v1::PageData data, source.status());
  ShortenIslands(*data.mutable_islands());
  return PageJson(data);
}

absl::StatusOr<std::string> EventsJson(const PageSource& source,
                                       absl::string_view query) {
  ASSIGN_OR_RETURN(const uint64_t severity, NumberOf(query, "min_severity"));
  ASSIGN_OR_RETURN(const uint64_t after, NumberOf(query, "after"));
  EventFilter filter;
  if (severity <= v1::Severity_MAX) {
    filter.min_severity = static_cast<v1::Severity>(severity);
  }
  ASSIGN_OR_RETURN(const std::vector<v1::Event> events,
                   source.events(after, kMostPageEvents, filter));
  v1::PageData data;
  data.mutable_events()->Assign(events.begin(), events.end());
  ShortenEvents(data);
  return PageJson(data);
}

absl::StatusOr<std::string> HistoryJson(const PageSource& source,
                                        absl::string_view query) {
  ASSIGN_OR_RETURN(const uint64_t training, NumberOf(query, "training_after"));
  ASSIGN_OR_RETURN(const uint64_t validation,
                   NumberOf(query, "validation_after"));
  v1::GetHistoryRequest request;
  request.set_training_after(training);
  request.set_validation_after(validation);
  ASSIGN_OR_RETURN(const v1::GetHistoryResponse history,
                   source.history(request));
  return PageJson(history);
}

// Lets one request at a time through to `handler`.
HttpHandler OneAtATime(HttpHandler handler) {
  struct Turn {
    absl::Mutex mu;
    bool is_taken ABSL_GUARDED_BY(mu) = false;
  };
  return [handler = std::move(handler),
          turn = std::make_shared<Turn>()](const HttpRequest& request) {
    {
      const auto is_free = [&turn = *turn] {
        turn.mu.AssertHeld();
        return !turn.is_taken;
      };
      absl::MutexLock lock(&turn->mu);
      if (!turn->mu.AwaitWithTimeout(absl::Condition(&is_free), kPatience)) {
        return Json(absl::UnavailableError(
            "an earlier request still waits for the coordinator: look at its "
            "log and its disk"));
      }
      turn->is_taken = true;
    }
    HttpResponse response = handler(request);
    absl::MutexLock lock(&turn->mu);
    turn->is_taken = false;
    return response;
  };
}

// Returns a handler that gives requests within kShared the same answer.
HttpHandler SharedStatus(const PageSource& source, Clock now) {
  struct Status {
    std::string json;
    absl::Time made;
  };
  return OneAtATime([=, shared = std::make_shared<Status>()](
                        const HttpRequest&) -> HttpResponse {
    const absl::Time time = now();
    if (shared->json.empty() || time >= shared->made + kShared) {
      absl::StatusOr<std::string> json = StatusJson(source);
      if (!json.ok()) return Json(json.status());
      shared->json = *std::move(json);
      shared->made = time;
    }
    return Json(shared->json);
  });
}

}  // namespace

PageSource PageOf(const StatusSource& status) {
  Engine* const engine = status.engine;
  return {
      .status = [=, &status]() -> absl::StatusOr<v1::PageData> {
        RETURN_IF_ERROR(engine->CheckLogMoves());
        v1::PageData data;
        *data.mutable_run() = status.GetRun();
        *data.mutable_islands() = std::move(
            *status.ListIslands(/*include_departed=*/true).mutable_islands());
        *data.mutable_fragments() =
            std::move(*engine->ListFragments().mutable_fragments());
        *data.mutable_quarantine() =
            std::move(*engine->ListQuarantine(/*include_decided=*/false)
                           .mutable_contributions());
        ASSIGN_OR_RETURN(const uint64_t newest, engine->log().NewestEvent());
        data.set_newest_event(newest);
        return data;
      },
      .history = [=](const v1::GetHistoryRequest& request)
          -> absl::StatusOr<v1::GetHistoryResponse> {
        RETURN_IF_ERROR(engine->CheckLogMoves());
        return engine->GetHistory(request);
      },
      .events = [=](uint64_t after, uint64_t most, const EventFilter& filter)
          -> absl::StatusOr<std::vector<v1::Event>> {
        RETURN_IF_ERROR(engine->CheckLogMoves());
        return engine->log().NewestEvents(after, most, filter);
      }};
}

PageSource PageOf(CopySource* copy) {
  return {.status = [=] { return copy->Read(); },
          .history =
              [=](const v1::GetHistoryRequest& request) {
                return copy->History(request);
              },
          .events =
              [=](uint64_t after, uint64_t most, const EventFilter& filter) {
                return copy->NewestEvents(after, most, filter);
              }};
}

std::map<std::string, HttpHandler> PageHandlers(const PageSource& source,
                                                Clock now) {
  return {{"/", Asset("text/html", PageHtml())},
          {"/page.css", Asset("text/css", PageCss())},
          {"/page.js", Asset("text/javascript", PageJs())},
          // Browsers ask for it.
          {"/favicon.ico",
           [](const HttpRequest&) { return HttpResponse{.status = 204}; }},
          {"/api/status", SharedStatus(source, std::move(now))},
          {"/api/history", OneAtATime([=](const HttpRequest& request) {
             return Json(HistoryJson(source, request.query));
           })},
          {"/api/events", OneAtATime([=](const HttpRequest& request) {
             return Json(EventsJson(source, request.query));
           })}};
}

}  // namespace causeway
