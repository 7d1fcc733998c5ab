// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Small files for tests.
#ifndef WORKER_DATA_TESTING_FILES_H_
#define WORKER_DATA_TESTING_FILES_H_

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace causeway {

// Writes `content` to a file of the running test and returns its path.
inline std::string WriteTestFile(const std::string& name,
                                 absl::string_view content) {
  const testing::TestInfo* test =
      testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = testing::TempDir() + "/" + test->name() + "_" + name;
  std::ofstream(path, std::ios::binary)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
  return path;
}

// Returns the bytes of integers, little-endian.
template <typename Integer>
std::string BytesOf(const std::vector<Integer>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(Integer));
}

// Returns the header that llm.c's data_common.py writes before `tokens` ids.
inline std::string LlmcHeader(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> words(256);
  words[0] = magic;
  words[1] = version;
  words[2] = tokens;
  return BytesOf(words);
}

}  // namespace causeway

#endif  // WORKER_DATA_TESTING_FILES_H_
