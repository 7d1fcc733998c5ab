// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cli/commands.h"
#include "cli/hugging_face.h"
#include "cli/human.h"
#include "cli/trained_model.h"
#include "common/checkpoint/tensor_files_writer.h"
#include "common/foreign/file.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "common/tensors/tensors_layout.h"
#include "server/storage/commit_log.h"

namespace causeway {
namespace {

constexpr char kConfigFile[] = "config.json";
constexpr char kModelStem[] = "model";
// PEFT puts this before the names of an adapter's files.
constexpr char kAdapterPrefix[] = "adapter_";

// The files of a Hugging Face tokenizer.
constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json",      "tokenizer_config.json",
    "tokenizer.model",     "special_tokens_map.json",
    "added_tokens.json",   "vocab.json",
    "merges.txt",          "generation_config.json",
    "chat_template.jinja", "tekken.json",
};

// A value of --dtype in the terms of safetensors and of config.json.
struct Dtype {
  const char* flag;
  const char* safetensors;
  const char* torch;
};
constexpr Dtype kDtypes[] = {{"fp32", "F32", "float32"},
                             {"bf16", "BF16", "bfloat16"},
                             {"fp16", "F16", "float16"}};

struct ExportFlags {
  std::string out;
  std::string dtype = kDtypes[0].flag;
  std::string like;
  uint64_t shard_bytes = TensorFilesOptions().most_bytes;
  bool force = false;
};

absl::StatusOr<Dtype> FindDtype(absl::string_view flag) {
  for (const Dtype& dtype : kDtypes) {
    if (flag == dtype.flag) return dtype;
  }
  return UsageError(
      absl::StrCat("--dtype is ", flag, "; allowed: fp32, bf16, fp16"));
}

// Makes the directory if needed. Returns the names of an earlier export's files
// with `prefix`, or ALREADY_EXISTS if there are any without `force`.
absl::StatusOr<std::vector<std::string>> PrepareDirectory(
    const std::string& path, absl::string_view prefix, bool force) {
  if (absl::EndsWith(path, ".safetensors")) {
    return UsageError(absl::StrCat(
        "--out is ", path,
        "; give a directory: Hugging Face's libraries load one that has "
        "model.safetensors and config.json"));
  }
  RETURN_IF_ERROR(CreateDirectory(path));
  std::vector<std::string> earlier;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string file = entry.path().filename();
    absl::string_view name = file;
    if (!absl::ConsumePrefix(&name, prefix)) continue;
    const bool is_export = name == kConfigFile ||
                           (absl::StartsWith(name, kModelStem) &&
                            (absl::EndsWith(name, ".safetensors") ||
                             absl::EndsWith(name, ".safetensors.index.json")));
    if (!is_export) continue;
    if (!force) {
      return absl::AlreadyExistsError(
          absl::StrCat(entry.path().string(),
                       " exists; --force replaces the model that is there, "
                       "--out names another place"));
    }
    earlier.push_back(file);
  }
  if (!error) return earlier;
  return absl::UnavailableError(
      absl::StrCat("cannot list ", path, ": ", error.message()));
}

// Returns the run's tensors in the order of its layout.
absl::StatusOr<std::vector<NamedTensor>> TensorsOf(const StoredModel& model) {
  const RunRecord& run = model.run;
  std::map<absl::string_view, absl::Span<const float>> values;
  for (const v1::Fragment& fragment : run.plan.fragments()) {
    for (const v1::TensorPlacement& tensor : fragment.tensors()) {
      values[tensor.name()] =
          model.fragments[fragment.id()].contents().theta.subspan(
              tensor.offset());
    }
  }
  std::vector<NamedTensor> tensors;
  ASSIGN_OR_RETURN(ModelLayout layout, RunLayout(run.config, run.plan));
  for (TensorSpec& spec : layout.tensors) {
    const absl::Span<const float> from = values[spec.name];
    tensors.push_back({.name = std::move(spec.name),
                       .shape = std::move(spec.shape),
                       .values = from.first(static_cast<size_t>(spec.size))});
  }
  return tensors;
}

// Holds what the export takes from the model of --like.
struct Original {
  // The prefix of config.json: kAdapterPrefix, or nothing.
  std::string prefix;
  std::string config;
  // The tokenizer's files, by name.
  std::map<std::string, MappedFile> files;
};

// Opens every file, so that nothing is written if one is unreadable. The
// original of a run of tensors may be an adapter.
absl::StatusOr<Original> OpenOriginal(const std::string& directory,
                                      bool is_tensors) {
  Original original;
  if (directory.empty()) return original;
  std::error_code error;
  if (is_tensors &&
      std::filesystem::exists(
          absl::StrCat(directory, "/", kAdapterPrefix, kConfigFile), error)) {
    original.prefix = kAdapterPrefix;
  }
  const std::string config =
      absl::StrCat(directory, "/", original.prefix, kConfigFile);
  ASSIGN_OR_RETURN(original.config, ReadForeignFile(config));
  const absl::Status readable = ParseForeignJson(original.config).status();
  if (!readable.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        config, " cannot be read: ", std::string(readable.message())));
  }
  for (const char* name : kTokenizerFiles) {
    absl::StatusOr<MappedFile> file =
        OpenForeignFile(absl::StrCat(directory, "/", name));
    if (absl::IsNotFound(file.status())) continue;
    RETURN_IF_ERROR(file.status());
    original.files.emplace(name, *std::move(file));
  }
  return original;
}

