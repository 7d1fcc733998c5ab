// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/services.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "common/transport/tcp_connections.h"
#include "proto/control.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"
#include "proto/trust.pb.h"
#include "server/edge/calls.h"
#include "server/edge/download_call.h"
#include "server/edge/upload_turns.h"
#include "server/rules/run_health.h"

namespace causeway {

Methods CoordinatorMethods(Engine* engine, IslandLinks* links,
                           CallThreads* threads,
                           const std::string& own_region) {
  const auto uploads = std::make_shared<SharedUploads>();
  const DownloadServer downloads = {
      .news = &engine->news(),
      .bytes_sent = &engine->bytes_sent(),
      .openers = &threads->openers,
      .links = links,
      .find_near = [feed = engine->followed().feed, own_region](
                       const std::string& region, const std::string& island) {
        return region == own_region ? "" : feed->FindNear(region, island);
      }};
  return {
      {"/causeway.v1.Coordinator/Join", Unary(engine, &Engine::Join)},
      {"/causeway.v1.Coordinator/Session",
       [=](BegunCall begun) {
         return NewSessionCall(std::move(begun), engine);
       }},
      {"/causeway.v1.Coordinator/FetchParameters",
       SendStored<v1::FetchParametersRequest, v1::FetchParametersResponse>(
           downloads,
           [=](const v1::FetchParametersRequest& request) {
             return engine->OpenParameters(request);
           })},
      {"/causeway.v1.Coordinator/Contribute",
       On(&threads->writers,
          [=](BegunCall begun) {
            return NewContributeCall(std::move(begun), engine, uploads.get());
          })},
      {"/causeway.v1.Coordinator/FetchUpdate",
       SendStored<v1::FetchUpdateRequest, v1::FetchUpdateResponse>(
           downloads,
           [=](const v1::FetchUpdateRequest& request)
               -> absl::StatusOr<std::optional<OpenedUpdate>> {
             ASSIGN_OR_RETURN(const bool awaited, engine->IsAwaited(request));
             if (awaited) return std::nullopt;
             return engine->OpenUpdate(request);
           },
           [=](const v1::FragmentHead& head) { engine->NoteDelivered(head); })},
      {"/causeway.v1.Coordinator/Leave", Unary(engine, &Engine::Leave)}};
}

namespace {

v1::Attention Problem(const CertificateExpiry::Notice& notice) {
  v1::Attention problem;
  problem.set_severity(notice.has_expired ? v1::CRITICAL : v1::WARNING);
  problem.set_text(absl::StrCat("coordinator: ", notice.text));
  *problem.mutable_since() = ToTimestamp(notice.since);
  return problem;
}

}  // namespace

v1::RunStatus StatusSource::GetRun() const {
  v1::RunStatus run = engine->GetRun();
  *run.mutable_connections() = connections->Use();
  run.set_warning(warning);
  if (certificate == nullptr) return run;
  const absl::Time expiry = certificate->Get();
  if (expiry < absl::InfiniteFuture()) {
    *run.mutable_certificate_expires_at() = ToTimestamp(expiry);
  }
  const CertificateExpiry::Notice notice = certificate->Check();
  if (notice.since < absl::InfiniteFuture()) {
    *run.mutable_certificate_notice_at() = ToTimestamp(notice.since);
  }
  if (!notice.text.empty()) AddProblems({Problem(notice)}, run);
  return run;
}

Methods StatusMethods(const StatusSource* source, CallThreads* threads) {
  Engine* const engine = source->engine;
  DiskThreads* const readers = &threads->log_readers;
  Methods methods = {
      {"/causeway.v1.Status/GetRun",
       Unary([=](const v1::GetRunRequest&) { return source->GetRun(); })},
      {"/causeway.v1.Status/ListIslands",
       Unary([=](const v1::ListIslandsRequest& request) {
         return source->ListIslands(request);
       })},
      {"/causeway.v1.Status/ListFragments",
       Unary([=](const v1::ListFragmentsRequest&) {
         return engine->ListFragments();
       })},
      {"/causeway.v1.Status/GetHistory",
       On(readers, Unary(engine, &Engine::GetHistory))},
      {"/causeway.v1.Status/WatchEvents", On(readers, [=](BegunCall begun) {
         return NewWatchEventsCall(
             std::move(begun), {.news = &engine->news(), .log = [=]() {
                                  // The engine outlives the call.
                                  return std::shared_ptr<CommitLog>(
                                      std::shared_ptr<void>(), &engine->log());
                                }});
       })}};
  return RefusedUnless([=] { return engine->CheckLogMoves(); },
                       std::move(methods));
}

Methods ControlMethods(Engine* engine, const Connections* connections,
                       CallThreads* threads) {
  return {
      {"/causeway.v1.Control/PauseRun", Unary(engine, &Engine::Pause)},
      {"/causeway.v1.Control/ResumeRun",
       Unary([=](const Caller& caller, const v1::ResumeRunRequest&) {
         return engine->Resume(caller.Name());
       })},
      {"/causeway.v1.Control/DrainIsland", Unary(engine, &Engine::Drain)},
      {"/causeway.v1.Control/EvictIsland", Unary(engine, &Engine::Evict)},
      {"/causeway.v1.Control/ListQuarantine",
       Unary([=](const v1::ListQuarantineRequest& request) {
         return engine->ListQuarantine(request.include_decided());
       })},
      {"/causeway.v1.Control/AdmitContribution",
       On(&threads->writers,
          Unary([=](const Caller& caller,
                    const v1::AdmitContributionRequest& request) {
            return engine->Admit(request.id(), caller.Name());
          }))},
      {"/causeway.v1.Control/DropContribution",
       Unary([=](const Caller& caller,
                 const v1::DropContributionRequest& request) {
         return engine->Drop(request.id(), caller.Name());
       })},
      {"/causeway.v1.Control/AcceptData", Unary(engine, &Engine::AcceptData)},
      {"/causeway.v1.Control/ListPeers",
       Unary(
           [=](const v1::ListPeersRequest&) { return connections->Peers(); })}};
}

Methods ReplicationMethods(Engine* engine, CallThreads* threads) {
  return {
      {"/causeway.v1.Replication/Follow",
       On(&threads->log_readers,
          [=](BegunCall begun) {
            return NewFollowCall(std::move(begun), engine, &threads->feeders);
          })},
      {"/causeway.v1.Replication/Promote", Unary([](const v1::PromoteRequest&) {
         return absl::FailedPreconditionError(
             "this is the run's coordinator, not a follower: name a follower");
       })}};
}

Methods TrustMethods(Trust* trust, CallThreads* threads) {
  return On(
      &threads->writers,
      Methods{
          {"/causeway.v1.Trust/Enrol",
           Unary([=](const Caller& caller, const v1::EnrolRequest& request) {
             return trust->Enrol(request, NetworkOf(caller.peer()));
           })},
          {"/causeway.v1.Trust/Renew",
           Unary([=](const Caller& caller, const v1::RenewRequest& request) {
             return trust->Renew(request, caller.certificate().serial);
           })},
          {"/causeway.v1.Trust/CreateToken", Unary(trust, &Trust::CreateToken)},
          {"/causeway.v1.Trust/ListTokens",
           Unary([=](const v1::ListTokensRequest&) {
             return trust->ListTokens();
           })},
          {"/causeway.v1.Trust/RevokeToken", Unary(trust, &Trust::RevokeToken)},
          {"/causeway.v1.Trust/ListCertificates",
           Unary([=](const v1::ListCertificatesRequest&) {
             return trust->ListCertificates();
           })},
          {"/causeway.v1.Trust/RevokeCertificate",
           Unary(trust, &Trust::RevokeCertificate)}});
}

}  // namespace causeway
