// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Honest islands that upload as fast as they can are not taken for attackers.
// New connections, which have delivered nothing yet, are judged most by the
// bytes that gRPC reads ahead.
//
// To soak, set UPLOAD_SECONDS in the environment.
#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "glog/logging.h"
#include "gtest/gtest.h"
#include "server/benchmarks/ingest_measurement.h"

namespace causeway {
namespace {

constexpr int kIslands = 8;

absl::Duration Time() {
  const char* const text = std::getenv("UPLOAD_SECONDS");
  int seconds = 2;
  if (text != nullptr) CHECK(absl::SimpleAtoi(text, &seconds));
  return absl::Seconds(seconds);
}

// Keeps all processors busy.
class Load {
 public:
  Load() {
    for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
      threads_.emplace_back([this] {
        while (!stopping_) {
        }
      });
    }
  }
  ~Load() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> threads_;
};

// Says whether to use TLS, and whether the machine has other work.
class UploadsTest : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(UploadsTest, AreNotCutOff) {
  const auto [tls, is_loaded] = GetParam();
  std::optional<Load> load;
  if (is_loaded) load.emplace();
  const UploadSoak soak = SoakUploads(tls, kIslands, Time());
  LOG(INFO) << soak.uploads << " uploads, at most " << soak.most_held_bytes
            << " bytes held for one address";
  EXPECT_GE(soak.uploads, kIslands);
  EXPECT_EQ(soak.cut, 0);
  EXPECT_EQ(soak.broken, 0) << soak.error;
}

INSTANTIATE_TEST_SUITE_P(All, UploadsTest,
                         testing::Combine(testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace causeway
