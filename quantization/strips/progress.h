// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tracks which strips of a vector an encoder has finished, when pieces of
// strips come in any order and strips come from several threads.
//
// The pieces of one strip come from one thread, so that they can be counted
// without a locked instruction. A locked one would wait for everything that the
// thread has written past the caches, which costs the outer step a tenth of its
// speed.
#ifndef QUANTIZATION_STRIPS_PROGRESS_H_
#define QUANTIZATION_STRIPS_PROGRESS_H_

#include <atomic>
#include <cstdint>
#include <memory>

namespace causeway {

// Thread-safe, except for calls of Add() for the same strip. If a thread sees
// leading_strips() count a strip, it also sees everything that other threads
// wrote before their Add() of that strip.
class StripProgress {
 public:
  explicit StripProgress(uint64_t values);

  // Records that values [begin, begin + count) are encoded. No value is added
  // twice.
  void Add(uint64_t begin, uint64_t count);

  // Returns how many strips are finished from the first one on, without a gap.
  uint64_t leading_strips() const { return leading_; }
  bool finished() const { return leading_ == strips_; }

 private:
  const uint64_t strips_;
  // The number of values that each strip still lacks.
  const std::unique_ptr<std::atomic<uint32_t>[]> missing_;
  std::atomic<uint64_t> leading_ = 0;
};

}  // namespace causeway

#endif  // QUANTIZATION_STRIPS_PROGRESS_H_
