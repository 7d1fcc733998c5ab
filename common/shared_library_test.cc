// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/shared_library.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(SharedLibraryTest, FindsFunctions) {
  ASSERT_OK_AND_ASSIGN(const SharedLibrary library,
                       SharedLibrary::Load("libm.so.6", {"/nowhere"}));
  EXPECT_THAT(library.Path(), EndsWith("/libm.so.6"));
  double (*cosine)(double) = nullptr;
  ASSERT_OK(library.Find("cos", cosine));
  EXPECT_EQ(cosine(0), 1);
  EXPECT_THAT(library.Find("no_such_function", cosine),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "libm.so.6 has no function no_such_function"));
  EXPECT_EQ(cosine, nullptr);
}

TEST(SharedLibraryTest, SaysWhichIsNotThere) {
  EXPECT_THAT(SharedLibrary::Load("libnowhere.so.7", {"/nowhere"}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(StartsWith("cannot load libnowhere.so.7: "),
                             HasSubstr("No such file"))));
}

TEST(SharedLibraryTest, SaysWhatToDoAboutOneOfCuda) {
  EXPECT_THAT(LoadCudaLibrary("libnowhere", 7, "install it"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(StartsWith("cannot load libnowhere.so.7: "),
                             EndsWith("; install it, or name its directory in "
                                      "LD_LIBRARY_PATH"))));
}

// pip puts each library of CUDA into a package of its own.
TEST(SharedLibraryTest, FindsWhatPipInstalls) {
  ASSERT_OK_AND_ASSIGN(const TemporaryDirectory environment,
                       TemporaryDirectory::Make("environment"));
  const std::string folder =
      environment.path() + "/lib/python3.11/site-packages/nvidia/cublas/lib";
  std::filesystem::create_directories(folder);
  ASSERT_OK_AND_ASSIGN(const SharedLibrary any,
                       SharedLibrary::Load("libz.so.1", {}));
  std::filesystem::copy_file(any.Path(), folder + "/libofpip.so.7");
  ASSERT_FALSE(LoadCudaLibrary("libofpip", 7, "").ok());
  ASSERT_EQ(setenv("VIRTUAL_ENV", environment.path().c_str(), 1), 0);
  ASSERT_OK_AND_ASSIGN(const SharedLibrary library,
                       LoadCudaLibrary("libofpip", 7, ""));
  EXPECT_EQ(library.Path(), folder + "/libofpip.so.7");
  unsetenv("VIRTUAL_ENV");
}

TEST(SharedLibraryTest, SaysWhyOneThatIsThereCannotBeUsed) {
  ASSERT_OK_AND_ASSIGN(const TemporaryDirectory directory,
                       TemporaryDirectory::Make("libraries"));
  std::ofstream(directory.path() + "/libbroken.so.7") << "no library";
  EXPECT_THAT(SharedLibrary::Load("libbroken.so.7", {directory.path()}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(directory.path() + "/libbroken.so.7: ")));
}

}  // namespace
}  // namespace causeway
