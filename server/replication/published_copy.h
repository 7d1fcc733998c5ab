// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of a follower's copy that islands read: updates and parameters of
// versions that the leader has published. While the leader sends, a version
// that the copy lacks is expected to come.
//
// Thread-safe, except that Open and Close are for one thread.
#ifndef SERVER_REPLICATION_PUBLISHED_COPY_H_
#define SERVER_REPLICATION_PUBLISHED_COPY_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/listeners.h"
#include "proto/coordinator.pb.h"
#include "quantization/codec.h"
#include "server/fragment_heads.h"
#include "server/opened.h"
#include "server/storage/fragment_store.h"
#include "server/storage/state_directory.h"

namespace causeway {

class PublishedCopy {
 public:
  // Makes the copy readable from now on.
  void Open(StateDirectory* state, FragmentHeads* heads,
            const std::string& run_id) ABSL_LOCKS_EXCLUDED(copy_mu_, mu_);
  // Waits for readers. Afterwards, nothing is read or published.
  void Close() ABSL_LOCKS_EXCLUDED(copy_mu_, mu_);

  // Note that the leader with this epoch sends, or no longer does. Its islands
  // decode updates as `downlink` says.
  void Connect(uint64_t epoch, const CodecSpec& downlink)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Disconnect() ABSL_LOCKS_EXCLUDED(mu_);
  // Notes that this version and all before it are published.
  void Publish(const v1::FragmentHead& head) ABSL_LOCKS_EXCLUDED(mu_);
  void Added() { news_.Notify(); }

  // Open what an island asks for; return nullopt if it is expected to come,
  // which `news` reports. Errors as in proto/coordinator.proto.
  absl::StatusOr<std::optional<OpenedUpdate>> OpenUpdate(
      const v1::FetchUpdateRequest& request) ABSL_LOCKS_EXCLUDED(copy_mu_, mu_);
  absl::StatusOr<std::optional<OpenedParameters>> OpenParameters(
      const v1::FetchParametersRequest& request)
      ABSL_LOCKS_EXCLUDED(copy_mu_, mu_);

  Listeners& news() { return news_; }
  // Counts the bytes of data sent.
  std::atomic<uint64_t>& bytes_sent() { return bytes_sent_; }

 private:
  // Returns whether the version can be read; if not, it is expected to come.
  absl::StatusOr<bool> IsReadable(const v1::IslandIdentity& identity,
                                  uint32_t fragment, uint64_t version)
      ABSL_SHARED_LOCKS_REQUIRED(copy_mu_) ABSL_LOCKS_EXCLUDED(mu_);

  // Held by readers while they open an object.
  absl::Mutex copy_mu_;
  // Null while there is no copy.
  StateDirectory* state_ ABSL_GUARDED_BY(copy_mu_) = nullptr;
  FragmentHeads* heads_ ABSL_GUARDED_BY(copy_mu_) = nullptr;
  std::string run_id_ ABSL_GUARDED_BY(copy_mu_);

  absl::Mutex mu_ ABSL_ACQUIRED_AFTER(copy_mu_);
  // By fragment; nullopt if no version is published.
  std::vector<std::optional<uint64_t>> published_ ABSL_GUARDED_BY(mu_);
  bool is_connected_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;
  CodecSpec downlink_ ABSL_GUARDED_BY(mu_);

  Listeners news_;
  std::atomic<uint64_t> bytes_sent_ = 0;
};

}  // namespace causeway

#endif  // SERVER_REPLICATION_PUBLISHED_COPY_H_
