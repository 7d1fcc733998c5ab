// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Keeps what a disk would hold after a power loss that drops everything
// unsynced: a second directory tree beside the true one, in which a file has
// the content, and a directory the entries, of its last sync. The shadow is up
// to date at every moment.
//
//   DurableShadow shadow("/state", "/shadow");   // present files are durable
//   ... fsync(descriptor) ...; shadow.SyncFile(descriptor);
//   shadow.SyncDirectory("/state/fragments");
//
// Layout: <shadow>/tree is the tree; <shadow>/inodes/N is the synced content of
// the file with inode N. The files of the tree are hard links to these.
//
// Not thread-safe. A failed operation ends the process, because a test without
// its shadow proves nothing.
#ifndef TESTS_CRASH_DURABLE_SHADOW_H_
#define TESTS_CRASH_DURABLE_SHADOW_H_

#include <filesystem>

namespace causeway {

class DurableShadow {
 public:
  // `root` must exist, and `shadow` must not.
  DurableShadow(std::filesystem::path root, std::filesystem::path shadow);

  // Makes the file's content durable. Ignores anything but a file below the
  // root.
  void SyncFile(int descriptor);

  // Makes the entries of a directory durable; directories among them appear
  // empty.
  void SyncDirectory(const std::filesystem::path& directory);

  // Makes the entries of all directories durable, like file systems that write
  // their metadata early.
  void SyncAllDirectories();

  // Must be called before `path` loses its name, by unlink or by a rename onto
  // it: another file may get its inode number.
  void Release(const std::filesystem::path& path);

  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path Inode(const std::filesystem::path& path) const;

  const std::filesystem::path root_;
  const std::filesystem::path tree_;
  const std::filesystem::path inodes_;
};

}  // namespace causeway

#endif  // TESTS_CRASH_DURABLE_SHADOW_H_
