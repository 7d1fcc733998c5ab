// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/state_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/strings/substitute.h"
#include "common/os/machine.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "server/rules/fragment_files.h"
#include "server/trust/revoked.h"

namespace causeway {
namespace {

constexpr char kLockName[] = "lock";
constexpr char kLogName[] = "run.sqlite3";
constexpr char kRescued[] = ".rescued";
constexpr char kForFollower[] = ".for-";
constexpr char kReceived[] = ".received";
constexpr char kIncompleteName[] = "incomplete-copy";
constexpr const char* kFolders[] = {"fragments", "updates", "merges",
                                    "quarantine"};

std::string LogPath(const std::string& directory) {
  return absl::StrCat(directory, "/", kLogName);
}

std::string IncompletePath(const std::string& directory) {
  return absl::StrCat(directory, "/", kIncompleteName);
}

bool IsIncomplete(const std::string& directory) {
  return access(IncompletePath(directory).c_str(), F_OK) == 0;
}

absl::StatusOr<FileLock> Lock(const std::string& path) {
  absl::StatusOr<FileLock> lock =
      FileLock::Acquire(absl::StrCat(path, "/", kLockName));
  if (!absl::IsFailedPrecondition(lock.status())) return lock;
  absl::string_view holder = lock.status().message();
  holder.remove_prefix(std::min(holder.size(), holder.rfind("pid ")));
  return absl::UnavailableError(absl::Substitute(
      "state directory $0 is in use by another coordinator ($1)", path,
      holder));
}

// Checks that the directory is empty or a state directory, even one without a
// log.
absl::Status CheckUsable(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
  const auto is_ours = [](const std::string& name) {
    return name == kLockName || name == kIncompleteName ||
           name == kRevokedName || absl::c_linear_search(kFolders, name) ||
           absl::StartsWith(name, kLogName) ||
           // At the root of a file system.
           name == "lost+found";
  };
  const auto foreign = std::find_if_not(names.begin(), names.end(), is_ours);
  const bool has_log =
      std::find(names.begin(), names.end(), kLogName) != names.end();
  if (has_log || foreign == names.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::Substitute(
      "$0 is not a state directory and not empty (it has \"$1\"): name a "
      "directory that is empty or does not exist",
      path, *foreign));
}

bool IsMissingOrEmpty(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  return error || bytes == 0;
}

// Returns whether a coordinator is known to hold the directory's lock.
bool IsInUse(const std::string& root) {
  const int lock =
      open(absl::StrCat(root, "/", kLockName).c_str(), O_RDONLY | O_CLOEXEC);
  if (lock < 0) return errno != ENOENT;
  const bool is_free = flock(lock, LOCK_SH | LOCK_NB) == 0;
  close(lock);
  return !is_free;
}

bool IsTemporary(absl::string_view name) {
  return absl::StrContains(name, AtomicFileWriter::kTemporaryMarker);
}

// Calls `visit` with the path, relative to `root`, of each file in a run's
// folders.
absl::Status VisitRunFiles(
    const std::string& root,
    absl::FunctionRef<absl::Status(const std::string&)> visit) {
  for (const char* folder : kFolders) {
    const absl::StatusOr<std::vector<std::string>> names =
        ListDirectory(absl::StrCat(root, "/", folder));
    if (absl::IsNotFound(names.status())) continue;
    RETURN_IF_ERROR(names.status());
    for (const std::string& name : *names) {
      RETURN_IF_ERROR(visit(absl::StrCat(folder, "/", name)));
    }
  }
  return absl::OkStatus();
}

// Removes files that are named as the log with an `unneeded` suffix.
absl::Status RemoveLogFiles(
    const std::string& root,
    absl::FunctionRef<bool(absl::string_view suffix)> unneeded) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(root));
  for (const std::string& name : names) {
    absl::string_view suffix = name;
    if (!absl::ConsumePrefix(&suffix, kLogName) || !unneeded(suffix)) continue;
    RETURN_IF_ERROR(RemoveFile(absl::StrCat(root, "/", name)));
  }
  return absl::OkStatus();
}

// Checks that a copy of the log leaves at least half of the free space to the
// run, whose commits would otherwise fail while the copy is made and sent.
absl::Status CheckRoomForLog(const std::string& root) {
  uint64_t bytes = 0;
  for (const char* suffix : {"", "-wal"}) {
    std::error_code missing;
    const uintmax_t size = std::filesystem::file_size(
        absl::StrCat(LogPath(root), suffix), missing);
    if (!missing) bytes += size;
  }
  ASSIGN_OR_RETURN(const DiskSpace disk, FindDiskSpace(root));
  if (bytes <= disk.free / 2) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::Substitute(
      "a copy of the log takes $0 bytes, and may take half of the $1 that are "
      "free in the leader's $2: make room there",
      bytes, disk.free, root));
}

