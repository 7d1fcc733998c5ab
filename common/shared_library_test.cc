// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/shared_library.h"

#include "common/testing/status_matchers.h"
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
                       SharedLibrary::Load("libm.so.6", "/nowhere"));
  double (*cosine)(double) = nullptr;
  ASSERT_OK(library.Find("cos", cosine));
  EXPECT_EQ(cosine(0), 1);
  EXPECT_THAT(library.Find("no_such_function", cosine),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "libm.so.6 has no function no_such_function"));
  EXPECT_EQ(cosine, nullptr);
}

TEST(SharedLibraryTest, SaysWhichIsNotThere) {
  EXPECT_THAT(SharedLibrary::Load("libnowhere.so.7", "/nowhere"),
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

}  // namespace
}  // namespace causeway
