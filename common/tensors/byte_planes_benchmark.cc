// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures how many bytes planes save of real values, and their cost.
//
//   byte_planes_benchmark FILE.safetensors...
//
// Prints, for the F32 tensors of all files and chunks of two sizes, the share
// of bytes that is left, the speeds in bytes of values, and how long a link of
// 100 Mbit/s takes with and without compression.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/tensors/byte_planes.h"
#include "common/tensors/safetensors.h"
#include "common/testing/stopwatch.h"
#include "glog/logging.h"

namespace causeway {
namespace {

constexpr int kRepetitions = 9;
constexpr double kLinkBytesPerSecond = 100e6 / 8;

std::string ReadValues(const std::string& path) {
  const auto file = SafetensorsFile::Open(path);
  CHECK(file.ok()) << path << ": " << file.status();
  std::string values;
  for (const SafetensorsTensor& tensor : file->contents().tensors) {
    if (tensor.dtype != "F32") continue;
    values.append(tensor.bytes.data(), tensor.bytes.size());
  }
  return values;
}

void Measure(absl::string_view values, size_t chunk_bytes) {
  double compress = std::numeric_limits<double>::infinity();
  double decompress = compress;
  size_t sent = 0;
  std::string back(chunk_bytes, '\0');
  for (int i = 0; i < kRepetitions; ++i) {
    double compressing = 0;
    double decompressing = 0;
    sent = 0;
    for (size_t begin = 0; begin < values.size(); begin += chunk_bytes) {
      const absl::string_view chunk = values.substr(begin, chunk_bytes);
      const double start = Seconds();
      const std::string planes = CompressPlanes(chunk, sizeof(float));
      const double middle = Seconds();
      compressing += middle - start;
      sent += planes.empty() ? chunk.size() : planes.size();
      if (planes.empty()) continue;
      CHECK(DecompressPlanes(planes, sizeof(float),
                             absl::MakeSpan(back).subspan(0, chunk.size()))
                .ok());
      decompressing += Seconds() - middle;
    }
    compress = std::min(compress, compressing);
    decompress = std::min(decompress, decompressing);
  }
  const double bytes = static_cast<double>(values.size());
  std::printf("%9zu %12.0f %7.4f %14.0f %16.0f %8.2f %8.2f\n", chunk_bytes,
              bytes, static_cast<double>(sent) / bytes, bytes / compress / 1e6,
              bytes / decompress / 1e6, bytes / kLinkBytesPerSecond,
              static_cast<double>(sent) / kLinkBytesPerSecond);
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  std::string values;
  for (int i = 1; i < argc; ++i) values += causeway::ReadValues(argv[i]);
  std::printf("%9s %12s %7s %14s %16s %8s %8s\n", "chunk", "bytes", "left",
              "compress MB/s", "decompress MB/s", "raw s", "sent s");
  for (const size_t chunk_bytes : {256 << 10, 1 << 20}) {
    causeway::Measure(values, chunk_bytes);
  }
  return 0;
}
