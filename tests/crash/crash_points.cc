// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A library to preload (LD_PRELOAD) into a coordinator: it counts the calls
// that change files below a directory, and kills the process at one of them.
// The programs need no hooks for this, and SQLite's calls count as well.
//
//   CAUSEWAY_CRASH_ROOT    the directory, as an absolute path without links
//   CAUSEWAY_CRASH_AT      the call to be killed at, from 1: before it is made,
//                          and a write in the middle of its bytes; 0 is none
//   CAUSEWAY_CRASH_SHADOW  where to keep what a power loss would leave
//                          (durable_shadow.h); unset: keep nothing
//   CAUSEWAY_CRASH_REFUSE  while this file exists, the calls fail, as on a disk
//                          that has become read-only (EROFS); syncs do not
//   CAUSEWAY_CRASH_NO_SYNC while this file exists, syncs fail (EIO), and data
//                          that were written stay where they are
//   CAUSEWAY_CRASH_ENTRIES 1: names of files are durable at once, contents when
//                          they are synced
//
// Calls are serialized, so that the crash never interrupts another one.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "tests/crash/durable_shadow.h"

namespace {

namespace fs = std::filesystem;

// Returns the next definition of the function that calls this.
template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Is true while this thread is in the library, whose own calls do not count.
thread_local bool inside = false;

class Recorder {
 public:
  // Counts one call that changes files, and crashes at the chosen one.
  class Operation {
   public:
    Operation(Recorder* recorder, const char* name, const std::string& path);
    ~Operation() { inside = false; }
    // Returns whether the caller must crash now.
    bool is_last() const { return is_last_; }
    // Returns whether the call must fail instead of being made; sets errno.
    bool is_refused() const {
      if (is_refused_) errno = EROFS;
      return is_refused_;
    }
    // Returns whether the sync must fail; sets errno.
    bool is_sync_refused() const {
      if (is_sync_refused_) errno = EIO;
      return is_sync_refused_;
    }

   private:
    std::unique_lock<std::mutex> lock_;
    bool is_last_ = false;
    bool is_refused_ = false;
    bool is_sync_refused_ = false;
  };

  // Returns the recorder if a call on this path, or on a descriptor of a file
  // or directory, counts; null otherwise.
  static Recorder* ForPath(const std::string& path) {
    if (inside) return nullptr;
    Recorder& recorder = Get();
    const std::string& root = recorder.root_;
    return !root.empty() && path.compare(0, root.size(), root) == 0 ? &recorder
                                                                    : nullptr;
  }
  static Recorder* ForDescriptor(int descriptor) {
    if (inside || descriptor < 0 || descriptor >= kDescriptors) return nullptr;
    Recorder& recorder = Get();
    return recorder.tracked_[static_cast<size_t>(descriptor)] ? &recorder
                                                              : nullptr;
  }
  void Track(int descriptor, bool tracked) {
    if (descriptor >= 0 && descriptor < kDescriptors) {
      tracked_[static_cast<size_t>(descriptor)] = tracked;
    }
  }

  static std::string PathOf(int descriptor) {
    std::error_code error;
    return fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor),
                            error);
  }

  // Updates the shadow after a sync.
  void Synced(int descriptor) {
    if (!shadow_.has_value()) return;
    struct stat status;
    if (fstat(descriptor, &status) != 0) return;
    if (S_ISDIR(status.st_mode)) {
      shadow_->SyncDirectory(PathOf(descriptor));
    } else {
      shadow_->SyncFile(descriptor);
    }
  }
  void Released(const std::string& path) {
    if (shadow_.has_value()) shadow_->Release(path);
  }

  [[noreturn]] void Crash() {
    if (entries_first_ && shadow_.has_value()) shadow_->SyncAllDirectories();
    kill(getpid(), SIGKILL);
    while (true) pause();
  }

 private:
  static constexpr int kDescriptors = 65536;

  // Made on first use, because programs make calls before their main.
  static Recorder& Get() {
    static Recorder* const recorder = new Recorder;
    return *recorder;
  }

  Recorder() {
    inside = true;
    if (const char* root = getenv("CAUSEWAY_CRASH_ROOT")) root_ = root;
    if (const char* at = getenv("CAUSEWAY_CRASH_AT")) {
      crash_at_ = strtoull(at, nullptr, 10);
    }
    if (const char* file = getenv("CAUSEWAY_CRASH_REFUSE")) {
      refuse_while_ = file;
    }
    if (const char* file = getenv("CAUSEWAY_CRASH_NO_SYNC")) {
      no_sync_while_ = file;
    }
    const char* shadow = getenv("CAUSEWAY_CRASH_SHADOW");
    if (shadow != nullptr) shadow_.emplace(root_, shadow);
    entries_first_ = getenv("CAUSEWAY_CRASH_ENTRIES") != nullptr;
    inside = false;
  }

  std::string root_;
  std::string refuse_while_;
  std::string no_sync_while_;
  uint64_t crash_at_ = 0;
  bool entries_first_ = false;
  std::array<bool, kDescriptors> tracked_ = {};

  std::mutex mutex_;
  uint64_t operations_ = 0;
  std::optional<causeway::DurableShadow> shadow_;
};

Recorder::Operation::Operation(Recorder* recorder, const char* name,
                               const std::string& path)
    : lock_(recorder->mutex_) {
  inside = true;
  const auto exists = [](const std::string& file) {
    return !file.empty() && access(file.c_str(), F_OK) == 0;
  };
  is_refused_ = exists(recorder->refuse_while_);
  is_sync_refused_ = exists(recorder->no_sync_while_);
  if (++recorder->operations_ != recorder->crash_at_) return;
  dprintf(STDERR_FILENO, "crash point %llu: %s %s\n",
          static_cast<unsigned long long>(recorder->crash_at_), name,
          path.c_str());
  if (std::string(name) != "write") recorder->Crash();
  is_last_ = true;
}

