// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/config/run_config.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/config/config_errors.h"
#include "common/foreign/file.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "common/tensors/tensors_layout.h"
#include "glog/logging.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"

namespace causeway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

// The values that are allowed for one field: numbers from `low` to `high`.
struct Range {
  const char* path;
  double low;
  double high;
  // Is true if the range excludes `low` itself.
  bool is_open = false;
};

constexpr uint32_t kMostLayers = 1024;

constexpr Range kModelRanges[] = {
    {"model.layers", 1, kMostLayers},
    {"model.hidden_size", 2, 1 << 17},
    {"model.intermediate_size", 1, 1 << 19},
    {"model.sequence_length", 2, 1 << 20},
    {"model.heads", 1, 1024},
    {"model.vocab_size", 2, 1 << 20},
    {"model.rope_theta", 1, 1e12, true},
    {"model.norm_epsilon", 0, 0.1, true},
    {"model.init_stddev", 0, 10, true},
    {"model.no_rope_interval", 0, kMostLayers},
};

constexpr Range kRanges[] = {
    {"data.validation_fraction", 0, 0.5},
    {"data.shards", 1, 4096},
    {"training.total_steps", 1, 1e12},
    {"training.batch_size", 1, 1 << 20},
    {"training.learning_rate", 0, 10, true},
    {"training.min_learning_rate_ratio", 0, 1},
    {"training.beta1", 0, 0.999999},
    {"training.beta2", 0, 0.999999},
    {"training.epsilon", 0, 1, true},
    {"training.weight_decay", 0, 10},
    {"training.gradient_clip", 0, 1e9},
    {"training.muon.momentum", 0, 0.9999},
    {"training.muon.learning_rate_factor", 0, 1e4, true},
    {"outer_optimizer.learning_rate", 0, 10, true},
    {"outer_optimizer.momentum", 0, 0.9999},
    {"outer_optimizer.momentum_delay", 1, 1024},
    {"outer_optimizer.penalty_power", 0, 8},
    {"synchronization.inner_steps_per_round", 1, 1'000'000},
    {"synchronization.error_feedback", 0, 1},
    {"synchronization.ecq_distortion", 1e-4, 0.9},
    {"membership.max_islands", 1, 4096},
    {"membership.grace_seconds", 0, 1e6},
    {"membership.lease_seconds", 0.1, 1e6},
    {"membership.grace_overlap_share", 0, 1},
    {"membership.drop_contributions", 0, 1},
    {"storage.update_history", 2, 1 << 20},
    {"storage.versions_kept", 2, 1 << 20},
    {"storage.snapshot_log_ratio", 0, 1000},
    {"storage.sync_replicas", 0, 8},
    {"storage.replay_seconds", 1, 86'400},
};

// Prints whole numbers with all their digits.
std::string InFull(double bound) {
  return bound == std::floor(bound) ? absl::StrFormat("%.0f", bound)
                                    : absl::StrCat(bound);
}

// Checks values, and finds the line of the field that holds one. A field's path
// is, for instance, "model.layers".
class Checker {
 public:
  Checker(const v1::RunConfig& config, const TextFormat::ParseInfoTree& tree,
          ConfigErrors* errors)
      : config_(config), tree_(tree), errors_(errors) {}

  // Reports the field's value unless `holds`; `allowed` says which are allowed.
  template <typename... Allowed>
  void Require(bool holds, const std::string& path, const Allowed&... allowed) {
    if (holds) return;
    const Place place = Find(path);
    std::string value;
    TextFormat::PrintFieldValueToString(*place.message, place.field, -1,
                                        &value);
    errors_->AddError(
        place.at.line, place.at.column,
        absl::StrCat(path, " is ", value, "; allowed: ", allowed...));
  }

  void InRange(const Range& range) {
    const double value = Number(Find(range.path));
    const bool above = range.is_open ? value > range.low : value >= range.low;
    Require(std::isfinite(value) && above && value <= range.high, range.path,
            range.is_open ? "above " : "", InFull(range.low),
            range.is_open ? ", up to " : " to ", InFull(range.high));
  }

  // Requires a value for every enum in `message`, whose path is `prefix`.
  void Enums(const Descriptor& message, const std::string& prefix) {
    for (int i = 0; i < message.field_count(); ++i) {
      const FieldDescriptor& field = *message.field(i);
      const std::string path = absl::StrCat(prefix, field.name());
      if (field.message_type() != nullptr) {
        Enums(*field.message_type(), absl::StrCat(path, "."));
      } else if (field.enum_type() != nullptr) {
        Require(Number(Find(path)) != 0, path, EnumNames(*field.enum_type()));
      }
    }
  }

 private:
  struct Place {
    const Message* message = nullptr;
    const FieldDescriptor* field = nullptr;
    // The location in the file of the field or the nearest message around it.
    TextFormat::ParseLocation at;
  };

  Place Find(const std::string& path) const {
    Place place{.message = &config_};
    const TextFormat::ParseInfoTree* tree = &tree_;
    for (const absl::string_view name : absl::StrSplit(path, '.')) {
      if (place.field != nullptr) {
        if (tree != nullptr) tree = tree->GetTreeForNested(place.field, -1);
        place.message = &place.message->GetReflection()->GetMessage(
            *place.message, place.field);
      }
      place.field =
          place.message->GetDescriptor()->FindFieldByName(std::string(name));
      CHECK(place.field != nullptr) << path;
      if (tree == nullptr) continue;
      const TextFormat::ParseLocation here = tree->GetLocation(place.field, -1);
      if (here.line >= 0) place.at = here;
    }
    return place;
  }

  static double Number(const Place& place) {
    const Message& message = *place.message;
    const auto& reflection = *message.GetReflection();
    switch (place.field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection.GetUInt32(message, place.field);
      case FieldDescriptor::CPPTYPE_UINT64:
        return static_cast<double>(reflection.GetUInt64(message, place.field));
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection.GetEnumValue(message, place.field);
      default:
        return reflection.GetDouble(message, place.field);
    }
  }

  const v1::RunConfig& config_;
  const TextFormat::ParseInfoTree& tree_;
  ConfigErrors* const errors_;
};

void CheckModel(const v1::RunConfig& config, Checker& check) {
  const v1::ModelConfig& model = config.model();
  for (const Range& range : kModelRanges) check.InRange(range);
  check.Require(config.data().tokenizer() != v1::DataConfig::BYTES ||
                    model.vocab_size() >= kByteVocabulary,
                "model.vocab_size", "for the byte tokenizer at least ",
                kByteVocabulary, " (256 bytes, begin and end of text)");
  check.Require(!config.data().has_document_end() ||
                    config.data().document_end() < model.vocab_size(),
                "data.document_end",
                "less than model.vocab_size = ", model.vocab_size());
  if (model.has_rope_scaling()) {
    check.InRange({"model.rope_scaling.factor", 1, 1e6});
    check.InRange({"model.rope_scaling.low_frequency_factor", 0, 1e6, true});
    check.InRange({"model.rope_scaling.high_frequency_factor",
                   model.rope_scaling().low_frequency_factor(), 1e7, true});
    check.InRange({"model.rope_scaling.original_length", 1, 1 << 24});
  }
  check.Require(model.qk_norm() || !model.qk_norm_across_heads(),
                "model.qk_norm_across_heads", "false without model.qk_norm");
  if (model.heads() == 0) return;
  if (model.head_dim() == 0) {
    const uint64_t pairs = uint64_t{2} * model.heads();
    check.Require(model.hidden_size() % pairs == 0, "model.hidden_size",
                  "multiples of 2 * heads = ", pairs,
                  " (heads of even width, for rotary pairs), or any with "
                  "head_dim");
  } else {
    check.Require(model.head_dim() % 2 == 0 && model.head_dim() <= 1024,
                  "model.head_dim", "even numbers up to 1024");
  }
  check.Require(model.heads() % std::max(1u, model.kv_heads()) == 0,
                "model.kv_heads", "divisors of heads = ", model.heads());
}

// Checks the list of tensors, if there is one; a checkpoint's are checked when
// it is read.
void CheckTensors(const v1::RunConfig& config, Checker& check,
                  ConfigErrors& errors) {
  const v1::TensorsConfig& tensors = config.tensors();
  check.InRange({"tensors.sequence_length", 1, 1 << 20});
  if (tensors.tensor().empty()) return;
  for (const v1::TensorsConfig::Tensor& tensor : tensors.tensor()) {
    if (!tensor.shape().empty()) continue;
    errors.AddError(
        -1, -1,
        absl::StrCat("tensor \"", Printable(tensor.name()),
                     "\" has no shape; a tensor of one value has the shape 1"));
    return;
  }
  const absl::Status status =
      MakeTensorsLayout(tensors, ListedTensors(tensors)).status();
  if (!status.ok()) errors.AddError(-1, -1, std::string(status.message()));
}

void CheckSynchronization(const v1::RunConfig& config, Checker& check) {
  const v1::SynchronizationConfig& sync = config.synchronization();
  const uint64_t round = sync.inner_steps_per_round();
  const uint64_t total = config.training().total_steps();
  check.Require(total == 0 || round <= total,
                "synchronization.inner_steps_per_round",
                "up to training.total_steps = ", total);
  // The blocks of a run of tensors are known only when its plan is made.
  const uint32_t layers =
      config.has_tensors() ? kMostLayers : config.model().layers();
  const uint32_t most = layers + 1;
  check.Require(sync.fragments() >= 1 && sync.fragments() <= most,
                "synchronization.fragments", "1 to layers + 1 = ", most);
  check.Require(WaitsForUpdates(sync) || sync.fragments() <= round ||
                    sync.fragments() > most,
                "synchronization.fragments",
                "up to inner_steps_per_round = ", round,
                ", so that each fragment has a step of its own");
  const uint64_t overlap = sync.overlap_steps();
  check.Require(overlap < std::max<uint64_t>(1, round),
                "synchronization.overlap_steps",
                "less than inner_steps_per_round = ", round);
  check.Require(overlap >= round || sync.max_overlap_steps() == 0 ||
                    overlap + sync.max_overlap_steps() < round,
                "synchronization.max_overlap_steps",
                "overlap_steps + max_overlap_steps less than "
                "inner_steps_per_round = ",
                round);
  check.Require(sync.block_size() == 64 || sync.block_size() == 128 ||
                    sync.block_size() == 256,
                "synchronization.block_size", "64, 128, 256");
  if (sync.ecq_bits() != 0) {
    check.InRange({"synchronization.ecq_bits", 0.5, 8});
  }
  const double floor = sync.uplink_bits_floor();
  check.Require(floor == 0 || (sync.uplink_format() == v1::ECQ && overlap > 0 &&
                               floor >= 0.5 && floor <= sync.ecq_bits()),
                "synchronization.uplink_bits_floor",
                "0, or 0.5 to ecq_bits = ", sync.ecq_bits(),
                ", with uplink_format ECQ and overlap_steps of 1 or more");
}

// Checks everything; ranges that depend on other fields come last.
void Check(const v1::RunConfig& config, Checker& check, ConfigErrors& errors) {
  check.Require(IsValidName(config.name()), "name", "1 to 64 of [a-z0-9-]");
  for (const Range& range : kRanges) check.InRange(range);
  check.Enums(*v1::RunConfig::descriptor(), "");
  if (config.has_tensors()) {
    CheckTensors(config, check, errors);
  } else {
    CheckModel(config, check);
  }
  CheckSynchronization(config, check);
  const v1::TrainingConfig& training = config.training();
  check.Require(
      training.batch_size() % std::max(1u, training.micro_batch_size()) == 0,
      "training.micro_batch_size",
      "divisors of batch_size = ", training.batch_size());
  check.Require(
      config.validation().every_rounds() == 0 ||
          (config.data().validation_fraction() > 0 && !config.has_tensors()),
      "validation.every_rounds",
      "0 where data.validation_fraction is 0 or the run is of "
      "tensors, as nothing is held out");
  const v1::MembershipConfig& membership = config.membership();
  const double islands = std::max(1u, membership.max_islands());
  check.InRange({"membership.min_islands", 1, islands});
  check.InRange({"membership.quorum", 1, islands});
  check.InRange(
      {"membership.heartbeat_seconds", 0.01, membership.lease_seconds() / 3});
  if (membership.outlier_factor() != 0) {
    check.InRange({"membership.outlier_factor", 1.5, 1e6});
  }
}

void Resolve(v1::RunConfig& config) {
  if (!config.has_tensors()) {
    v1::ModelConfig& model = *config.mutable_model();
    if (model.kv_heads() == 0) model.set_kv_heads(model.heads());
    if (model.vocab_size() == 0 &&
        config.data().tokenizer() == v1::DataConfig::BYTES) {
      model.set_vocab_size(kByteVocabulary);
    }
  }
  v1::TrainingConfig& training = *config.mutable_training();
  if (training.micro_batch_size() == 0) {
    training.set_micro_batch_size(training.batch_size());
  }
  if (config.data().shards() == 0) {
    config.mutable_data()->set_shards(config.membership().min_islands());
  }
}

}  // namespace

