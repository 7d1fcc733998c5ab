// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Loads a library when it is first needed, so that a program that can use it
// also runs without it.
//
//   ASSIGN_OR_RETURN(const SharedLibrary library,
//                    SharedLibrary::Load("libz.so.1", {"/opt/lib"}));
//   decltype(&zlibVersion) version = nullptr;
//   RETURN_IF_ERROR(library.Find("zlibVersion", version));
#ifndef COMMON_OS_SHARED_LIBRARY_H_
#define COMMON_OS_SHARED_LIBRARY_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

namespace causeway {

// A loaded library. It is never unloaded: functions stay valid without the
// object. Thread-safe.
class SharedLibrary {
 public:
  // Loads the library that the loader finds, or else the first one in
  // `directories`, which may be patterns of glob(7).
  // FAILED_PRECONDITION, with the cause, if there is none or it cannot be used.
  static absl::StatusOr<SharedLibrary> Load(
      const std::string& name, const std::vector<std::string>& directories);

  // Returns the file that was loaded.
  std::string Path() const;

  // Sets `function` to the function `name`; the caller vouches for its type.
  // FAILED_PRECONDITION, and null, if the library has no such function.
  template <typename Function>
  absl::Status Find(const char* name, Function*& function) const {
    function = nullptr;
    ASSIGN_OR_RETURN(void* const address, AddressOf(name));
    function = reinterpret_cast<Function*>(address);
    return absl::OkStatus();
  }

 private:
  SharedLibrary(std::string name, void* handle)
      : name_(std::move(name)), handle_(handle) {}
  absl::StatusOr<void*> AddressOf(const char* function) const;

  std::string name_;
  void* handle_;
};

// Loads NAME.so.MAJOR of the CUDA toolkit and logs its path. Looks where the
// loader does, then beside this program (where deploy/bundle.sh puts it), in
// the toolkit's default directory, and where pip puts the libraries of PyTorch:
// in the active virtual environment, Conda's, that of the python3 on the PATH,
// the user's and the system's. The error ends with `advice` on what to install,
// and how to say where it is.
absl::StatusOr<SharedLibrary> LoadCudaLibrary(absl::string_view name, int major,
                                              absl::string_view advice);

}  // namespace causeway

#endif  // COMMON_OS_SHARED_LIBRARY_H_
