// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a disk would hold after a power loss that drops everything unsynced: a
// second directory tree, kept beside the true one, in which a file has the
// content it had when it was last synced, and a directory the entries it had
// when it was last synced. The shadow is at every moment what would be found.
//
//   DurableShadow shadow("/state", "/shadow");   // what is there is durable
//   ... fsync(descriptor) ...; shadow.SyncFile(descriptor);
//   shadow.SyncDirectory("/state/fragments");
//
// Layout: <shadow>/tree is the tree; <shadow>/inodes/N the synced content of
// the file with inode N, of which the files of the tree are hard links.
//
// Not thread-safe. An operation that fails ends the process: a test without its
// shadow proves nothing.
#ifndef TESTS_CRASH_DURABLE_SHADOW_H_
#define TESTS_CRASH_DURABLE_SHADOW_H_

#include <filesystem>

namespace causeway {

class DurableShadow {
 public:
  // `root` exists, `shadow` does not.
  DurableShadow(std::filesystem::path root, std::filesystem::path shadow);

  // The file's content is durable. What is not a file below the root is left
  // alone.
  void SyncFile(int descriptor);

  // The entries of a directory are durable; directories among them appear
  // empty.
  void SyncDirectory(const std::filesystem::path& directory);

  // The entries of all directories are, as file systems do that write their
  // metadata early.
  void SyncAllDirectories();

  // `path` is about to lose its name, by unlink or by a rename onto it: its
  // inode number may come back for another file.
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