std::optional<int32_t> DocumentEnd(const v1::DataConfig& config) {
  if (!config.has_document_end()) return std::nullopt;
  return static_cast<int32_t>(config.document_end());
}

bool WaitsForUpdates(const v1::SynchronizationConfig& config) {
  return config.overlap_steps() == 0 && config.max_overlap_steps() == 0;
}

uint64_t TokensPerStep(const v1::RunConfig& config) {
  const uint64_t sequence_length = config.has_tensors()
                                       ? config.tensors().sequence_length()
                                       : config.model().sequence_length();
  return config.training().batch_size() * sequence_length;
}

bool IsValidName(absl::string_view name) {
  if (name.empty() || name.size() > 64) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  });
}

absl::StatusOr<v1::RunConfig> ParseRunConfig(absl::string_view text,
                                             absl::string_view file) {
  v1::RunConfig config;
  ConfigErrors errors(text, file);
  TextFormat::ParseInfoTree tree;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&tree);
  if (!parser.ParseFromString(std::string(text), &config)) {
    return errors.ToStatus();
  }
  Resolve(config);
  Checker check(config, tree, &errors);
  Check(config, check, errors);
  RETURN_IF_ERROR(errors.ToStatus());
  if (config.has_tensors()) return config;
  const int64_t parameters = MakeModelLayout(config.model()).size;
  if (parameters > kMostParameters) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": the model has ", parameters,
                     " parameters; allowed: up to ", kMostParameters));
  }
  return config;
}

