// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/island_checkpoint.h"

#include <algorithm>
#include <array>
#include <functional>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "common/tensors/safetensors.h"
#include "glog/logging.h"

namespace causeway {
namespace {

constexpr char kPosition[] = "position";
constexpr char kPositionDigest[] = "position_digest";

// The tensors of an IslandState, by their names in the file.
template <typename State>
auto TensorsOf(State& state) {
  using Tensor = std::pair<const char*, decltype(&state.anchors)>;
  return std::array<Tensor, 4>{
      Tensor{"parameters", &state.trainer.parameters},
      {"anchors", &state.anchors},
      {"first_moment", &state.trainer.optimizer.first_moment},
      {"second_moment", &state.trainer.optimizer.second_moment}};
}

std::string DigestKey(absl::string_view tensor) {
  return absl::StrCat(tensor, "_digest");
}

absl::Status ReadPosition(const Safetensors& file, IslandState& state) {
  ASSIGN_OR_RETURN(const std::string hex, file.Metadata(kPosition));
  ASSIGN_OR_RETURN(const std::string digest, file.Metadata(kPositionDigest));
  const std::string bytes = absl::HexStringToBytes(hex);
  if (DigestToHex(Digest128(bytes)) != digest ||
      !state.position.ParseFromString(bytes)) {
    return absl::DataLossError("its position is damaged");
  }
  return absl::OkStatus();
}

absl::Status ReadValues(const Safetensors& file, IslandState& state) {
  for (auto& [name, values] : TensorsOf(state)) {
    ASSIGN_OR_RETURN(const absl::Span<const float> stored, file.Floats(name));
    ASSIGN_OR_RETURN(const std::string want, file.Metadata(DigestKey(name)));
    if (DigestToHex(Digest128(stored)) != want) {
      return absl::DataLossError(absl::StrCat(name, " is damaged"));
    }
    values->assign(stored.begin(), stored.end());
  }
  state.trainer.optimizer.updates = state.position.optimizer_updates();
  state.trainer.next_micro_batch = state.position.next_micro_batch();
  state.trainer.micro_batch_size = state.position.micro_batch_size();
  return absl::OkStatus();
}

absl::Status WriteState(const std::string& path, const IslandState& state) {
  v1::IslandCheckpoint position = state.position;
  position.set_optimizer_updates(state.trainer.optimizer.updates);
  position.set_next_micro_batch(state.trainer.next_micro_batch);
  position.set_micro_batch_size(state.trainer.micro_batch_size);
  const std::string bytes = position.SerializeAsString();
  Safetensors file{
      .metadata = {{kPosition, absl::BytesToHexString(bytes)},
                   {kPositionDigest, DigestToHex(Digest128(bytes))}}};
  for (const auto& [name, values] : TensorsOf(state)) {
    file.tensors.push_back(
        FloatTensor(name, {static_cast<int64_t>(values->size())}, *values));
    file.metadata[DigestKey(name)] =
        DigestToHex(Digest128(absl::MakeConstSpan(*values)));
  }
  return WriteSafetensors(path, std::move(file));
}

absl::Status CannotUse(const std::string& path, const absl::Status& why) {
  return absl::DataLossError(
      absl::StrCat("the island's checkpoint ", path,
                   " cannot be used: ", std::string(why.message()),
                   "; remove it to start from the coordinator's parameters"));
}

// Returns the state in the file, if there is one; its vectors are empty without
// `values`.
absl::StatusOr<std::optional<IslandState>> ReadState(const std::string& path,
                                                     bool values) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  absl::Status status = file.status();
  IslandState state;
  if (status.ok()) status = ReadPosition(file->contents(), state);
  if (status.ok() && values) status = ReadValues(file->contents(), state);
  if (!status.ok()) return CannotUse(path, status);
  state.saved_by = state.position.instance_id();
  return state;
}

absl::StatusOr<std::optional<uint64_t>> StepOf(
    const absl::StatusOr<std::optional<IslandState>>& state) {
  RETURN_IF_ERROR(state.status());
  if (!state->has_value()) return std::nullopt;
  return (*state)->position.run_step();
}

}  // namespace

