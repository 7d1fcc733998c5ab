// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/durable_shadow.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>

namespace causeway {
namespace {

namespace fs = std::filesystem;

void Require(bool done, const char* what, const fs::path& path) {
  if (done) return;
  std::fprintf(stderr, "shadow: cannot %s %s: %s\n", what, path.c_str(),
               std::strerror(errno));
  std::abort();
}

bool IsBelow(const fs::path& path, const fs::path& root) {
  const std::string& text = path.native();
  const std::string& prefix = root.native();
  return text.compare(0, prefix.size(), prefix) == 0 &&
         (text.size() == prefix.size() || text[prefix.size()] == '/');
}

}  // namespace

DurableShadow::DurableShadow(fs::path root, fs::path shadow)
    : root_(std::move(root)),
      tree_(shadow / "tree"),
      inodes_(shadow / "inodes") {
  fs::create_directories(tree_);
  fs::create_directories(inodes_);
  for (const auto& entry : fs::recursive_directory_iterator(root_)) {
    if (!entry.is_regular_file()) continue;
    const int file = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    Require(file >= 0, "open", entry.path());
    SyncFile(file);
    close(file);
  }
  SyncAllDirectories();
}

void DurableShadow::SyncFile(int descriptor) {
  struct stat status;
  Require(fstat(descriptor, &status) == 0, "stat", root_);
  if (!S_ISREG(status.st_mode)) return;
  const fs::path path = inodes_ / std::to_string(status.st_ino);
  // Open the file by its name in /proc, since the descriptor may be for writing
  // only.
  const std::string source_name = "/proc/self/fd/" + std::to_string(descriptor);
  const int source = open(source_name.c_str(), O_RDONLY | O_CLOEXEC);
  Require(source >= 0, "open", source_name);
  const int target =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  Require(target >= 0, "open", path);
  ssize_t copied;
  do {
    copied = sendfile(target, source, nullptr, 1 << 30);
  } while (copied > 0);
  Require(copied == 0, "copy to", path);
  close(target);
  close(source);
}

void DurableShadow::SyncDirectory(const fs::path& directory) {
  if (!IsBelow(directory, root_)) return;
  const fs::path shadow = tree_ / directory.lexically_relative(root_);
  // The directory's own entry may be less durable than its contents.
  if (!fs::exists(shadow)) return;
  std::set<fs::path> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const fs::path name = entry.path().filename();
    names.insert(name);
    if (entry.is_directory()) {
      fs::create_directory(shadow / name);
      continue;
    }
    if (!entry.is_regular_file()) continue;
    const fs::path inode = Inode(entry.path());
    if (!fs::exists(inode)) {
      // The file was never synced: its name survives, but empty.
      const int file =
          open(inode.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
      Require(file >= 0, "create", inode);
      close(file);
    }
    fs::remove(shadow / name);
    fs::create_hard_link(inode, shadow / name);
  }
  std::set<fs::path> gone;
  for (const auto& entry : fs::directory_iterator(shadow)) {
    if (names.count(entry.path().filename()) == 0) gone.insert(entry.path());
  }
  for (const fs::path& path : gone) fs::remove_all(path);
}

void DurableShadow::SyncAllDirectories() {
  SyncDirectory(root_);
  // Parents come before their contents.
  for (const auto& entry : fs::recursive_directory_iterator(root_)) {
    if (entry.is_directory()) SyncDirectory(entry.path());
  }
}

void DurableShadow::Release(const fs::path& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_nlink > 1) {
    return;
  }
  std::error_code ignored;
  fs::remove(inodes_ / std::to_string(status.st_ino), ignored);
}

fs::path DurableShadow::Inode(const fs::path& path) const {
  struct stat status;
  Require(lstat(path.c_str(), &status) == 0, "stat", path);
  return inodes_ / std::to_string(status.st_ino);
}

}  // namespace causeway
