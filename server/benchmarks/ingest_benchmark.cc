// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares ingest with a bare gRPC stream
// (server/benchmarks/ingest_measurement.h), in plain text and with TLS, over
// one connection and over four.
#include <cstdio>

#include "server/benchmarks/ingest_measurement.h"

int main() {
  std::printf("%-6s %8s %10s %12s %6s %15s %15s\n", "", "channels", "bare GB/s",
              "ingest GB/s", "ratio", "bare CPU s/GB", "ingest CPU s/GB");
  for (const bool tls : {false, true}) {
    for (const int channels : {1, 4}) {
      const causeway::IngestMeasurement measured =
          causeway::MeasureIngest(tls, channels);
      std::printf("%-6s %8d %10.2f %12.2f %6.2f %15.3f %15.3f\n",
                  tls ? "TLS" : "plain", channels,
                  measured.bare_bytes_per_second / 1e9,
                  measured.ingest_bytes_per_second / 1e9, measured.ratio(),
                  measured.bare_cpu_seconds_per_byte * 1e9,
                  measured.ingest_cpu_seconds_per_byte * 1e9);
      std::fflush(stdout);
    }
  }
  return 0;
}
