// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The memory and disk space that a coordinator needs for a run.
#ifndef SERVER_FOOTPRINT_H_
#define SERVER_FOOTPRINT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"

namespace causeway {

// Numbers of bytes, as double because a configuration may ask for more than any
// machine has.
struct Footprint {
  // The disk space that a new run takes at first: version 0 of every fragment,
  // which is made in small pieces of memory.
  double first_disk = 0;
  // The contributions of max_islands islands to every fragment.
  double uploads = 0;
  // The most memory: `uploads` and their codes, the newest version of every
  // fragment, and outer steps on the largest fragments, with gradients that may
  // be recorded. Connections, which may take 36 MiB an island while it uploads
  // (docs/security.md), come on top.
  double most_memory = 0;
  // The disk space of the snapshots, records and updates that are kept, and the
  // next.
  double most_disk = 0;
};

// Returns the bytes per value that the coordinator stores of a fragment:
// parameters and the outer optimizer's state.
double StateBytesPerValue(const v1::RunConfig& config);

// Returns whether the record of a merge has the merged gradient of `values`
// values, in fp32, in place of contributions of `encoded_bytes`. It does if the
// gradient takes less than half the bytes, because contributions are written
// while they arrive, but a gradient while islands wait for the update.
bool RecordsGradient(const v1::StorageConfig& storage, double encoded_bytes,
                     double values);

// Returns the most bytes of decompressed codes that are kept for merges, if
// contributions of `uploaded` values in all, in the uplink's format, are under
// way, and outer steps may be made on `in_steps` values: at most 16 for each of
// these.
double KeptCodeBytes(const v1::SynchronizationConfig& config, double uploaded,
                     double in_steps);

// The bytes that Staging (server/staging.h) may hold.
struct StagingBytes {
  // The uploads of all fragments, which are under way together at the last
  // step, and if the overlap is long. With less, some islands could hold the
  // memory that others need to close the rounds.
  uint64_t uploads = 0;
  // Decompressed codes (KeptCodeBytes).
  uint64_t codes = 0;
};
StagingBytes StagingBytesOf(const v1::RunConfig& config,
                            const v1::FragmentPlan& plan);

// Returns the number of outer steps that may be under way at once, each on a
// fragment of its own: while some wait for the disk or for followers, others
// compute. Each takes the memory of another version, so this is at most half
// the number of fragments.
size_t OuterStepsAtOnce(size_t fragments);

// Returns the number of values in the `count` largest fragments.
double LargestFragments(const v1::FragmentPlan& plan, size_t count);

Footprint CoordinatorFootprint(const v1::RunConfig& config,
                               const v1::FragmentPlan& plan);

// Returns a warning if the run needs more memory than `memory` as soon as
// min_islands islands contribute; empty if it does not.
std::string MemoryWarning(v1::RunConfig config, const v1::FragmentPlan& plan,
                          uint64_t memory);

// Checks whether a new run can begin.
//   RESOURCE_EXHAUSTED  It takes more disk space than `disk`.
absl::Status CheckRoom(const Footprint& footprint, uint64_t disk);

}  // namespace causeway

#endif  // SERVER_FOOTPRINT_H_
