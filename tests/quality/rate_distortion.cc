// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures rate and distortion of every wire format on Gaussian, Laplace and
// Student-t values and on real pseudo-gradients: bits per value with everything
// that is sent, entropy of the codes, mean squared error relative to the mean
// square.
//
//   rate_distortion --updates=FILE,... --json=FILE
//
// The files are updates from a coordinator's state directory, encoded in FP32;
// tests/quality/rate_distortion.sh makes a run whose updates are single
// pseudo-gradients.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "common/tensors/safetensors.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"
#include "proto/fragment.pb.h"
#include "quantization/codec.h"
#include "quantization/entropy/entropy_coder.h"
#include "quantization/entropy/rans_table.h"
#include "quantization/strips/layout.h"
#include "quantization/testing/whole_vectors.h"

ABSL_FLAG(std::vector<std::string>, updates, {},
          "update files of a run with FP32 updates: real pseudo-gradients");
ABSL_FLAG(std::string, json, "", "write the figures to this file, too");
ABSL_FLAG(uint64_t, values, 4 << 20, "values of each distribution");

namespace causeway {
namespace {

struct Data {
  std::string name;
  std::vector<float> values;
};

struct Point {
  std::string data;
  std::string format;
  // Bits per value without entropy coding; 0 if the format is always entropy
  // coded.
  double fixed_bits = 0;
  // Bits per value with entropy coding, if the format has it.
  double bits = 0;
  // Entropy of the codes per value; 0 for formats without codes.
  double entropy = 0;
  // The bits beyond scales and the codes' entropy, relative to that entropy.
  double overhead = 0;
  double relative_error = 0;
};

template <typename Distribution>
Data Random(const char* name, Distribution distribution) {
  std::mt19937_64 random(1);
  Data data = {.name = name};
  data.values.resize(absl::GetFlag(FLAGS_values));
  for (float& value : data.values) {
    value = static_cast<float>(distribution(random));
  }
  return data;
}

// Draws exponential values with a random sign.
struct Laplace {
  double operator()(std::mt19937_64& random) {
    const double magnitude = exponential(random);
    return random() % 2 == 0 ? magnitude : -magnitude;
  }
  std::exponential_distribution<double> exponential;
};

absl::StatusOr<std::vector<float>> ReadUpdate(const std::string& path) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  ASSIGN_OR_RETURN(const std::string format,
                   file.contents().Metadata("format"));
  if (format != v1::Format_Name(v1::FP32)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s holds an update in %s, want FP32", path, format));
  }
  ASSIGN_OR_RETURN(const SafetensorsTensor* const encoding,
                   file.contents().Find("encoding"));
  std::vector<float> values(encoding->bytes.size() / sizeof(float));
  std::memcpy(values.data(), encoding->bytes.data(),
              values.size() * sizeof(float));
  return values;
}

SymbolWidth WidthOf(v1::Format format) {
  return format == v1::INT8 || format == v1::ECQ ? SymbolWidth::kByte
                                                 : SymbolWidth::kNibble;
}

double Entropy(const std::array<uint64_t, 256>& counts) {
  double total = 0, sum = 0;
  for (const uint64_t count : counts) {
    if (count == 0) continue;
    const double n = static_cast<double>(count);
    total += n;
    sum += n * std::log2(n);
  }
  return total == 0 ? 0 : std::log2(total) - sum / total;
}

// Returns the entropy per value of the codes in an entropy-coded encoding,
// which it reads as docs/encodings.md describes.
absl::StatusOr<double> CodeEntropy(const CodecSpec& spec,
                                   absl::string_view encoded, uint64_t values) {
  const uint32_t bits = WidthOf(spec.format) == SymbolWidth::kByte ? 8 : 4;
  std::array<uint64_t, 256> counts = {};
  for (uint64_t begin = 0; begin < values; begin += kStripValues) {
    const uint64_t count = std::min(kStripValues, values - begin);
    const StripHeader header = ReadStripHeader(encoded.data());
    absl::string_view codes = encoded.substr(StripHeader::kBytes, header.bytes);
    encoded.remove_prefix(StripHeader::kBytes + header.bytes);
    codes.remove_prefix(2 * ((count + spec.block_size - 1) / spec.block_size));
    // Codes come in whole groups of 64 bytes, unless they are bytes.
    const uint64_t group = bits == 8 ? 1 : 8 * 64 / bits;
    const uint64_t plane_values = (count + group - 1) / group * group;
    std::string plane(plane_values * bits / 8, '\0');
    if (header.compressed) {
      RETURN_IF_ERROR(
          DecompressCodes(WidthOf(spec.format), codes, absl::MakeSpan(plane)));
    } else {
      plane = std::string(codes);
    }
    // The few codes that fill the last group count as if they were sent.
    for (const char byte : plane) {
      for (uint32_t shift = 0; shift < 8; shift += bits) {
        ++counts[(static_cast<uint8_t>(byte) >> shift) & ((1u << bits) - 1)];
      }
    }
  }
  return Entropy(counts);
}

double RelativeError(absl::Span<const float> values,
                     absl::Span<const float> decoded) {
  double error = 0, square = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    const double difference = value - decoded[i];
    error += difference * difference;
    square += value * value;
  }
  return error / square;
}

