// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares each stage of a fragment's way with the speed of memory or of gRPC.
// Each figure is a ratio of two measurements in the same run.
//
//   bazel run //server/benchmarks:stages_benchmark -- --json FILE
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "outer_optimizer/testing/outer_step_speed.h"
#include "quantization/testing/codec_speed.h"
#include "server/benchmarks/figures.h"
#include "server/benchmarks/ingest_measurement.h"

ABSL_FLAG(std::string, json, "", "write the figures to this file, too");
ABSL_FLAG(int, repetitions, 9, "of each measurement");

namespace causeway {
namespace {

void MeasureCodecs(int repetitions, BenchmarkFigures& figures) {
  for (const auto& [name, format] :
       {std::pair("e3m0", v1::E3M0), std::pair("int8", v1::INT8),
        std::pair("int4", v1::INT4)}) {
    const CodecSpec spec = {.format = format};
    figures.Add(absl::StrCat("encode_", name, "_ratio"),
                MeasureEncode(spec, {}, repetitions).ratio);
    figures.Add(absl::StrCat("sum_", name, "_ratio"),
                MeasureSum(spec, repetitions).ratio);
  }
}

void MeasureOuterSteps(int repetitions, BenchmarkFigures& figures) {
  for (const int threads : {1, 2}) {
    for (const int contributions : {2, 8, 32}) {
      const std::string name =
          absl::StrCat("outer_step_ratio_n", contributions);
      const OuterStepSpeed speed =
          MeasureOuterStep(contributions, threads, repetitions);
      figures.Add(threads == 1 ? name : absl::StrCat(name, "_two_threads"),
                  speed.ratio());
    }
  }
}

void MeasureIngests(int repetitions, BenchmarkFigures& figures) {
  for (const bool tls : {false, true}) {
    for (const int channels : {1, 4}) {
      const std::string name = absl::StrCat("ingest_ratio", tls ? "_tls" : "",
                                            channels == 1 ? "" : "_4_channels");
      figures.Add(name, MeasureIngest(tls, channels, repetitions).ratio());
    }
  }
}

int Run() {
  const int repetitions = absl::GetFlag(FLAGS_repetitions);
  BenchmarkFigures figures;
  MeasureCodecs(repetitions, figures);
  MeasureOuterSteps(repetitions, figures);
  MeasureIngests(repetitions, figures);
  return figures.Write(absl::GetFlag(FLAGS_json)) ? 0 : 1;
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Speed of codecs, outer step and ingest as ratios to memory and gRPC: "
      "benchmark [--json=FILE] [--repetitions=N]");
  absl::ParseCommandLine(argc, argv);
  return causeway::Run();
}
