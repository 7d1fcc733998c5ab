// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator_access.h"

#include <filesystem>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "common/transport/testing/certificates.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/flags.h"

namespace causeway {
namespace {

class CoordinatorAccessTest : public testing::Test {
 protected:
  CoordinatorAccessTest() {
    EXPECT_OK(CreateDirectory(folder_, 0700));
    const TestIdentity own =
        authority_.Sign("north.island.a-run.causeway", valid_);
    Put(own.certificate, "tls.crt");
    Put(own.key, "tls.key");
    Put(authority_.certificate(), "ca.crt");
    absl::SetFlag(&FLAGS_coordinator, "127.0.0.1:1");
    absl::SetFlag(&FLAGS_tls, folder_);
    absl::SetFlag(&FLAGS_join_file, token_file_);
  }
  ~CoordinatorAccessTest() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::remove(token_file_);
  }

  void Put(const std::string& file, const std::string& name) const {
    std::filesystem::copy_file(file, absl::StrCat(folder_, "/", name));
  }

  absl::Status Prepare(absl::Time now) {
    return PrepareAccess([=] { return now; }, [] { return 1; }).status();
  }

  const absl::Time now_ = absl::Now();
  const Validity valid_ = {now_ - absl::Hours(1), now_ + absl::Hours(1)};
  const std::string folder_ = absl::StrCat(testing::TempDir(), "/tls");
  const std::string token_file_ = absl::StrCat(testing::TempDir(), "/token");

 private:
  TestAuthority authority_{absl::StrCat(testing::TempDir(), "/authority"),
                           valid_};
  const absl::FlagSaver saver_;
};

TEST_F(CoordinatorAccessTest, AUsedTokensFileMayBeRemoved) {
  EXPECT_OK(Prepare(now_));
  EXPECT_EQ(absl::GetFlag(FLAGS_island), "north");
}

TEST_F(CoordinatorAccessTest, WithoutAValidCertificateTheTokenIsNeeded) {
  EXPECT_THAT(Prepare(valid_.until + absl::Seconds(1)),
              IsNotFound("--join_file: cannot open", token_file_,
                         "and a token is needed, because", "has expired"));
  std::filesystem::remove_all(folder_);
  EXPECT_THAT(Prepare(now_), IsNotFound(token_file_, "no valid certificate"));
}

// systemd gives an island without a token an empty file.
TEST_F(CoordinatorAccessTest, AnEmptyTokensFileIsNoToken) {
  EXPECT_OK(WriteFileAtomically(token_file_, {absl::string_view("\n")}));
  EXPECT_OK(Prepare(now_));
  std::filesystem::remove_all(folder_);
  EXPECT_THAT(Prepare(now_),
              IsNotFound(absl::StrCat(token_file_, " is empty"),
                         "a token is needed", "causeway token create"));
}

TEST_F(CoordinatorAccessTest, WithoutACertificateTheTokenIsAskedFor) {
  absl::SetFlag(&FLAGS_join_file, "");
  EXPECT_OK(Prepare(now_));
  std::filesystem::remove_all(folder_);
  EXPECT_THAT(Prepare(now_), IsNotFound(folder_, "a join token (--join,"));
}

// A new token may come from another authority.
TEST_F(CoordinatorAccessTest, ATokensFileThatIsThereIsRead) {
  EXPECT_OK(WriteFileAtomically(token_file_, {absl::string_view("no token")}));
  EXPECT_THAT(Prepare(now_), IsInvalidArgument("token"));
}

}  // namespace
}  // namespace causeway
