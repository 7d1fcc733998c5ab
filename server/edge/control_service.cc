// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/control_service.h"

#include "absl/status/status.h"
#include "common/grpc_status.h"
#include "proto/control.grpc.pb.h"

namespace causeway {
namespace {

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                 const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

class ControlService : public v1::Control::CallbackService {
 public:
  explicit ControlService(Engine* engine) : engine_(engine) {}

  grpc::ServerUnaryReactor* PauseRun(grpc::CallbackServerContext* context,
                                     const v1::PauseRunRequest* request,
                                     v1::PauseRunResponse*) override {
    return Finish(context, engine_->Pause(*request));
  }

  grpc::ServerUnaryReactor* ResumeRun(grpc::CallbackServerContext* context,
                                      const v1::ResumeRunRequest*,
                                      v1::ResumeRunResponse*) override {
    return Finish(context, engine_->Resume());
  }

  grpc::ServerUnaryReactor* DrainIsland(grpc::CallbackServerContext* context,
                                        const v1::DrainIslandRequest* request,
                                        v1::DrainIslandResponse*) override {
    return Finish(context, engine_->Drain(*request));
  }

  grpc::ServerUnaryReactor* EvictIsland(grpc::CallbackServerContext* context,
                                        const v1::EvictIslandRequest* request,
                                        v1::EvictIslandResponse*) override {
    return Finish(context, engine_->Evict(*request));
  }

  grpc::ServerUnaryReactor* ListQuarantine(
      grpc::CallbackServerContext* context,
      const v1::ListQuarantineRequest* request,
      v1::ListQuarantineResponse* response) override {
    *response = engine_->ListQuarantine(request->include_decided());
    return Finish(context, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* AdmitContribution(
      grpc::CallbackServerContext* context,
      const v1::AdmitContributionRequest* request,
      v1::AdmitContributionResponse*) override {
    return Finish(context, engine_->Admit(request->id()));
  }

  grpc::ServerUnaryReactor* DropContribution(
      grpc::CallbackServerContext* context,
      const v1::DropContributionRequest* request,
      v1::DropContributionResponse*) override {
    return Finish(context, engine_->Drop(request->id()));
  }

 private:
  Engine* const engine_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewControlService(Engine* engine) {
  return std::make_unique<ControlService>(engine);
}

}  // namespace causeway
