// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A library that is loaded when it is first needed, so that a program which may
// use it also runs where there is none.
//
//   ASSIGN_OR_RETURN(const SharedLibrary library,
//                    SharedLibrary::Load("libz.so.1", "/opt/lib"));
//   decltype(&zlibVersion) version = nullptr;
//   RETURN_IF_ERROR(library.Find("zlibVersion", version));
#ifndef COMMON_SHARED_LIBRARY_H_
#define COMMON_SHARED_LIBRARY_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

namespace causeway {

// Never unloaded: functions stay good without the object. Thread-safe.
class SharedLibrary {
 public:
  // The one that the loader finds, else that in `directory`.
  // FAILED_PRECONDITION: there is none, or it cannot be used; says why.
  static absl::StatusOr<SharedLibrary> Load(const std::string& name,
                                            absl::string_view directory);

  // Sets `function` to the function `name`, whose type is the caller's word.
  // FAILED_PRECONDITION: the library has none, and it becomes null.
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

// NAME.so.MAJOR of the CUDA toolkit, from where the loader finds it, else from
// where the toolkit is installed by default. The error ends with `advice`, what
// to install, and how to say where it is.
absl::StatusOr<SharedLibrary> LoadCudaLibrary(absl::string_view name, int major,
                                              absl::string_view advice);

}  // namespace causeway

#endif  // COMMON_SHARED_LIBRARY_H_
