// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/shared_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace causeway {

absl::StatusOr<SharedLibrary> SharedLibrary::Load(const std::string& name,
                                                  absl::string_view directory) {
  // The error of the loader's own search is the more telling one.
  std::string error;
  for (const std::string& path : {name, absl::StrCat(directory, "/", name)}) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return SharedLibrary(name, handle);
    if (error.empty()) error = dlerror();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("cannot load ", name, ": ", error));
}

absl::StatusOr<void*> SharedLibrary::AddressOf(const char* function) const {
  void* const address = dlsym(handle_, function);
  if (address != nullptr) return address;
  return absl::FailedPreconditionError(
      absl::StrCat(name_, " has no function ", function));
}

absl::StatusOr<SharedLibrary> LoadCudaLibrary(absl::string_view name, int major,
                                              absl::string_view advice) {
  absl::StatusOr<SharedLibrary> library = SharedLibrary::Load(
      absl::StrCat(name, ".so.", major), "/usr/local/cuda/lib64");
  if (library.ok()) return library;
  return absl::FailedPreconditionError(
      absl::StrCat(library.status().message(), "; ", advice,
                   ", or name its directory in LD_LIBRARY_PATH"));
}

}  // namespace causeway
