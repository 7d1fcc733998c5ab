// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Shares an upload between several streams. Bytes are taken in order. A stream
// whose chunk is early waits for its turn and is not read meanwhile, so that a
// stream costs the memory of one message.
//
//   Stream with the header:   turns = uploads.Open(key, next_offset, streams)
//   further stream:           turns = uploads.Join(key)
//   both, for each chunk:     turns->Await(chunk.offset, [=] {
//                               take the chunk; turns->Advance(its end); })
//   stream with the header, at its end:  uploads.Close(key, turns)
#ifndef SERVER_EDGE_UPLOAD_TURNS_H_
#define SERVER_EDGE_UPLOAD_TURNS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/rules/round.h"

namespace causeway {

// Thread-safe. Turns run without locks held, in the calls that make them due or
// in an Advance under way.
class UploadTurns {
 public:
  using Turn = std::function<void(const absl::Status&)>;

  // Starts with all bytes before `next_offset` taken.
  explicit UploadTurns(uint64_t next_offset) : next_(next_offset) {}

  // Runs `turn` once: with OK when all bytes before `offset` have been taken,
  // or with the error that broke the upload.
  void Await(uint64_t offset, Turn turn);

  // Notes that all bytes before `offset` have been taken.
  void Advance(uint64_t offset);

  // Ends all turns, including later ones, with `error`.
  void Break(const absl::Status& error);

 private:
  // Removes and returns a turn that is due; null if there is none.
  Turn TakeDue();

  absl::Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_);
  // Is true while an Advance runs turns.
  bool is_running_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  // Turns by the offset they wait for.
  std::multimap<uint64_t, Turn> waiting_ ABSL_GUARDED_BY(mu_);
};

// Thread-safe.
class SharedUploads {
 public:
  // The most streams of one upload.
  static constexpr uint32_t kMaxStreams = 64;

  // Begins an upload of at most `streams` streams, or begins it again: the
  // streams of the earlier try get UNAVAILABLE.
  //   INVALID_ARGUMENT  More than kMaxStreams.
  absl::StatusOr<std::shared_ptr<UploadTurns>> Open(const ContributionKey& key,
                                                    uint64_t next_offset,
                                                    uint32_t streams);
  // Adds a stream to an upload.
  //   UNAVAILABLE  No upload is open under this key, or it has all the streams
  //                that it announced.
  absl::StatusOr<std::shared_ptr<UploadTurns>> Join(const ContributionKey& key);

  // Ends the upload, and breaks waiting turns.
  void Close(const ContributionKey& key,
             const std::shared_ptr<UploadTurns>& turns);

 private:
  struct Upload {
    std::shared_ptr<UploadTurns> turns;
    // The number of streams that may still join.
    uint32_t streams_left = 0;
  };

  absl::Mutex mu_;
  std::map<ContributionKey, Upload> uploads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // SERVER_EDGE_UPLOAD_TURNS_H_