absl::StatusOr<Point> Measure(const Data& data, v1::Format format,
                              const EncodeOptions& options) {
  CodecSpec spec = {.format = format, .entropy_coded = true};
  spec.entropy_coded = CheckCodecSpec(spec).ok();
  ASSIGN_OR_RETURN(const std::string encoded,
                   Encode(spec, data.values, options));
  std::vector<float> decoded(data.values.size());
  RETURN_IF_ERROR(Decode(spec, encoded, absl::MakeSpan(decoded)));
  const double values = static_cast<double>(data.values.size());
  Point point = {.data = data.name,
                 .format = v1::Format_Name(format),
                 .bits = 8 * static_cast<double>(encoded.size()) / values,
                 .relative_error = RelativeError(data.values, decoded)};
  const uint64_t fixed = MaxEncodedBytes({.format = format}, kStripValues);
  point.fixed_bits =
      format == v1::ECQ ? 0 : 8 * static_cast<double>(fixed) / kStripValues;
  if (spec.entropy_coded) {
    ASSIGN_OR_RETURN(point.entropy,
                     CodeEntropy(spec, encoded, data.values.size()));
    const double scales = 16.0 / spec.block_size;
    point.overhead = (point.bits - scales) / point.entropy - 1;
  }
  return point;
}

absl::StatusOr<std::vector<Point>> MeasureAll(const Data& data) {
  constexpr v1::Format kFormats[] = {v1::BF16, v1::INT8, v1::INT4, v1::E3M0};
  std::vector<Point> points;
  double e3m0_error = 0;
  for (const v1::Format format : kFormats) {
    ASSIGN_OR_RETURN(points.emplace_back(), Measure(data, format, {}));
    if (format == v1::E3M0) e3m0_error = points.back().relative_error;
  }
  ASSIGN_OR_RETURN(Point same,
                   Measure(data, v1::ECQ, {.ecq_distortion = e3m0_error}));
  same.format = "ECQ as E3M0";
  points.push_back(std::move(same));
  for (const double bits : {1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0}) {
    ASSIGN_OR_RETURN(Point point, Measure(data, v1::ECQ, {.ecq_bits = bits}));
    point.format = absl::StrFormat("ECQ %.1f", bits);
    points.push_back(std::move(point));
  }
  return points;
}

nlohmann::json ToJson(absl::Span<const Point> points) {
  nlohmann::json json = nlohmann::json::array();
  for (const Point& point : points) {
    json.push_back({{"data", point.data},
                    {"format", point.format},
                    {"fixed_bits", point.fixed_bits},
                    {"bits", point.bits},
                    {"code_entropy", point.entropy},
                    {"overhead", point.overhead},
                    {"relative_error", point.relative_error}});
  }
  return json;
}

absl::Status Run() {
  std::vector<Data> all;
  all.push_back(Random("gaussian", std::normal_distribution<double>()));
  all.push_back(Random("laplace", Laplace()));
  all.push_back(Random("student_t4", std::student_t_distribution<double>(4)));
  Data real = {.name = "real"};
  for (const std::string& path : absl::GetFlag(FLAGS_updates)) {
    ASSIGN_OR_RETURN(const std::vector<float> values, ReadUpdate(path));
    real.values.insert(real.values.end(), values.begin(), values.end());
  }
  if (!real.values.empty()) all.push_back(std::move(real));

  std::printf("%-10s %-12s %10s %10s %12s %9s %12s\n", "data", "format",
              "fixed bits", "sent bits", "code entropy", "overhead",
              "relative MSE");
  std::vector<Point> points;
  for (const Data& data : all) {
    ASSIGN_OR_RETURN(const std::vector<Point> measured, MeasureAll(data));
    for (const Point& point : measured) {
      std::printf("%-10s %-12s %10.4f %10.4f %12.4f %8.2f%% %12.3e\n",
                  point.data.c_str(), point.format.c_str(), point.fixed_bits,
                  point.bits, point.entropy, 100 * point.overhead,
                  point.relative_error);
    }
    points.insert(points.end(), measured.begin(), measured.end());
  }
  const std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path);
  file << ToJson(points).dump(2) << "\n";
  file.close();
  return file ? absl::OkStatus()
              : absl::UnavailableError("cannot write " + path);
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Rate and distortion of the wire formats: rate_distortion "
      "[--updates=FILE,...] [--json=FILE] [--values=N]");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = causeway::Run();
  if (!status.ok())
    std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
