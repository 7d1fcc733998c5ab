// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The methods of a follower.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/substitute.h"
#include "common/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "proto/control.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/page.pb.h"
#include "proto/replication.pb.h"
#include "proto/status.pb.h"
#include "proto/trust.pb.h"
#include "server/edge/calls.h"
#include "server/edge/download_call.h"
#include "server/edge/services.h"

namespace causeway {
namespace {

// Refuses all methods of a service except those in `methods`.
void RefuseOthers(const google::protobuf::ServiceDescriptor& service,
                  Follower* follower, Methods& methods) {
  for (int i = 0; i < service.method_count(); ++i) {
    methods.try_emplace(
        absl::Substitute("/$0/$1", service.full_name(),
                         service.method(i)->name()),
        UnaryMethod([follower](const Caller&, grpc::ByteBuffer&)
                        -> absl::StatusOr<grpc::ByteBuffer> {
          const std::string leader = follower->view().leader;
          return absl::UnavailableError(
              leader.empty()
                  ? "this coordinator does not lead the run: try again soon"
                  : absl::Substitute(
                        "this coordinator follows the one at $0: ask that "
                        "one$1",
                        leader,
                        follower->is_candidate()
                            ? ""
                            : ", or promote this one (causeway promote) if it "
                              "has a copy"));
        }));
  }
}

}  // namespace

std::vector<Methods> FollowerMethods(Follower* follower, CopySource* source,
                                     IslandLinks* links, CallThreads* threads) {
  Methods status = {
      {"/causeway.v1.Status/GetRun",
       Unary([=](const v1::GetRunRequest&) -> absl::StatusOr<v1::RunStatus> {
         ASSIGN_OR_RETURN(const v1::PageData data, source->Read());
         return data.run();
       })},
      {"/causeway.v1.Status/ListIslands",
       Unary([=](const v1::ListIslandsRequest& request)
                 -> absl::StatusOr<v1::ListIslandsResponse> {
         ASSIGN_OR_RETURN(const v1::PageData data, source->Read());
         v1::ListIslandsResponse response;
         for (const v1::IslandStatus& island : data.islands()) {
           if (island.island_id() > request.after() &&
               (request.include_departed() ||
                island.state() == v1::IslandStatus::LIVE)) {
             *response.add_islands() = island;
           }
         }
         return response;
       })},
      {"/causeway.v1.Status/ListFragments",
       Unary([=](const v1::ListFragmentsRequest&)
                 -> absl::StatusOr<v1::ListFragmentsResponse> {
         ASSIGN_OR_RETURN(const v1::PageData data, source->Read());
         v1::ListFragmentsResponse response;
         *response.mutable_fragments() = data.fragments();
         return response;
       })},
      {"/causeway.v1.Status/GetHistory",
       Unary([=](const v1::GetHistoryRequest& request) {
         return source->History(request);
       })},
      {"/causeway.v1.Status/WatchEvents", [=](BegunCall begun) {
         return NewWatchEventsCall(std::move(begun),
                                   {.news = &follower->published().news(),
                                    .log = [=] { return source->Log(); },
                                    .is_copy = true});
       }}};
  status = On(&threads->log_readers, std::move(status));
  Methods replication = {{"/causeway.v1.Replication/Promote",
                          Unary(follower, &Follower::Promote)}};
  PublishedCopy* const copy = &follower->published();
  const DownloadServer downloads = {.news = &copy->news(),
                                    .bytes_sent = &copy->bytes_sent(),
                                    .openers = &threads->openers,
                                    .links = links};
  Methods coordinator = {
      {"/causeway.v1.Coordinator/FetchParameters",
       SendStored<v1::FetchParametersRequest, v1::FetchParametersResponse>(
           downloads,
           [=](const v1::FetchParametersRequest& request) {
             return copy->OpenParameters(request);
           })},
      {"/causeway.v1.Coordinator/FetchUpdate",
       SendStored<v1::FetchUpdateRequest, v1::FetchUpdateResponse>(
           downloads, [=](const v1::FetchUpdateRequest& request) {
             return copy->OpenUpdate(request);
           })}};
  Methods control;
  Methods trust;
  const auto refuse_others = [&](const google::protobuf::Descriptor* of,
                                 const char* service, Methods& methods) {
    RefuseOthers(*of->file()->FindServiceByName(service), follower, methods);
  };
  refuse_others(v1::JoinRequest::descriptor(), "Coordinator", coordinator);
  refuse_others(v1::PauseRunRequest::descriptor(), "Control", control);
  refuse_others(v1::GetRunRequest::descriptor(), "Status", status);
  refuse_others(v1::PromoteRequest::descriptor(), "Replication", replication);
  // Its leader may have an authority.
  refuse_others(v1::EnrolRequest::descriptor(), "Trust", trust);
  return {std::move(coordinator), std::move(control), std::move(status),
          std::move(replication), std::move(trust)};
}

}  // namespace causeway
