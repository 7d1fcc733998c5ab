// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// How fast a coordinator takes contributions in, against gRPC alone: the same
// messages over loopback, into a real CoordinatorServer (parsing, CRC, digest,
// the check that values are finite, norm, copy to staging) and into a server
// that drops them. An upload is a stream of its own for both. Client and server
// share one process and its processors.
//
// An upload announces a digest that it does not have, so that it is refused and
// discarded when it has come: any number of them can be measured without a
// round that closes.
#ifndef SERVER_BENCHMARKS_INGEST_MEASUREMENT_H_
#define SERVER_BENCHMARKS_INGEST_MEASUREMENT_H_

namespace causeway {

struct IngestMeasurement {
  // Medians over the repetitions, bytes of encodings a second.
  double bare_bytes_per_second = 0;
  double ingest_bytes_per_second = 0;
  // The same for processor time of client and server together, in seconds for
  // each byte: steadier than rates on a machine that does other things.
  double bare_cpu_seconds_per_byte = 0;
  double ingest_cpu_seconds_per_byte = 0;

  double ratio() const {
    return ingest_bytes_per_second / bare_bytes_per_second;
  }
};

// `channels` connections at once, each with a client thread. The two kinds take
// turns, `repetitions` times, with 34 MB an upload in chunks of 1 MiB.
IngestMeasurement MeasureIngest(bool tls, int channels, int repetitions = 9);

}  // namespace causeway

#endif  // SERVER_BENCHMARKS_INGEST_MEASUREMENT_H_
