// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Repeatedly tells a replaced coordinator, which may come back at any time,
// that it was replaced, so that it stands down.
#ifndef SERVER_REPLICATION_REPLACEMENT_NOTICE_H_
#define SERVER_REPLICATION_REPLACEMENT_NOTICE_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "proto/replication.grpc.pb.h"
#include "proto/replication.pb.h"

namespace causeway {

class ReplacementNotice {
 public:
  // Starts telling the coordinator of run `run_id` at `address`. `epoch` is the
  // caller's.
  ReplacementNotice(const std::string& address,
                    std::shared_ptr<grpc::ChannelCredentials> credentials,
                    const std::string& run_id, uint64_t epoch);
  ~ReplacementNotice();

 private:
  void Loop();
  grpc::Status Tell();

  const std::unique_ptr<v1::Replication::Stub> stub_;
  v1::FollowRequest request_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace causeway

#endif  // SERVER_REPLICATION_REPLACEMENT_NOTICE_H_