bool IsSnapshot(absl::string_view file) {
  return absl::StartsWith(file, "fragments/");
}

// Checks that a directory without a run in its log has no files of a run.
absl::Status CheckNoRunIsLost(const std::string& root) {
  std::vector<std::string> found;
  RETURN_IF_ERROR(VisitRunFiles(root, [&](const std::string& file) {
    found.push_back(file);
    return absl::OkStatus();
  }));
  // SQLite would remove a write-ahead log whose database is gone.
  const std::string wal = absl::StrCat(kLogName, "-wal");
  if (IsMissingOrEmpty(LogPath(root)) &&
      !IsMissingOrEmpty(absl::StrCat(root, "/", wal))) {
    found.push_back(wal);
  }
  if (found.empty()) return absl::OkStatus();
  const std::string rescued = absl::StrCat(LogPath(root), kRescued);
  return absl::FailedPreconditionError(absl::Substitute(
      "$0 has files of a run ($1$2), but $3, which says what they are, is "
      "missing or has no run. $4, or name another state directory to begin a "
      "new run. Nothing was changed",
      root, found[0],
      found.size() == 1 ? "" : absl::StrCat(" and ", found.size() - 1, " more"),
      kLogName,
      IsMissingOrEmpty(rescued)
          ? absl::Substitute("Restore $0, and $1 if there was one, from the "
                             "backup that the files are from",
                             kLogName, wal)
          : absl::Substitute("A coordinator has copied it: rename $0 to $1",
                             rescued, kLogName)));
}

// Returns the fragment and version in a file name such as
// fragments/fragment-0003-v00000012.safetensors; nullopt for other names.
std::optional<v1::FragmentHead> HeadInName(absl::string_view file) {
  std::vector<absl::string_view> parts =
      absl::StrSplit(absl::StripSuffix(file, ".safetensors"), '-');
  uint32_t fragment = 0;
  uint64_t version = 0;
  if (parts.size() != 3 || !absl::ConsumePrefix(&parts[2], "v") ||
      !absl::SimpleAtoi(parts[1], &fragment) ||
      !absl::SimpleAtoi(parts[2], &version)) {
    return std::nullopt;
  }
  v1::FragmentHead head;
  head.set_fragment(fragment);
  head.set_version(version);
  return head;
}

// The newest committed version of each fragment.
using Versions = std::map<uint32_t, uint64_t>;

Versions VersionsOf(absl::Span<const CommitRecord> heads) {
  Versions versions;
  for (const CommitRecord& head : heads) {
    versions[head.head.fragment()] = head.head.version();
  }
  return versions;
}