absl::Status RemoveUnfinishedCheckpoints(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListDirectory(directory));
  for (const std::string& name : names) {
    if (absl::StartsWith(name,
                         absl::StrCat(kIslandCheckpointFile,
                                      AtomicFileWriter::kTemporaryMarker))) {
      RETURN_IF_ERROR(RemoveFile(absl::StrCat(directory, "/", name)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<IslandCheckpointStore>>
IslandCheckpointStore::Open(const std::string& directory,
                            absl::Duration patience) {
  RETURN_IF_ERROR(CreateDirectory(directory));
  ASSIGN_OR_RETURN(FileLock lock,
                   FileLock::Acquire(absl::StrCat(directory, "/lock")));
  RETURN_IF_ERROR(RemoveUnfinishedCheckpoints(directory));
  std::unique_ptr<IslandCheckpointStore> store(
      new IslandCheckpointStore(directory, std::move(lock), patience));
  // Must not replace foreign files that happen to have our names.
  RETURN_IF_ERROR(ReadProcess(directory).status());
  return store;
}

IslandCheckpointStore::~IslandCheckpointStore() {
  const absl::Status written = AwaitWritten();
  LOG_IF(ERROR, !written.ok())
      << written.message() << "; the island ends without it";
  if (!written.ok()) return;
  absl::MutexLock lock(&writing_->mu);
  writing_->lock.reset();
}

absl::Status IslandCheckpointStore::AwaitWritten() const {
  absl::MutexLock lock(&writing_->mu);
  const absl::Duration limit = writing_->least == absl::InfiniteDuration()
                                   ? patience_
                                   : std::max(patience_, 3 * writing_->least);
  if (writing_->mu.AwaitWithTimeout(
          absl::Condition(writing_.get(), &Writing::IsDone), limit)) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat(
      "the island's checkpoint of step ", *writing_->step, " is not in ",
      directory_, ", because the disk has not written it for ",
      absl::FormatDuration(limit), "; the one before it, if any, stays"));
}

absl::StatusOr<std::optional<uint64_t>> IslandCheckpointStore::SavedStep()
    const {
  return StepOf(Read(directory_, /*values=*/false));
}

absl::StatusOr<std::optional<IslandState>> IslandCheckpointStore::Read(
    const std::string& directory, bool values) {
  ASSIGN_OR_RETURN(std::optional<IslandState> state,
                   ReadState(FilePath(directory), values));
  if (!state.has_value()) return std::nullopt;
  const absl::StatusOr<std::optional<uint64_t>> last = ReadProcess(directory);
  if (!last.ok()) return CannotUse(FilePath(directory), last.status());
  if (last->has_value()) state->position.set_instance_id(**last);
  return state;
}

absl::StatusOr<std::optional<IslandState>> LoadNewest(
    const IslandCheckpointStore* store, const IslandCheckpointStore* recent,
    const std::string& copy) {
  std::optional<uint64_t> step;
  if (store != nullptr) {
    ASSIGN_OR_RETURN(step, store->SavedStep());
  }
  const std::string copied =
      copy.empty() ? "" : absl::StrCat(copy, "/", kIslandCheckpointFile);
  struct InMemory {
    std::optional<uint64_t> step;
    std::function<absl::StatusOr<std::optional<IslandState>>()> load;
  };
  std::vector<InMemory> in_memory;
  const auto add = [&](const absl::StatusOr<std::optional<uint64_t>>& saved,
                       auto load) {
    LOG_IF(WARNING, !saved.ok()) << saved.status().message();
    // An absent `step` is less than any other.
    if (saved.ok() && saved->has_value() && *saved >= step) {
      in_memory.push_back({*saved, std::move(load)});
    }
  };
  if (recent != nullptr) {
    add(recent->SavedStep(), [&] { return recent->Load(); });
  }
  if (!copied.empty()) {
    add(StepOf(ReadState(copied, /*values=*/false)),
        [&]() -> absl::StatusOr<std::optional<IslandState>> {
          ASSIGN_OR_RETURN(std::optional<IslandState> state,
                           ReadState(copied, /*values=*/true));
          if (state.has_value()) state->position.set_instance_id(0);
          return state;
        });
  }
  std::stable_sort(
      in_memory.begin(), in_memory.end(),
      [](const InMemory& a, const InMemory& b) { return a.step > b.step; });
  for (const InMemory& newest : in_memory) {
    absl::StatusOr<std::optional<IslandState>> state = newest.load();
    if (state.ok()) return state;
    LOG(WARNING) << state.status().message();
  }
  if (store == nullptr) return std::nullopt;
  return store->Load();
}

absl::StatusOr<std::optional<uint64_t>> IslandCheckpointStore::ReadProcess(
    const std::string& directory) {
  const absl::StatusOr<std::string> text = ReadFile(ProcessPath(directory));
  if (absl::IsNotFound(text.status())) return std::nullopt;
  RETURN_IF_ERROR(text.status());
  uint64_t last = 0;
  if (!absl::SimpleAtoi(*text, &last)) {
    return absl::DataLossError(
        absl::StrCat(ProcessPath(directory),
                     " is damaged, or not an island's: name another "
                     "checkpoint directory, or remove it"));
  }
  return last;
}

absl::Status IslandCheckpointStore::SetProcess(uint64_t instance_id) const {
  return WriteFileAtomically(ProcessPath(directory_),
                             {absl::StrCat(instance_id)});
}

bool IslandCheckpointStore::busy() const {
  absl::MutexLock lock(&writing_->mu);
  return writing_->step.has_value();
}

absl::Duration IslandCheckpointStore::least_write() const {
  absl::MutexLock lock(&writing_->mu);
  return writing_->least;
}

void IslandCheckpointStore::SaveLater(IslandState state, Clock now) {
  {
    absl::MutexLock lock(&writing_->mu,
                         absl::Condition(writing_.get(), &Writing::IsDone));
    writing_->step = state.position.run_step();
  }
  std::thread([writing = writing_, path = FilePath(directory_),
               state = std::move(state), now = std::move(now)] {
    const absl::Time begin = now();
    const absl::Status saved = WriteState(path, state);
    const absl::Duration taken = now() - begin;
    if (!saved.ok()) {
      // A full disk stays full for many checkpoints.
      LOG_EVERY_T(WARNING, 10)
          << "cannot save the island's checkpoint: " << saved.message();
    }
    VLOG(1) << "saved the island's checkpoint of step "
            << state.position.run_step() << " in " << taken;
    absl::MutexLock lock(&writing->mu);
    writing->least = std::min(writing->least, taken);
    writing->step.reset();
  }).detach();
}

absl::Status IslandCheckpointStore::Remove() {
  RETURN_IF_ERROR(AwaitWritten());
  for (const std::string& path :
       {FilePath(directory_), ProcessPath(directory_)}) {
    RETURN_IF_ERROR(RemoveFileIfThere(path));
  }
  return SyncDirectory(directory_);
}

absl::Status IslandCheckpointStore::Save(const IslandState& state) const {
  RETURN_IF_ERROR(AwaitWritten());
  return WriteState(FilePath(directory_), state);
}

}  // namespace causeway