absl::Status RunExport(const ExportFlags& flags,
                       const ProgressEnvironment& environment,
                       const Invocation& call) {
  ASSIGN_OR_RETURN(const Dtype dtype, FindDtype(flags.dtype));
  ASSIGN_OR_RETURN(const StoredModel model, OpenStoredModel(call.arguments[0]));
  const RunRecord& run = model.run;
  ASSIGN_OR_RETURN(const Original original,
                   OpenOriginal(flags.like, run.config.has_tensors()));
  const bool is_adapter = !original.prefix.empty();
  // Only the original has the architecture of a run of tensors.
  std::string config = original.config;
  if (!run.config.has_tensors()) {
    ASSIGN_OR_RETURN(config,
                     WriteHuggingFaceConfig(run.config, dtype.torch, config));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> earlier,
                   PrepareDirectory(flags.out, original.prefix, flags.force));
  // "format" tells the Hugging Face libraries which framework named the
  // tensors.
  ASSIGN_OR_RETURN(const std::vector<NamedTensor> tensors, TensorsOf(model));
  uint64_t size = 0;
  for (const NamedTensor& tensor : tensors) size += tensor.values.size();
  std::vector<std::string> files;
  {
    Progress progress("parameters", size, environment, call.err);
    ASSIGN_OR_RETURN(
        files, WriteTensorFiles(
                   flags.out, tensors,
                   {.stem = absl::StrCat(original.prefix, kModelStem),
                    .dtype = dtype.safetensors,
                    // PEFT loads one file only.
                    .most_bytes = is_adapter ? UINT64_MAX : flags.shard_bytes,
                    .progress = [&](uint64_t values) { progress.Add(values); },
                    .metadata = {{"format", "pt"},
                                 {"causeway.run_id", run.run_id},
                                 {"causeway.versions",
                                  absl::StrJoin(model.Versions(), ",")}}}));
  }
  if (!config.empty()) {
    files.push_back(absl::StrCat(original.prefix, kConfigFile));
    RETURN_IF_ERROR(WriteFileAtomically(
        absl::StrCat(flags.out, "/", files.back()), {config}));
  }
  for (const std::string& name : earlier) {
    if (absl::c_linear_search(files, name)) continue;
    RETURN_IF_ERROR(RemoveFileIfThere(absl::StrCat(flags.out, "/", name)));
  }
  call.out << DescribeVersions(run.run_id, model.Versions()) << ": "
           << HumanCount(size) << " parameters in " << tensors.size()
           << " tensors written to " << flags.out << ": "
           << absl::StrJoin(files, ", ") << "\n";
  if (config.empty()) {
    call.out << "no " << kConfigFile
             << ": the run is defined by its tensors, and only --like HF_DIR "
                "says which model they belong to\n";
  }
  if (!run.config.tensors().exclude().empty()) {
    call.out << "not written: tensors that the run excludes from its exchange ("
             << absl::StrJoin(run.config.tensors().exclude(), ", ") << ")\n";
  }
  if (flags.like.empty()) return absl::OkStatus();
  for (const auto& [name, file] : original.files) {
    RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(flags.out, "/", name),
                                        {file.bytes()}));
  }
  call.out << original.files.size()
           << (original.files.size() == 1 ? " file" : " files")
           << " copied from " << flags.like << "\n";
  return absl::OkStatus();
}

}  // namespace

Command ExportCommand(ProgressEnvironment progress) {
  const auto flags = std::make_shared<ExportFlags>();
  Command command{
      .name = "export",
      .arguments = "STATE_DIR",
      .summary = "Writes a run's model for the Hugging Face libraries.",
      .details =
          "STATE_DIR is the coordinator's state directory; the coordinator may "
          "be running. The command writes the merged model under the names of "
          "the Hugging Face libraries, and a config.json for LlamaForCausalLM, "
          "Qwen2ForCausalLM, Qwen3ForCausalLM, SmolLM3ForCausalLM or "
          "Olmo2ForCausalLM. A run that is defined by its tensors is written "
          "under their names, without those that it excludes; its config.json "
          "is that of --like. Where --like has an adapter_config.json, as the "
          "folder that causeway.create_run wrote for a model of PEFT, the run "
          "is written as an adapter that PEFT loads."};
  FlagSet& set = command.flags;
  set.AddRequired("out", "DIR", "The directory to write; made if missing.",
                  &flags->out);
  set.Add(
      "dtype", "TYPE",
      "The type of the tensors: fp32, bf16 or fp16. A model that was imported "
      "in bf16 or fp16, and not trained, is written unchanged in that type.",
      &flags->dtype);
  set.Add("like", "HF_DIR",
          "The directory that the run was imported from: copies its "
          "tokenizer, and takes special tokens from its config.json, or all "
          "of it if the run is defined by its tensors; or the directory of "
          "an adapter.",
          &flags->like);
  set.Add("shard_bytes", "N",
          "A model of more bytes is written as several files with an index.",
          &flags->shard_bytes);
  set.Add("force", "", "Replaces a model that is there.", &flags->force);
  command.run = [=](const Invocation& call) {
    return RunExport(*flags, progress, call);
  };
  return command;
}

}  // namespace causeway