// Checks that the log is not older than the files. After a crash, snapshots are
// of committed versions, other files at most of the next version, and a
// fragment without versions may have its first snapshot.
absl::Status CheckLogIsNewest(const std::string& root,
                              const Versions& committed) {
  return VisitRunFiles(root, [&](const std::string& file) -> absl::Status {
    const std::optional<v1::FragmentHead> found = HeadInName(file);
    if (!found.has_value()) return absl::OkStatus();
    const auto head = committed.find(found->fragment());
    const bool begun = head != committed.end();
    const uint64_t version = begun ? head->second : 0;
    const bool is_snapshot = IsSnapshot(file);
    const uint64_t latest = begun && !is_snapshot ? version + 1 : version;
    if (found->version() <= latest) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::Substitute(
        "$0 has $1, but its $2 $3 of fragment $4: it is older than the files, "
        "or has lost rows. Restore the $2 that belongs to them, or move the "
        "later files away to go back to $5. Nothing was changed",
        root, file, kLogName,
        begun ? absl::StrCat("knows versions up to ", version, " only")
              : "knows no version",
        found->fragment(),
        begun ? absl::StrCat("version ", version) : "the beginning"));
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateDirectory>> StateDirectory::Open(
    const std::string& path, Options options) {
  if (options.create) RETURN_IF_ERROR(CreateDirectory(path));
  RETURN_IF_ERROR(CheckUsable(path));
  ASSIGN_OR_RETURN(FileLock lock, Lock(path));
  if (IsIncomplete(path)) {
    return absl::FailedPreconditionError(
        absl::Substitute("$0 has a copy of another coordinator's run that is "
                         "not complete: start it with --follow, which "
                         "continues the copy, or name another state directory",
                         path));
  }
  if (IsMissingOrEmpty(LogPath(path))) RETURN_IF_ERROR(CheckNoRunIsLost(path));
  ASSIGN_OR_RETURN(std::unique_ptr<CommitLog> log,
                   CommitLog::Open(LogPath(path)));
  const absl::StatusOr<RunRecord> run = log->LoadRun();
  if (absl::IsNotFound(run.status())) {
    RETURN_IF_ERROR(CheckNoRunIsLost(path));
  } else {
    RETURN_IF_ERROR(run.status());
    RETURN_IF_ERROR(log->CheckCommits(run->plan.fragments_size()));
  }
  ASSIGN_OR_RETURN(const std::vector<CommitRecord> heads, log->Heads());
  RETURN_IF_ERROR(CheckLogIsNewest(path, VersionsOf(heads)));
  RETURN_IF_ERROR(VisitRunFiles(path, [&](const std::string& file) {
    return IsTemporary(file) ? RemoveFile(absl::StrCat(path, "/", file))
                             : absl::OkStatus();
  }));
  RETURN_IF_ERROR(RemoveLogFiles(path, [](absl::string_view suffix) {
    return absl::StartsWith(suffix, kForFollower) ||
           absl::StartsWith(suffix, kReceived);
  }));
  ASSIGN_OR_RETURN(FragmentStore fragments,
                   FragmentStore::Create(path, std::move(options.fragments)));
  std::unique_ptr<StateDirectory> state(new StateDirectory(
      path, std::move(lock), std::move(log), std::move(fragments)));
  RETURN_IF_ERROR(state->merges().CreateFolder());
  ASSIGN_OR_RETURN(state->lock_file_,
                   FileIdentity::Of(absl::StrCat(path, "/", kLockName)));
  return state;
}

absl::StatusOr<std::unique_ptr<StateDirectory>> StateDirectory::OpenReadOnly(
    const std::string& path) {
  // This error is clearer than SQLite's if there is nothing to open.
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
  if (std::find(names.begin(), names.end(), kLogName) == names.end()) {
    return absl::NotFoundError(absl::Substitute(
        "$0 is not a state directory: it has no $1", path, kLogName));
  }
  absl::StatusOr<std::unique_ptr<CommitLog>> log =
      CommitLog::OpenReadOnly(LogPath(path));
  // Reading a write-ahead log takes an index beside it, which this process may
  // not make, or for which a full disk has no room.
  const bool may_not_write = (absl::IsNotFound(log.status()) ||
                              absl::IsPermissionDenied(log.status())) &&
                             access(path.c_str(), W_OK) != 0;
  if ((may_not_write || absl::IsResourceExhausted(log.status())) &&
      !IsInUse(path)) {
    log = CommitLog::OpenUnused(LogPath(path));
  }
  RETURN_IF_ERROR(log.status());
  return std::unique_ptr<StateDirectory>(new StateDirectory(
      path, std::nullopt, *std::move(log), FragmentStore::OpenReadOnly(path)));
}

absl::Status StateDirectory::RemoveIncompleteCopy(const std::string& path) {
  if (!IsIncomplete(path)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const FileLock lock, Lock(path));
  RETURN_IF_ERROR(VisitRunFiles(path, [&](const std::string& file) {
    return RemoveFile(absl::StrCat(path, "/", file));
  }));
  RETURN_IF_ERROR(RemoveLogFiles(
      path, [](absl::string_view suffix) { return !suffix.empty(); }));
  // An empty log marks the directory as a run's, whatever else is there: the
  // folder of an authority, a file with the port.
  RETURN_IF_ERROR(WriteFileAtomically(LogPath(path), {}));
  RETURN_IF_ERROR(RemoveFile(IncompletePath(path)));
  return SyncDirectory(path);
}

absl::Status StateDirectory::BeginCopy() const {
  return WriteFileAtomically(
      IncompletePath(path_),
      {absl::string_view("This copy of a run is being made.\n")});
}

absl::Status StateDirectory::EndCopy(const std::string& path,
                                     const std::string& log) {
  for (const char* suffix : {"-wal", "-shm"}) {
    RETURN_IF_ERROR(RemoveFileIfThere(absl::StrCat(LogPath(path), suffix)));
  }
  std::error_code error;
  std::filesystem::rename(log, LogPath(path), error);
  if (error) return ErrnoStatus(error.value(), "rename", log);
  RETURN_IF_ERROR(SyncDirectory(path));
  RETURN_IF_ERROR(RemoveFile(IncompletePath(path)));
  return SyncDirectory(path);
}

std::string StateDirectory::ReceivedLog() const {
  return absl::StrCat(LogPath(path_), kReceived);
}

absl::Status StateDirectory::RemoveFragment(uint32_t fragment) const {
  return VisitRunFiles(path_, [&](const std::string& file) {
    const std::optional<v1::FragmentHead> found = HeadInName(file);
    return found.has_value() && found->fragment() == fragment
               ? RemoveFile(absl::StrCat(path_, "/", file))
               : absl::OkStatus();
  });
}

absl::Status StateDirectory::CheckInPlace() const {
  absl::Status status = log_->CheckInPlace();
  if (!status.ok()) {
    return absl::FailedPreconditionError(
        absl::Substitute("$0. Put it back if it was moved. Otherwise stop the "
                         "coordinator, rename $1$2, which has a copy of all "
                         "that was committed, to $1, and start it again",
                         std::string(status.message()), kLogName, kRescued));
  }
  if (lock_file_.has_value()) status = lock_file_->Check();
  if (status.ok()) return status;
  return absl::FailedPreconditionError(
      absl::StrCat(std::string(status.message()),
                   ", so another coordinator could open the run. Put it back "
                   "if it was moved. Otherwise make sure that no other "
                   "coordinator uses the directory, and restart this one"));
}

absl::StatusOr<bool> StateDirectory::RescueLog() const {
  if (log_->CheckInPlace().ok()) return false;
  RETURN_IF_ERROR(log_->CopyTo(absl::StrCat(LogPath(path_), kRescued)));
  return true;
}

absl::StatusOr<std::string> StateDirectory::CopyLogFor(
    absl::string_view follower) const {
  absl::MutexLock lock(&copying_);
  RETURN_IF_ERROR(CheckRoomForLog(path_));
  ASSIGN_OR_RETURN(const std::unique_ptr<CommitLog> log,
                   CommitLog::OpenReadOnly(LogPath(path_)));
  std::string copy = absl::StrCat(LogPath(path_), kForFollower, follower);
  const absl::Status copied = log->CopyTo(copy);
  if (!copied.ok()) {
    // A partial copy takes space, perhaps the last.
    RemoveFileIfThere(copy).IgnoreError();
    return copied;
  }
  return copy;
}

absl::StatusOr<v1::GetHistoryResponse> StateDirectory::ReadHistory(
    const v1::GetHistoryRequest& request) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<CommitLog> log,
                   CommitLog::OpenReadOnly(LogPath(path_)));
  return log->HistoryAfter(request);
}

