// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Shares stored files between their readers: when a round has closed, all
// islands fetch the same update, and islands that join together fetch the same
// parameters. A file is mapped and verified once for all of them.
//
//   OpenFiles<StoredUpdate> updates;
//   ASSIGN_OR_RETURN(std::shared_ptr<const StoredUpdate> update,
//                    updates.Get(name, digest,
//                                [&] { return store.OpenUpdate(...); }));
//
// A file is closed when its last reader is gone. Thread-safe.
#ifndef SERVER_STORAGE_OPEN_FILES_H_
#define SERVER_STORAGE_OPEN_FILES_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/status_macros.h"

namespace causeway {

template <typename Stored>
class OpenFiles {
 public:
  // Returns the file called `name` that holds the version with `digest`. (If a
  // commit fails, its version is made again under the same name, with other
  // contents.) Calls `open`, and returns its error, if the file is not open
  // yet. Who wants the same file waits meanwhile, and nobody else does.
  absl::StatusOr<std::shared_ptr<const Stored>> Get(
      const std::string& name, const std::string& digest,
      absl::FunctionRef<absl::StatusOr<Stored>()> open) {
    const Key key = {name, digest};
    {
      absl::MutexLock lock(&mu_);
      const auto is_not_being_opened = [&] {
        mu_.AssertReaderHeld();
        return !being_opened_.contains(key);
      };
      mu_.Await(absl::Condition(&is_not_being_opened));
      const auto found = files_.find(key);
      if (found != files_.end()) {
        if (std::shared_ptr<const Stored> file = found->second.lock()) {
          return file;
        }
      }
      being_opened_.insert(key);
    }
    absl::StatusOr<Stored> opened = open();
    absl::MutexLock lock(&mu_);
    being_opened_.erase(key);
    RETURN_IF_ERROR(opened.status());
    auto file = std::make_shared<const Stored>(*std::move(opened));
    std::erase_if(files_,
                  [](const auto& entry) { return entry.second.expired(); });
    files_[key] = file;
    return file;
  }

 private:
  // A name and a digest.
  using Key = std::pair<std::string, std::string>;

  absl::Mutex mu_;
  std::set<Key> being_opened_ ABSL_GUARDED_BY(mu_);
  std::map<Key, std::weak_ptr<const Stored>> files_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // SERVER_STORAGE_OPEN_FILES_H_
