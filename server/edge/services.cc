// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/services.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/proto_time.h"
#include "common/status_macros.h"
#include "common/transport/tcp_connections.h"
#include "proto/control.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"
#include "proto/trust.pb.h"
#include "server/edge/calls.h"
#include "server/edge/send_stored.h"
#include "server/edge/upload_turns.h"

namespace causeway {

Methods CoordinatorMethods(Engine* engine, IslandLinks* links,
                           const std::string& own_region) {
  const auto uploads = std::make_shared<SharedUploads>();
  const DownloadServer downloads = {
      .host = {&engine->news(), &engine->bytes_sent()},
      .links = links,
      .find_near = [feed = engine->followed().feed, own_region](
                       const std::string& region, const std::string& island) {
        return region == own_region ? "" : feed->FindNear(region, island);
      }};
  return {
      {"/causeway.v1.Coordinator/Join",
       Unary<v1::JoinRequest>([=](const v1::JoinRequest& request) {
         return engine->Join(request);
       })},
      {"/causeway.v1.Coordinator/Session",
       [=](BegunCall begun, grpc::CallbackServerContext&) {
         return NewSessionCall(std::move(begun), engine);
       }},
      {"/causeway.v1.Coordinator/FetchParameters",
       SendStored<v1::FetchParametersRequest, v1::FetchParametersResponse>(
           downloads,
           [=](const v1::FetchParametersRequest& request) {
             return engine->OpenParameters(request);
           })},
      {"/causeway.v1.Coordinator/Contribute",
       [=](BegunCall begun, grpc::CallbackServerContext&) {
         return NewContributeCall(std::move(begun), engine, uploads.get());
       }},
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
      {"/causeway.v1.Coordinator/Leave",
       Unary<v1::LeaveRequest>([=](const v1::LeaveRequest& request) {
         return engine->Leave(request);
       })}};
}

v1::RunStatus StatusSource::GetRun() const {
  v1::RunStatus run = engine->GetRun();
  *run.mutable_connections() = connections->Use();
  run.set_warning(warning);
  const absl::Time expiry =
      certificate == nullptr ? absl::InfiniteFuture() : certificate->Get();
  if (expiry < absl::InfiniteFuture()) {
    *run.mutable_certificate_expires_at() = ToTimestamp(expiry);
  }
  return run;
}

v1::ListIslandsResponse StatusSource::ListIslands(
    const v1::ListIslandsRequest& request) const {
  v1::ListIslandsResponse islands = engine->ListIslands(request);
  links->Describe(islands);
  return islands;
}

v1::ListIslandsResponse StatusSource::ListIslands(bool include_departed) const {
  v1::ListIslandsResponse islands = engine->ListIslands(include_departed);
  links->Describe(islands);
  return islands;
}

Methods StatusMethods(const StatusSource* source) {
  Engine* const engine = source->engine;
  return {
      {"/causeway.v1.Status/GetRun",
       Unary<v1::GetRunRequest>(
           [=](const v1::GetRunRequest&) { return source->GetRun(); })},
      {"/causeway.v1.Status/ListIslands",
       Unary<v1::ListIslandsRequest>(
           [=](const v1::ListIslandsRequest& request) {
             return source->ListIslands(request);
           })},
      {"/causeway.v1.Status/ListFragments",
       Unary<v1::ListFragmentsRequest>([=](const v1::ListFragmentsRequest&) {
         return engine->ListFragments();
       })},
      {"/causeway.v1.Status/GetHistory",
       Unary<v1::GetHistoryRequest>([=](const v1::GetHistoryRequest& request) {
         return engine->GetHistory(request);
       })},
      {"/causeway.v1.Status/WatchEvents",
       [=](BegunCall begun, grpc::CallbackServerContext&) {
         return NewWatchEventsCall(std::move(begun), engine);
       }}};
}

Methods ControlMethods(Engine* engine, const Connections* connections) {
  return {
      {"/causeway.v1.Control/PauseRun",
       Unary<v1::PauseRunRequest>(
           [=](const Caller& caller, const v1::PauseRunRequest& request) {
             return engine->Pause(request, caller.Name());
           })},
      {"/causeway.v1.Control/ResumeRun",
       Unary<v1::ResumeRunRequest>(
           [=](const Caller& caller, const v1::ResumeRunRequest&) {
             return engine->Resume(caller.Name());
           })},
      {"/causeway.v1.Control/DrainIsland",
       Unary<v1::DrainIslandRequest>(
           [=](const Caller& caller, const v1::DrainIslandRequest& request) {
             return engine->Drain(request, caller.Name());
           })},
      {"/causeway.v1.Control/EvictIsland",
       Unary<v1::EvictIslandRequest>(
           [=](const Caller& caller, const v1::EvictIslandRequest& request) {
             return engine->Evict(request, caller.Name());
           })},
      {"/causeway.v1.Control/ListQuarantine",
       Unary<v1::ListQuarantineRequest>(
           [=](const v1::ListQuarantineRequest& request) {
             return engine->ListQuarantine(request.include_decided());
           })},
      {"/causeway.v1.Control/AdmitContribution",
       Unary<v1::AdmitContributionRequest>(
           [=](const Caller& caller,
               const v1::AdmitContributionRequest& request) {
             return engine->Admit(request.id(), caller.Name());
           })},
      {"/causeway.v1.Control/DropContribution",
       Unary<v1::DropContributionRequest>(
           [=](const Caller& caller,
               const v1::DropContributionRequest& request) {
             return engine->Drop(request.id(), caller.Name());
           })},
      {"/causeway.v1.Control/AcceptData",
       Unary<v1::AcceptDataRequest>(
           [=](const Caller& caller, const v1::AcceptDataRequest& request) {
             return engine->AcceptData(request, caller.Name());
           })},
      {"/causeway.v1.Control/ListPeers",
       Unary<v1::ListPeersRequest>(
           [=](const v1::ListPeersRequest&) { return connections->Peers(); })}};
}

Methods ReplicationMethods(Engine* engine) {
  return {{"/causeway.v1.Replication/Follow",
           [=](BegunCall begun, grpc::CallbackServerContext&) {
             return NewFollowCall(std::move(begun), engine);
           }},
          {"/causeway.v1.Replication/Promote",
           Unary<v1::PromoteRequest>([](const v1::PromoteRequest&) {
             return absl::FailedPreconditionError(
                 "this is the run's coordinator, and no follower: name a "
                 "follower");
           })}};
}

Methods TrustMethods(Trust* trust) {
  return {
      {"/causeway.v1.Trust/Enrol",
       Unary<v1::EnrolRequest>(
           [=](const Caller& caller, const v1::EnrolRequest& request) {
             return trust->Enrol(request, NetworkOf(caller.peer()));
           })},
      {"/causeway.v1.Trust/Renew",
       Unary<v1::RenewRequest>(
           [=](const Caller& caller, const v1::RenewRequest& request) {
             return trust->Renew(request, caller.certificate().serial);
           })},
      {"/causeway.v1.Trust/CreateToken",
       Unary<v1::CreateTokenRequest>(
           [=](const Caller& caller, const v1::CreateTokenRequest& request) {
             return trust->CreateToken(request, caller.Name());
           })},
      {"/causeway.v1.Trust/ListTokens",
       Unary<v1::ListTokensRequest>(
           [=](const v1::ListTokensRequest&) { return trust->ListTokens(); })},
      {"/causeway.v1.Trust/RevokeToken",
       Unary<v1::RevokeTokenRequest>(
           [=](const Caller& caller, const v1::RevokeTokenRequest& request) {
             return trust->RevokeToken(request, caller.Name());
           })},
      {"/causeway.v1.Trust/ListCertificates",
       Unary<v1::ListCertificatesRequest>(
           [=](const v1::ListCertificatesRequest&) {
             return trust->ListCertificates();
           })},
      {"/causeway.v1.Trust/RevokeCertificate",
       Unary<v1::RevokeCertificateRequest>(
           [=](const Caller& caller,
               const v1::RevokeCertificateRequest& request) {
             return trust->RevokeCertificate(request, caller.Name());
           })}};
}

}  // namespace causeway