std::string StateDirectory::QuarantineFile(uint64_t id) const {
  return absl::StrCat(path_, "/quarantine/", id);
}

absl::Status StateDirectory::WriteQuarantined(uint64_t id,
                                              absl::string_view encoded) const {
  const std::string file = QuarantineFile(id);
  RETURN_IF_ERROR(CreateDirectory(ParentDirectory(file)));
  return WriteFileAtomically(file, {encoded});
}

absl::StatusOr<std::string> StateDirectory::ReadQuarantined(uint64_t id) const {
  return ReadFile(QuarantineFile(id));
}

absl::Status StateDirectory::RemoveQuarantined(uint64_t id) const {
  return RemoveFileIfThere(QuarantineFile(id));
}

absl::StatusOr<std::vector<std::string>> StateDirectory::RemoveUnreferenced(
    absl::string_view run_id, uint64_t versions_kept, uint64_t updates_kept) {
  CHECK_GE(versions_kept, 1) << "the newest snapshot must stay";
  std::set<std::string> kept;
  ASSIGN_OR_RETURN(const std::vector<CommitRecord> heads, log_->Heads());
  const Versions committed = VersionsOf(heads);
  Versions durable;
  for (const auto& [fragment, version] : committed) {
    ASSIGN_OR_RETURN(const std::vector<SnapshotRecord> snapshots,
                     log_->Snapshots(fragment, versions_kept));
    for (const SnapshotRecord& snapshot : snapshots) kept.insert(snapshot.file);
    if (!snapshots.empty()) durable[fragment] = snapshots[0].head.version();
    ASSIGN_OR_RETURN(const std::vector<CommitRecord> history,
                     log_->History(fragment, updates_kept));
    for (const CommitRecord& commit : history) kept.insert(commit.update_file);
    RETURN_IF_ERROR(
        merges_.RemoveThrough(fragment, LastUnneededRecord(snapshots)));
  }
  return fragments_.RemoveIf(run_id, [&](const std::string& file) {
    const std::optional<v1::FragmentHead> found = HeadInName(file);
    if (!found.has_value() || kept.count(file) != 0) return false;
    // A snapshot is superseded by a newer one, an update by its own commit.
    const Versions& newest = IsSnapshot(file) ? durable : committed;
    const auto known = newest.find(found->fragment());
    return known != newest.end() && found->version() <= known->second;
  });
}

absl::Status StateDirectory::RemoveOldSnapshot(uint32_t fragment,
                                               uint64_t versions_kept) {
  ASSIGN_OR_RETURN(std::vector<SnapshotRecord> snapshots,
                   log_->Snapshots(fragment, versions_kept + 1));
  if (snapshots.size() > versions_kept) {
    RETURN_IF_ERROR(fragments_.Remove(snapshots.back().file));
    snapshots.pop_back();
  }
  return merges_.RemoveThrough(fragment, LastUnneededRecord(snapshots));
}

}  // namespace causeway
