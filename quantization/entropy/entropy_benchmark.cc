// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares the entropy coder with zstd: size and speed on the code planes of
// quantized values, strip by strip, on one thread.
//
//   bazel run //quantization/entropy:entropy_benchmark --
//       [--file=VALUES] [--repetitions=N]
//
// VALUES is a file of little-endian binary32 numbers, such as pseudo-gradients
// of a run; without it values are drawn from three distributions. For each kind
// of values and each format, the benchmark prints one row per coder:
//
//   bits     per code, everything included
//   excess   over the codes' entropy of order 0
//   encode   10^9 codes per second, the shortest of all repetitions
//   decode   the same
//
// zstd compresses the plane as it is ("packed") and, for formats with 4-bit
// codes, with one code in each byte ("bytes").
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "common/testing/stopwatch.h"
#include "glog/logging.h"
#include "quantization/codec.h"
#include "quantization/entropy/code_counts.h"
#include "quantization/entropy/entropy_coder.h"
#include "quantization/strips/layout.h"
#include "quantization/testing/whole_vectors.h"
#include "zstd.h"

ABSL_FLAG(std::string, file, "",
          "Little-endian binary32 values to encode instead of random ones");
ABSL_FLAG(int, repetitions, 5, "How often each coder goes over the data");

namespace causeway {
namespace {

// These are 2 Mi values: their planes exceed the first two caches by far.
constexpr uint64_t kStrips = 32;

using Values = std::vector<float>;

Values Drawn(const std::function<double(std::mt19937&)>& draw) {
  std::mt19937 random(1);
  Values values(kStrips * kStripValues);
  for (float& value : values) value = static_cast<float>(1e-3 * draw(random));
  return values;
}

Values Gaussian() {
  std::normal_distribution<double> normal;
  return Drawn([&](std::mt19937& random) { return normal(random); });
}

Values Laplace() {
  std::exponential_distribution<double> exponential;
  return Drawn([&](std::mt19937& random) {
    const double magnitude = exponential(random);
    return random() % 2 == 0 ? magnitude : -magnitude;
  });
}

Values StudentT4() {
  std::student_t_distribution<double> student(4);
  return Drawn([&](std::mt19937& random) { return student(random); });
}

// Returns up to kStrips whole strips of the file, evenly spaced.
Values FromFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  CHECK(file) << "cannot open " << path;
  const uint64_t strips =
      static_cast<uint64_t>(file.tellg()) / sizeof(float) / kStripValues;
  CHECK_GT(strips, 0u) << path << " has no whole strip of 65536 values";
  const uint64_t taken = std::min(strips, kStrips);
  Values values(taken * kStripValues);
  for (uint64_t i = 0; i < taken; ++i) {
    file.seekg(static_cast<std::streamoff>(i * strips / taken * kStripValues *
                                           sizeof(float)));
    file.read(reinterpret_cast<char*>(values.data() + i * kStripValues),
              kStripValues * sizeof(float));
  }
  CHECK(file) << "cannot read " << path;
  return values;
}

// The code planes of the values' strips; ECQ's are at its usual distortion.
struct Planes {
  SymbolWidth width;
  std::vector<std::string> strips;
};

Planes PlanesOf(v1::Format format, const Values& values) {
  const bool is_ecq = format == v1::ECQ;
  const CodecSpec spec{.format = format, .entropy_coded = is_ecq};
  const uint64_t scale_bytes = 2 * kStripValues / spec.block_size;
  Planes planes{.width = is_ecq || format == v1::INT8 ? SymbolWidth::kByte
                                                      : SymbolWidth::kNibble};
  for (uint64_t begin = 0; begin < values.size(); begin += kStripValues) {
    const std::string strip =
        Encode(spec, absl::MakeConstSpan(values).subspan(begin, kStripValues))
            .value();
    if (!is_ecq) {
      planes.strips.push_back(strip.substr(scale_bytes));
      continue;
    }
    std::string plane(kStripValues, '\0');
    CHECK(ReadStripHeader(strip.data()).compressed);
    const absl::Status status = DecompressCodes(
        planes.width,
        absl::string_view(strip).substr(StripHeader::kBytes + scale_bytes),
        absl::MakeSpan(plane));
    CHECK(status.ok()) << status;
    planes.strips.push_back(plane);
  }
  return planes;
}

std::string OneCodeAByte(const std::string& nibbles) {
  std::string bytes;
  for (const char both : nibbles) {
    bytes += static_cast<char>(both & 15);
    bytes += static_cast<char>(both >> 4 & 15);
  }
  return bytes;
}

// Returns the mean over strips of each strip's entropy, in bits per code.
double Entropy(const Planes& planes) {
  double bits = 0;
  for (const std::string& strip : planes.strips) {
    const CodeCounts counts = CountCodes(planes.width, strip);
    for (const uint32_t count : counts) {
      if (count > 0) bits -= count * std::log2(count / double{kStripValues});
    }
  }
  return bits / static_cast<double>(planes.strips.size() * kStripValues);
}

struct Coder {
  std::string name;
  // Writes to the front of `out`, which has room; returns the size.
  std::function<size_t(const std::string& plane, std::string& out)> encode;
  std::function<void(absl::string_view coded, std::string& plane)> decode;
};

Coder OurCoder(SymbolWidth width) {
  return {"causeway",
          [width](const std::string& plane, std::string& out) {
            const size_t size = CompressCodes(
                width, plane, absl::MakeSpan(out).first(plane.size()));
            CHECK_GT(size, 0u) << "these codes do not get smaller";
            return size;
          },
          [width](absl::string_view coded, std::string& plane) {
            CHECK(DecompressCodes(width, coded, absl::MakeSpan(plane)).ok());
          }};
}

Coder ZstdCoder(int level, const std::string& what) {
  return {absl::StrCat("zstd ", level, " ", what),
          [level](const std::string& plane, std::string& out) {
            const size_t size = ZSTD_compress(
                out.data(), out.size(), plane.data(), plane.size(), level);
            CHECK(!ZSTD_isError(size)) << ZSTD_getErrorName(size);
            return size;
          },
          [](absl::string_view coded, std::string& plane) {
            CHECK_EQ(ZSTD_decompress(plane.data(), plane.size(), coded.data(),
                                     coded.size()),
                     plane.size());
          }};
}

void Run(const Coder& coder, const std::vector<std::string>& strips,
         double entropy) {
  std::vector<std::string> coded(strips.size());
  std::string plane(strips[0].size(), '\0');
  double encode = std::numeric_limits<double>::infinity();
  double decode = encode;
  for (int i = 0; i < absl::GetFlag(FLAGS_repetitions); ++i) {
    for (std::string& out : coded) out.resize(ZSTD_compressBound(plane.size()));
    double start = Seconds();
    for (size_t strip = 0; strip < strips.size(); ++strip) {
      // A resize() to less moves no bytes.
      coded[strip].resize(coder.encode(strips[strip], coded[strip]));
    }
    encode = std::min(encode, Seconds() - start);
    double elapsed = 0;
    for (size_t strip = 0; strip < strips.size(); ++strip) {
      start = Seconds();
      coder.decode(coded[strip], plane);
      elapsed += Seconds() - start;
      CHECK(plane == strips[strip]);
    }
    decode = std::min(decode, elapsed);
  }
  double bytes = 0;
  for (const std::string& strip : coded) {
    bytes += static_cast<double>(strip.size());
  }
  const double codes = static_cast<double>(strips.size()) * kStripValues;
  const double bits = 8 * bytes / codes;
  std::printf("    %-16s %8.4f %8.2f%% %8.3f %8.3f\n", coder.name.c_str(), bits,
              100 * (bits / entropy - 1), codes / encode / 1e9,
              codes / decode / 1e9);
}

void Compare(const std::string& name, const Values& values) {
  constexpr int kLevels[] = {-5, -1, 1, 3, 9, 19};
  for (const v1::Format format : {v1::E3M0, v1::INT4, v1::INT8, v1::ECQ}) {
    const Planes planes = PlanesOf(format, values);
    const double entropy = Entropy(planes);
    std::printf("%s %s: entropy %.4f bits\n", name.c_str(),
                v1::Format_Name(format).c_str(), entropy);
    std::printf("    %-16s %8s %9s %8s %8s\n", "coder", "bits", "excess",
                "encode", "decode");
    Run(OurCoder(planes.width), planes.strips, entropy);
    for (const int level : kLevels) {
      Run(ZstdCoder(level, "packed"), planes.strips, entropy);
    }
    if (planes.width == SymbolWidth::kByte) continue;
    std::vector<std::string> bytes;
    for (const std::string& strip : planes.strips) {
      bytes.push_back(OneCodeAByte(strip));
    }
    for (const int level : kLevels) {
      Run(ZstdCoder(level, "bytes"), bytes, entropy);
    }
  }
}

void CompareAll() {
  const std::string file = absl::GetFlag(FLAGS_file);
  if (!file.empty()) {
    Compare(file, FromFile(file));
    return;
  }
  Compare("Gaussian", Gaussian());
  Compare("Laplace", Laplace());
  Compare("Student-t4", StudentT4());
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  causeway::CompareAll();
}
