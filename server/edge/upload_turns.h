// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Uploads that several streams share. Bytes are taken in order; a stream whose
// chunk comes before its turn waits with it, and is not read on meanwhile, so
// that a stream costs the memory of one message.
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

// Thread-safe. Turns run without locks held, in the calls that make them due.
class UploadTurns {
 public:
  using Turn = std::function<void(const absl::Status&)>;

  // Bytes before `next_offset` have been taken.
  explicit UploadTurns(uint64_t next_offset) : next_(next_offset) {}

  // Runs `turn`: with OK once all bytes before `offset` have been taken, or
  // with the error that broke the upload.
  void Await(uint64_t offset, Turn turn);

  // All bytes before `offset` have been taken.
  void Advance(uint64_t offset);

  // Ends all turns, also later ones, with `error`.
  void Break(const absl::Status& error);

 private:
  absl::Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_);
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  // By the offset they wait for.
  std::multimap<uint64_t, Turn> waiting_ ABSL_GUARDED_BY(mu_);
};

// Thread-safe.
class SharedUploads {
 public:
  // The most streams of one upload.
  static constexpr uint32_t kMaxStreams = 64;

  // Begins an upload, or begins it anew: streams of an older try get
  // UNAVAILABLE. `streams` is the most there will be.
  //   INVALID_ARGUMENT  more than kMaxStreams.
  absl::StatusOr<std::shared_ptr<UploadTurns>> Open(const ContributionKey& key,
                                                    uint64_t next_offset,
                                                    uint32_t streams);
  // For one more stream.
  //   UNAVAILABLE       no upload is open under this key.
  //   INVALID_ARGUMENT  it has as many streams as it may.
  absl::StatusOr<std::shared_ptr<UploadTurns>> Join(const ContributionKey& key);

  // Breaks what still waits.
  void Close(const ContributionKey& key,
             const std::shared_ptr<UploadTurns>& turns);

 private:
  struct Upload {
    std::shared_ptr<UploadTurns> turns;
    // That may still join.
    uint32_t streams_left = 0;
  };

  absl::Mutex mu_;
  std::map<ContributionKey, Upload> uploads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // SERVER_EDGE_UPLOAD_TURNS_H_
