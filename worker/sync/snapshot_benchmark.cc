// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures how long a send holds training up: the snapshot of a fragment,
// compared with a plain copy of equal size and with a snapshot into fresh
// memory from the system.
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "benchmark/benchmark.h"
#include "common/tensors/model_layout.h"
#include "outer_optimizer/fragment_plan.h"
#include "proto/run_config.pb.h"
#include "worker/replica/snapshot_pool.h"

namespace causeway {
namespace {

// A model far larger than the caches: 134 million parameters, of which the
// fragment has about a quarter.
class Model {
 public:
  Model() {
    v1::RunConfig config;
    v1::ModelConfig& model = *config.mutable_model();
    model.set_layers(8);
    model.set_hidden_size(1024);
    model.set_intermediate_size(4096);
    model.set_heads(16);
    model.set_kv_heads(16);
    model.set_vocab_size(258);
    config.mutable_synchronization()->set_fragments(5);
    const ModelLayout layout = MakeModelLayout(model);
    map_.emplace(
        *FragmentMap::Create(layout, *MakeFragmentPlan(layout, config)));
    parameters_.assign(map_->model_size(), 1);
  }
  size_t size() const { return map_->size(0); }
  const float* parameters() const { return parameters_.data(); }
  void Gather(absl::Span<float> values) const {
    map_->Gather(0, parameters_, values);
  }

 private:
  std::optional<FragmentMap> map_;
  std::vector<float> parameters_;
};

const Model& TheModel() {
  static const Model& model = *new Model;
  return model;
}

void SetBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(sizeof(float)) *
                          static_cast<int64_t>(TheModel().size()));
}

void BM_Copy(benchmark::State& state) {
  std::vector<float> target(TheModel().size());
  for (auto _ : state) {
    std::memcpy(target.data(), TheModel().parameters(),
                target.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}
BENCHMARK(BM_Copy)->Unit(benchmark::kMillisecond);

void BM_Snapshot(benchmark::State& state) {
  SnapshotPool pool;
  pool.Return(pool.Take(TheModel().size()));
  for (auto _ : state) {
    auto snapshot = pool.Take(TheModel().size());
    TheModel().Gather(absl::MakeSpan(snapshot));
    benchmark::ClobberMemory();
    pool.Return(std::move(snapshot));
  }
  SetBytes(state);
}
BENCHMARK(BM_Snapshot)->Unit(benchmark::kMillisecond);

void BM_SnapshotIntoFreshMemory(benchmark::State& state) {
  for (auto _ : state) {
    std::vector<float> snapshot(TheModel().size());
    TheModel().Gather(absl::MakeSpan(snapshot));
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}
BENCHMARK(BM_SnapshotIntoFreshMemory)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace causeway
