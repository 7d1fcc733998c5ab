// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A dataset for tests in which each token is its own position in the stream.
#ifndef WORKER_DATA_TESTING_POSITIONS_DATASET_H_
#define WORKER_DATA_TESTING_POSITIONS_DATASET_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/data/dataset.h"
#include "worker/data/testing/files.h"

namespace causeway {

inline constexpr int kTestSequenceLength = 8;
inline constexpr int kTestTokens = 20000;

// Returns the dataset; a tenth of it is held out.
inline Dataset PositionsDataset(uint32_t shards) {
  std::vector<uint16_t> ids(kTestTokens);
  for (int i = 0; i < kTestTokens; ++i) ids[i] = static_cast<uint16_t>(i);
  v1::RunConfig config;
  config.mutable_model()->set_vocab_size(kTestTokens);
  config.mutable_model()->set_sequence_length(kTestSequenceLength);
  config.mutable_data()->set_tokenizer(v1::DataConfig::PRETOKENIZED);
  config.mutable_data()->set_validation_fraction(0.1);
  config.mutable_data()->set_shards(shards);
  absl::StatusOr<Dataset> dataset =
      OpenDataset(config, {WriteTestFile("positions.bin", BytesOf(ids))});
  EXPECT_OK(dataset.status());
  return *std::move(dataset);
}

}  // namespace causeway

#endif  // WORKER_DATA_TESTING_POSITIONS_DATASET_H_
