// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Calls with deadlines that can be cancelled together.
//
//   CallGroup group;
//   GroupedCall call(&group, timeout);
//   stub.Join(&call.context(), request, &response);
//   group.CancelAll();  // from any thread: all calls up to now
//   group.Cancel();     // and all later ones
#ifndef WORKER_SYNC_CALL_GROUP_H_
#define WORKER_SYNC_CALL_GROUP_H_

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/transport/grpc_time.h"
#include "grpcpp/client_context.h"

namespace causeway {

// Thread-safe.
class CallGroup {
 public:
  void CancelAll() {
    absl::MutexLock lock(&mu_);
    for (grpc::ClientContext* context : active_) context->TryCancel();
  }
  void Cancel() {
    {
      absl::MutexLock lock(&mu_);
      cancelled_ = true;
    }
    CancelAll();
  }

  // Waits for `duration`, or until the group is cancelled.
  void Sleep(absl::Duration duration) {
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(&cancelled_), duration);
  }

 private:
  friend class GroupedCall;

  absl::Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::set<grpc::ClientContext*> active_ ABSL_GUARDED_BY(mu_);
};

// The context of one call. The call fails at once if the group was cancelled.
class GroupedCall {
 public:
  // The call's deadline is `timeout` from now. `group` outlives the call.
  GroupedCall(CallGroup* group, absl::Duration timeout) : group_(group) {
    context_.set_deadline(FromNow(timeout));
    absl::MutexLock lock(&group->mu_);
    if (group->cancelled_) context_.TryCancel();
    group->active_.insert(&context_);
  }
  ~GroupedCall() {
    absl::MutexLock lock(&group_->mu_);
    group_->active_.erase(&context_);
  }
  GroupedCall(const GroupedCall&) = delete;
  GroupedCall& operator=(const GroupedCall&) = delete;

  grpc::ClientContext& context() { return context_; }

 private:
  CallGroup* const group_;
  grpc::ClientContext context_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_CALL_GROUP_H_
