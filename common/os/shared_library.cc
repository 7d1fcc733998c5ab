// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/shared_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// Returns the files that match the pattern, in order.
std::vector<std::string> Matches(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return paths;
}

// Returns the directory of the file, program or library, that has this code.
std::string OwnDirectory() {
  static const char here = 0;
  Dl_info info = {};
  if (dladdr(&here, &info) == 0 || info.dli_fname == nullptr) return ".";
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::canonical(info.dli_fname, error);
  return error ? "." : path.parent_path().string();
}

// Returns the prefixes under which Python's packages may be installed.
std::vector<std::string> PythonPrefixes() {
  std::vector<std::string> prefixes;
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* const prefix = std::getenv(variable);
    if (prefix != nullptr) prefixes.push_back(prefix);
  }
  const char* const path = std::getenv("PATH");
  for (const absl::string_view folder :
       absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string python = absl::StrCat(folder, "/python3");
    if (access(python.c_str(), X_OK) != 0) continue;
    prefixes.push_back(absl::StrCat(folder, "/.."));
    // In a virtual environment it is a link to the Python that it extends.
    std::error_code error;
    const std::filesystem::path file =
        std::filesystem::canonical(python, error);
    if (!error) prefixes.push_back(file.parent_path().parent_path());
    break;
  }
  return prefixes;
}

std::vector<std::string> CudaDirectories() {
  const std::string own = OwnDirectory();
  std::vector<std::string> directories = {own, absl::StrCat(own, "/../lib"),
                                          "/usr/local/cuda/lib64"};
  for (const std::string& prefix : PythonPrefixes()) {
    directories.push_back(absl::StrCat(prefix, "/lib"));
    directories.push_back(
        absl::StrCat(prefix, "/lib/python3*/site-packages/nvidia/*/lib"));
  }
  if (const char* const home = std::getenv("HOME"); home != nullptr) {
    directories.push_back(
        absl::StrCat(home, "/.local/lib/python3*/site-packages/nvidia/*/lib"));
  }
  for (const char* const packages : {"/usr/local/lib/python3*/dist-packages",
                                     "/usr/local/lib/python3*/site-packages",
                                     "/usr/lib/python3*/site-packages"}) {
    directories.push_back(absl::StrCat(packages, "/nvidia/*/lib"));
  }
  return directories;
}

}  // namespace

absl::StatusOr<SharedLibrary> SharedLibrary::Load(
    const std::string& name, const std::vector<std::string>& directories) {
  std::vector<std::string> paths = {name};
  for (const std::string& directory : directories) {
    for (std::string& path : Matches(absl::StrCat(directory, "/", name))) {
      paths.push_back(std::move(path));
    }
  }
  // The error of an unusable library says more than that of a missing one.
  std::string error;
  for (const std::string& path : paths) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return SharedLibrary(name, handle);
    error = dlerror();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("cannot load ", name, ": ", error));
}

std::string SharedLibrary::Path() const {
  const link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) {
    return name_;
  }
  return map->l_name;
}

absl::StatusOr<void*> SharedLibrary::AddressOf(const char* function) const {
  void* const address = dlsym(handle_, function);
  if (address != nullptr) return address;
  return absl::FailedPreconditionError(
      absl::StrCat(name_, " has no function ", function));
}

absl::StatusOr<SharedLibrary> LoadCudaLibrary(absl::string_view name, int major,
                                              absl::string_view advice) {
  absl::StatusOr<SharedLibrary> library =
      SharedLibrary::Load(absl::StrCat(name, ".so.", major), CudaDirectories());
  if (library.ok()) {
    LOG(INFO) << "loaded " << library->Path();
    return library;
  }
  return absl::FailedPreconditionError(
      absl::StrCat(library.status().message(), "; ", advice,
                   ", or name its directory in LD_LIBRARY_PATH"));
}

}  // namespace causeway
