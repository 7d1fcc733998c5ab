// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A small SentencePiece model for tests, trained on first use. Tests that use
// it need the programs named here in their `data`.
#ifndef WORKER_DATA_TESTING_SENTENCEPIECE_MODEL_H_
#define WORKER_DATA_TESTING_SENTENCEPIECE_MODEL_H_

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "gtest/gtest.h"
#include "worker/data/testing/files.h"

namespace causeway {

inline constexpr int kTestModelVocabulary = 300;

// Returns the path of a program of this package in the running test's data.
inline std::string TestProgram(const std::string& name) {
  return absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"),
                      "/worker/data/", name);
}

inline std::string TestSentencePieceTool() {
  return TestProgram("causeway-sentencepiece");
}

// Trains the model `name` with additional `flags` and returns the path of its
// file.
inline std::string TrainModel(const std::string& name,
                              const std::string& flags) {
  const std::string text =
      WriteTestFile("sentences.txt",
                    "the island sends its fragment to the coordinator\n"
                    "the coordinator sends the update to every island\n"
                    "an island that comes late takes the update as a rebase\n");
  const std::string prefix = absl::StrCat(testing::TempDir(), "/", name);
  const std::string command =
      absl::StrCat(TestProgram("testing/sentencepiece_trainer"), " ", text, " ",
                   kTestModelVocabulary, " ", prefix, " '", flags, "'");
  CHECK_EQ(std::system(command.c_str()), 0) << command;
  return prefix + ".model";
}

// Returns the path of a model that is trained once.
inline std::string TrainTestModel() {
  static const std::string& path = *new std::string(TrainModel("english", ""));
  return path;
}

}  // namespace causeway

#endif  // WORKER_DATA_TESTING_SENTENCEPIECE_MODEL_H_
