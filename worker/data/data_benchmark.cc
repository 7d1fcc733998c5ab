// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the scan of a token file when it is opened, and the making of a
// batch. Both read from the page cache.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/os/file.h"
#include "glog/logging.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/data/token_file.h"

namespace causeway {
namespace {

constexpr int64_t kTokens = 64 << 20;

// Returns the path of a flat file of uint16 ids below 50 000, which is removed
// at the end of the program.
const std::string& FlatFile() {
  static const std::string& path = *new std::string([] {
    const char* directory = getenv("TMPDIR");
    const std::string name = std::string(directory ? directory : "/tmp") +
                             "/causeway_data_benchmark.bin";
    std::string bytes(2 * kTokens, '\0');
    auto* ids = reinterpret_cast<uint16_t*>(bytes.data());
    for (int64_t i = 0; i < kTokens; ++i) {
      ids[i] = static_cast<uint16_t>(i * 7919 % 50000);
    }
    CHECK(WriteFileAtomically(name, {bytes}).ok());
    return name;
  }());
  static const int removed_at_exit =
      std::atexit([] { RemoveFile(path).IgnoreError(); });
  CHECK_EQ(removed_at_exit, 0);
  return path;
}

void BM_OpenUint16File(benchmark::State& state) {
  const std::string path = FlatFile();
  for (auto _ : state) {
    CHECK(TokenFile::Open(path, v1::DataConfig::PRETOKENIZED).ok());
  }
  state.SetBytesProcessed(state.iterations() * 2 * kTokens);
}
BENCHMARK(BM_OpenUint16File)->Unit(benchmark::kMillisecond);

void BM_FillSequences(benchmark::State& state) {
  v1::RunConfig config;
  config.mutable_model()->set_vocab_size(50257);
  config.mutable_model()->set_sequence_length(
      static_cast<uint32_t>(state.range(0)));
  config.mutable_data()->set_tokenizer(v1::DataConfig::PRETOKENIZED);
  config.mutable_data()->set_shards(2);
  absl::StatusOr<Dataset> dataset = OpenDataset(config, {FlatFile()});
  CHECK(dataset.ok()) << dataset.status();
  const int64_t batch_size = 8;
  absl::StatusOr<Sampler> sampler = Sampler::Create(&*dataset, 1, 1, 0);
  CHECK(sampler.ok()) << sampler.status();
  std::vector<int32_t> tokens(batch_size * state.range(0));
  std::vector<int32_t> targets(tokens.size());
  int64_t step = 0;
  for (auto _ : state) {
    sampler->Fill(batch_size * step++, absl::MakeSpan(tokens),
                  absl::MakeSpan(targets));
    benchmark::DoNotOptimize(tokens.data());
    benchmark::DoNotOptimize(targets.data());
  }
  state.SetItemsProcessed(state.iterations() * tokens.size());
}
BENCHMARK(BM_FillSequences)->Arg(256)->Arg(1024);

}  // namespace
}  // namespace causeway