using Write = ssize_t(int, const void*, size_t);
using PositionedWrite = ssize_t(int, const void*, size_t, off64_t);

// Makes `call`, which writes `size` bytes, unless the crash is due.
template <typename Call>
ssize_t WriteOrCrash(int descriptor, size_t size, const Call& call) {
  Recorder* const recorder = Recorder::ForDescriptor(descriptor);
  if (recorder == nullptr) return call(size);
  Recorder::Operation operation(recorder, "write",
                                Recorder::PathOf(descriptor));
  if (operation.is_refused()) return -1;
  if (operation.is_last()) {
    call(size / 2);
    recorder->Crash();
  }
  return call(size);
}

int SyncOrCrash(int descriptor, const char* name) {
  Recorder* const recorder = Recorder::ForDescriptor(descriptor);
  int (*const next)(int) = Next<int(int)>(name);
  if (recorder == nullptr) return next(descriptor);
  Recorder::Operation operation(recorder, name, Recorder::PathOf(descriptor));
  if (operation.is_sync_refused()) return -1;
  const int result = next(descriptor);
  if (result == 0) recorder->Synced(descriptor);
  return result;
}

int OpenOrCrash(const char* name, const char* path, int flags, mode_t mode) {
  Recorder* const recorder = Recorder::ForPath(path);
  auto* const next = Next<int(const char*, int, ...)>(name);
  if (recorder == nullptr) return next(path, flags, mode);
  int descriptor;
  if ((flags & (O_CREAT | O_TRUNC)) != 0) {
    Recorder::Operation operation(recorder, name, path);
    descriptor = operation.is_refused() ? -1 : next(path, flags, mode);
  } else {
    descriptor = next(path, flags, mode);
  }
  recorder->Track(descriptor, true);
  return descriptor;
}

int ResizeOrCrash(const char* name, int descriptor, off64_t size) {
  Recorder* const recorder = Recorder::ForDescriptor(descriptor);
  auto* const next = Next<int(int, off64_t)>(name);
  if (recorder == nullptr) return next(descriptor, size);
  Recorder::Operation operation(recorder, name, Recorder::PathOf(descriptor));
  return operation.is_refused() ? -1 : next(descriptor, size);
}

// Returns the mode of a call of open; meaningless unless it creates a file.
mode_t ModeOf(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

#define CAUSEWAY_OPEN(name)                       \
  int name(const char* path, int flags, ...) {    \
    va_list arguments;                            \
    va_start(arguments, flags);                   \
    const mode_t mode = ModeOf(flags, arguments); \
    va_end(arguments);                            \
    return OpenOrCrash(#name, path, flags, mode); \
  }

extern "C" {

CAUSEWAY_OPEN(open)
CAUSEWAY_OPEN(open64)

int close(int descriptor) {
  Recorder* const recorder = Recorder::ForDescriptor(descriptor);
  if (recorder != nullptr) recorder->Track(descriptor, false);
  return Next<int(int)>("close")(descriptor);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  static Write* const next = Next<Write>("write");
  return WriteOrCrash(descriptor, size,
                      [&](size_t n) { return next(descriptor, bytes, n); });
}

ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  static PositionedWrite* const next = Next<PositionedWrite>("pwrite");
  return WriteOrCrash(descriptor, size, [&](size_t n) {
    return next(descriptor, bytes, n, offset);
  });
}

ssize_t pwrite64(int descriptor, const void* bytes, size_t size,
                 off64_t offset) {
  static PositionedWrite* const next = Next<PositionedWrite>("pwrite64");
  return WriteOrCrash(descriptor, size, [&](size_t n) {
    return next(descriptor, bytes, n, offset);
  });
}

int fsync(int descriptor) { return SyncOrCrash(descriptor, "fsync"); }

int fdatasync(int descriptor) { return SyncOrCrash(descriptor, "fdatasync"); }

int ftruncate(int descriptor, off_t size) noexcept {
  return ResizeOrCrash("ftruncate", descriptor, size);
}

int ftruncate64(int descriptor, off64_t size) noexcept {
  return ResizeOrCrash("ftruncate64", descriptor, size);
}

int rename(const char* from, const char* to) noexcept {
  Recorder* const recorder = Recorder::ForPath(to);
  auto* const next = Next<int(const char*, const char*)>("rename");
  if (recorder == nullptr) return next(from, to);
  Recorder::Operation operation(recorder, "rename to", to);
  if (operation.is_refused()) return -1;
  recorder->Released(to);
  return next(from, to);
}

int unlink(const char* path) noexcept {
  Recorder* const recorder = Recorder::ForPath(path);
  auto* const next = Next<int(const char*)>("unlink");
  if (recorder == nullptr) return next(path);
  Recorder::Operation operation(recorder, "unlink", path);
  if (operation.is_refused()) return -1;
  recorder->Released(path);
  return next(path);
}

int mkdir(const char* path, mode_t mode) noexcept {
  Recorder* const recorder = Recorder::ForPath(path);
  auto* const next = Next<int(const char*, mode_t)>("mkdir");
  if (recorder == nullptr) return next(path, mode);
  Recorder::Operation operation(recorder, "mkdir", path);
  return operation.is_refused() ? -1 : next(path, mode);
}

}  // extern "C"
