// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/shared_library.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::EndsWith;
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
              IsFailedPrecondition(StartsWith("cannot load libnowhere.so.7: "),
                                   "No such file"));
}

TEST(SharedLibraryTest, SaysWhatToDoAboutOneOfCuda) {
  EXPECT_THAT(
      LoadCudaLibrary("libnowhere", 7, "install it"),
      IsFailedPrecondition(StartsWith("cannot load libnowhere.so.7: "),
                           EndsWith("; install it, or name its directory in "
                                    "LD_LIBRARY_PATH")));
}

// Makes a library where pip puts one of CUDA, in a package of its own, and
// returns its path.
std::string InstallAsPip(const std::string& environment,
                         const std::string& name) {
  const std::string folder =
      environment + "/lib/python3.11/site-packages/nvidia/cublas/lib";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(SharedLibrary::Load("libz.so.1", {})->Path(),
                             folder + "/" + name);
  return folder + "/" + name;
}

TEST(SharedLibraryTest, FindsWhatPipInstalls) {
  ASSERT_OK_AND_ASSIGN(const TemporaryDirectory environment,
                       TemporaryDirectory::Make("environment"));
  const std::string file = InstallAsPip(environment.path(), "libofpip.so.7");
  ASSERT_FALSE(LoadCudaLibrary("libofpip", 7, "").ok());
  ASSERT_EQ(setenv("VIRTUAL_ENV", environment.path().c_str(), 1), 0);
  ASSERT_OK_AND_ASSIGN(const SharedLibrary library,
                       LoadCudaLibrary("libofpip", 7, ""));
  EXPECT_EQ(library.Path(), file);
  unsetenv("VIRTUAL_ENV");
}

// A virtual environment that is not active is found by its python3, which is a
// link to another Python.
TEST(SharedLibraryTest, FindsWhatPipInstallsForThePythonOnThePath) {
  ASSERT_OK_AND_ASSIGN(const TemporaryDirectory directory,
                       TemporaryDirectory::Make("environments"));
  const std::string base = directory.path() + "/base";
  const std::string environment = directory.path() + "/environment";
  std::filesystem::create_directories(base + "/bin");
  std::filesystem::create_directories(environment + "/bin");
  std::filesystem::copy_file("/bin/true", base + "/bin/python3.11");
  std::filesystem::create_symlink(base + "/bin/python3.11",
                                  environment + "/bin/python3");
  const std::string in_base = InstallAsPip(base, "libofbase.so.7");
  const std::string in_environment =
      InstallAsPip(environment, "libofvenv.so.7");
  ASSERT_FALSE(LoadCudaLibrary("libofvenv", 7, "").ok());
  const std::string path = std::getenv("PATH");
  ASSERT_EQ(setenv("PATH", ("/nowhere:" + environment + "/bin:" + path).c_str(),
                   /*overwrite=*/1),
            0);
  for (const auto& [name, file] : {std::pair("libofbase", in_base),
                                   std::pair("libofvenv", in_environment)}) {
    ASSERT_OK_AND_ASSIGN(const SharedLibrary library,
                         LoadCudaLibrary(name, 7, ""));
    EXPECT_TRUE(std::filesystem::equivalent(library.Path(), file))
        << library.Path();
  }
  setenv("PATH", path.c_str(), /*overwrite=*/1);
}

TEST(SharedLibraryTest, SaysWhyOneThatIsThereCannotBeUsed) {
  ASSERT_OK_AND_ASSIGN(const TemporaryDirectory directory,
                       TemporaryDirectory::Make("libraries"));
  std::ofstream(directory.path() + "/libbroken.so.7") << "no library";
  EXPECT_THAT(SharedLibrary::Load("libbroken.so.7", {directory.path()}),
              IsFailedPrecondition(directory.path() + "/libbroken.so.7: "));
}

}  // namespace
}  // namespace causeway
