// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures how fast a coordinator takes contributions in, compared with gRPC
// alone: the same messages over loopback, into a real CoordinatorServer
// (parsing, CRC, digest, the check that values are finite, norm, copy to
// staging) and into a server that drops them. In both cases each upload has its
// own stream. Client and server share one process and its processors.
//
// An upload announces a wrong digest, so that it is refused once it has
// arrived: any number of uploads can be measured without closing a round.
#ifndef SERVER_BENCHMARKS_INGEST_MEASUREMENT_H_
#define SERVER_BENCHMARKS_INGEST_MEASUREMENT_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace causeway {

struct IngestMeasurement {
  // Medians over the repetitions, in bytes of encodings per second.
  double bare_bytes_per_second = 0;
  double ingest_bytes_per_second = 0;
  // Medians of the processor time of client and server together, in seconds per
  // byte: steadier than rates on a busy machine.
  double bare_cpu_seconds_per_byte = 0;
  double ingest_cpu_seconds_per_byte = 0;

  double ratio() const {
    return ingest_bytes_per_second / bare_bytes_per_second;
  }
};

// Uses `channels` connections at once, each with a client thread. The two
// servers take turns, `repetitions` times, with 34 MB per upload in chunks of 1
// MiB.
IngestMeasurement MeasureIngest(bool tls, int channels, int repetitions = 9);

// The results of uploading without a pause.
struct UploadSoak {
  uint64_t uploads = 0;
  // The number of uploads that broke off, and the error of the first.
  uint64_t broken = 0;
  std::string error;
  // The number of connections that the server cut off, and the most memory that
  // it counted for one peer.
  uint64_t cut = 0;
  uint64_t most_held_bytes = 0;
};

// Makes each of `channels` islands upload without a pause for `time`, in a run
// that has room for no other islands.
UploadSoak SoakUploads(bool tls, int channels, absl::Duration time);

}  // namespace causeway

#endif  // SERVER_BENCHMARKS_INGEST_MEASUREMENT_H_