absl::StatusOr<v1::RunConfig> LoadRunConfig(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadForeignFile(path));
  return ParseRunConfig(text, path);
}

std::string ConfigDifference(const v1::RunConfig& original,
                             const v1::RunConfig& proposed) {
  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  // A default that is written out equals one that is left out.
  differencer.set_message_field_comparison(
      google::protobuf::util::MessageDifferencer::EQUIVALENT);
  differencer.ReportDifferencesToString(&difference);
  differencer.Compare(original, proposed);
  return difference;
}

std::string IdentityDifference(const v1::RunConfig& original,
                               const v1::RunConfig& proposed) {
  const auto identity = [](const v1::RunConfig& config) {
    v1::RunConfig part;
    part.set_name(config.name());
    part.set_seed(config.seed());
    if (config.has_tensors()) {
      *part.mutable_tensors() = config.tensors();
      part.mutable_tensors()->clear_mean_only();
      part.mutable_tensors()->clear_sequence_length();
    } else {
      *part.mutable_model() = config.model();
    }
    part.mutable_data()->set_tokenizer(config.data().tokenizer());
    const v1::SynchronizationConfig& sync = config.synchronization();
    v1::SynchronizationConfig& plan = *part.mutable_synchronization();
    plan.set_inner_steps_per_round(sync.inner_steps_per_round());
    plan.set_fragments(sync.fragments());
    plan.set_pattern(sync.pattern());
    // These decide whether a fragment has momentum and a residual.
    plan.set_downlink_format(sync.downlink_format());
    const v1::OuterOptimizerConfig& outer = config.outer_optimizer();
    part.mutable_outer_optimizer()->set_algorithm(outer.algorithm());
    // The stored sum of gradients does not say how many it has.
    if (outer.algorithm() == v1::OuterOptimizerConfig::DELAYED_NESTEROV) {
      part.mutable_outer_optimizer()->set_momentum_delay(
          outer.momentum_delay());
    }
    return part;
  };
  return ConfigDifference(identity(original), identity(proposed));
}

}  // namespace causeway
