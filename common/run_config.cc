// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/run_config.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"

namespace causeway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

std::string EnumNames(const EnumDescriptor& enumeration) {
  std::vector<std::string> names;
  // Value 0 is "unspecified" in every enum, so it is never a choice.
  for (int i = 0; i < enumeration.value_count(); ++i) {
    if (enumeration.value(i)->number() != 0) {
      names.push_back(enumeration.value(i)->name());
    }
  }
  return absl::StrJoin(names, ", ");
}

std::string FieldNames(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) {
    names.push_back(message.field(i)->name());
  }
  return absl::StrJoin(names, ", ");
}

// Returns the text between the first pair of quotes after `marker`, or an empty
// string.
std::string QuotedAfter(const std::string& message, const char* marker) {
  const size_t at = message.find(marker);
  if (at == std::string::npos) return "";
  const size_t open = message.find('"', at);
  if (open == std::string::npos) return "";
  const size_t close = message.find('"', open + 1);
  if (close == std::string::npos) return "";
  return message.substr(open + 1, close - open - 1);
}

// Returns the enum of the field called `name`, anywhere below `message`.
const EnumDescriptor* FindEnumOfField(const Descriptor& message,
                                      const std::string& name) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.enum_type() != nullptr && field.name() == name) {
      return field.enum_type();
    }
    if (field.message_type() != nullptr) {
      const EnumDescriptor* found =
          FindEnumOfField(*field.message_type(), name);
      if (found != nullptr) return found;
    }
  }
  return nullptr;
}

// Adds the allowed values to the parser's message, which only says what it
// stumbled over.
std::string WithAllowed(const std::string& message) {
  const std::string type = QuotedAfter(message, "Message type");
  if (!type.empty()) {
    const Descriptor* descriptor =
        DescriptorPool::generated_pool()->FindMessageTypeByName(type);
    if (descriptor != nullptr) {
      return absl::StrCat(message, " Allowed: ", FieldNames(*descriptor), ".");
    }
  }
  const std::string field = QuotedAfter(message, "for field");
  if (!field.empty()) {
    const EnumDescriptor* enumeration =
        FindEnumOfField(*v1::RunConfig::descriptor(), field);
    if (enumeration != nullptr) {
      return absl::StrCat(message, " Allowed: ", EnumNames(*enumeration), ".");
    }
  }
  return message;
}

class ErrorList : public google::protobuf::io::ErrorCollector {
 public:
  ErrorList(absl::string_view text, absl::string_view file)
      : lines_(absl::StrSplit(text, '\n')), file_(file) {}

  // Lines and columns count from 0, as protobuf's do; -1 is "unknown".
  void AddError(int line, int column, const std::string& message) override {
    // For a bad enum value the parser reports the position of the next token.
    const std::string value = QuotedAfter(message, "enumeration value of");
    if (!value.empty()) FindBackwards(value, line, column);
    std::string error = file_;
    if (line >= 0) {
      absl::StrAppend(&error, ":", line + 1, ":", column + 1);
    }
    absl::StrAppend(&error, ": ", WithAllowed(message));
    if (line >= 0 && line < static_cast<int>(lines_.size())) {
      absl::StrAppend(&error, "\n    ",
                      absl::StripAsciiWhitespace(lines_[line]));
    }
    errors_.push_back(std::move(error));
  }

  absl::Status ToStatus() const {
    if (errors_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(errors_, "\n"));
  }

 private:
  // Moves the position to the last occurrence of `text` before it, if any.
  void FindBackwards(const std::string& text, int& line, int& column) const {
    for (int at = line; at >= 0; --at) {
      const size_t end =
          at == line ? static_cast<size_t>(column) : std::string::npos;
      const size_t found = lines_[at].substr(0, end).rfind(text);
      if (found == std::string::npos) continue;
      line = at;
      column = static_cast<int>(found);
      return;
    }
  }

  const std::vector<std::string> lines_;
  const std::string file_;
  std::vector<std::string> errors_;
};

// Checks values, and finds the line of the field that holds one.
class Checker {
 public:
  Checker(const v1::RunConfig& config, const TextFormat::ParseInfoTree& tree,
          ErrorList* errors)
      : config_(config), tree_(tree), errors_(errors) {}

  // Reports `problem` (a sentence that goes on from the field's name) at the
  // field called `path`, for instance "model.layers".
  void Fail(const std::string& path, absl::string_view problem) {
    const TextFormat::ParseLocation at = Locate(path);
    errors_->AddError(at.line, at.column, absl::StrCat(path, " ", problem));
  }

  void Range(const std::string& path, double value, double low, double high) {
    if (std::isfinite(value) && low <= value && value <= high) return;
    Fail(path, absl::StrCat("is ", value, "; allowed: ", low, " to ", high));
  }

  // Reports `value` unless it is above `low` and at most `high`.
  void OpenRange(const std::string& path, double value, double low,
                 double high) {
    if (std::isfinite(value) && low < value && value <= high) return;
    Fail(path, absl::StrCat("is ", value, "; allowed: above ", low, ", up to ",
                            high));
  }

  void Enum(const std::string& path, int value,
            const EnumDescriptor& enumeration) {
    if (value != 0) return;
    Fail(path, absl::StrCat("has no value; allowed: ", EnumNames(enumeration)));
  }

 private:
  // Returns the place of the field, or of the nearest enclosing message in the
  // file.
  TextFormat::ParseLocation Locate(const std::string& path) const {
    TextFormat::ParseLocation nearest;
    const TextFormat::ParseInfoTree* tree = &tree_;
    const Message* message = &config_;
    for (absl::string_view name : absl::StrSplit(path, '.')) {
      const FieldDescriptor* field =
          message->GetDescriptor()->FindFieldByName(std::string(name));
      if (field == nullptr || tree == nullptr) return nearest;
      const TextFormat::ParseLocation here = tree->GetLocation(field, -1);
      if (here.line < 0) return nearest;
      nearest = here;
      if (field->message_type() == nullptr) return nearest;
      message = &message->GetReflection()->GetMessage(*message, field);
      tree = tree->GetTreeForNested(field, -1);
    }
    return nearest;
  }

  const v1::RunConfig& config_;
  const TextFormat::ParseInfoTree& tree_;
  ErrorList* const errors_;
};

void CheckModel(const v1::ModelConfig& model, Checker& check) {
  check.Range("model.layers", model.layers(), 1, 1024);
  check.Range("model.hidden_size", model.hidden_size(), 2, 1 << 17);
  check.Range("model.intermediate_size", model.intermediate_size(), 1, 1 << 19);
  check.Range("model.sequence_length", model.sequence_length(), 2, 1 << 20);
  check.Range("model.heads", model.heads(), 1, 1024);
  check.Range("model.vocab_size", model.vocab_size(), 2, 1 << 20);
  check.OpenRange("model.rope_theta", model.rope_theta(), 1, 1e12);
  check.OpenRange("model.norm_epsilon", model.norm_epsilon(), 0, 0.1);
  check.OpenRange("model.init_stddev", model.init_stddev(), 0, 10);
  if (model.heads() == 0) return;
  if (model.hidden_size() % (2 * model.heads()) != 0) {
    check.Fail(
        "model.hidden_size",
        absl::StrCat("is ", model.hidden_size(),
                     "; allowed: multiples of 2 * heads = ", 2 * model.heads(),
                     " (heads of even width, for rotary pairs)"));
  }
  if (model.heads() % std::max(1u, model.kv_heads()) != 0) {
    check.Fail("model.kv_heads",
               absl::StrCat("is ", model.kv_heads(),
                            "; allowed: divisors of heads = ", model.heads()));
  }
}

void CheckData(const v1::RunConfig& config, Checker& check) {
  const v1::DataConfig& data = config.data();
  check.Enum("data.tokenizer", data.tokenizer(),
             *v1::DataConfig::Tokenizer_descriptor());
  check.Range("data.validation_fraction", data.validation_fraction(), 0, 0.5);
  check.Range("data.shards", data.shards(), 1, 4096);
  if (data.tokenizer() == v1::DataConfig::BYTES &&
      config.model().vocab_size() < kByteVocabulary) {
    check.Fail(
        "model.vocab_size",
        absl::StrCat("is ", config.model().vocab_size(),
                     "; the byte tokenizer needs at least ", kByteVocabulary,
                     " (256 bytes, begin and end of text)"));
  }
}

void CheckTraining(const v1::TrainingConfig& training, Checker& check) {
  check.Range("training.total_steps",
              static_cast<double>(training.total_steps()), 1, 1e12);
  check.Range("training.batch_size", training.batch_size(), 1, 1 << 20);
  if (training.batch_size() % std::max(1u, training.micro_batch_size()) != 0) {
    check.Fail("training.micro_batch_size",
               absl::StrCat("is ", training.micro_batch_size(),
                            "; allowed: divisors of batch_size = ",
                            training.batch_size()));
  }
  check.OpenRange("training.learning_rate", training.learning_rate(), 0, 10);
  check.Enum("training.schedule", training.schedule(),
             *v1::TrainingConfig::Schedule_descriptor());
  check.Enum("training.inner_algorithm", training.inner_algorithm(),
             *v1::TrainingConfig::InnerAlgorithm_descriptor());
  check.Range("training.min_learning_rate_ratio",
              training.min_learning_rate_ratio(), 0, 1);
  check.Range("training.beta1", training.beta1(), 0, 0.999999);
  check.Range("training.beta2", training.beta2(), 0, 0.99999999);
  check.OpenRange("training.epsilon", training.epsilon(), 0, 1);
  check.Range("training.weight_decay", training.weight_decay(), 0, 10);
  check.Range("training.gradient_clip", training.gradient_clip(), 0, 1e9);
}

void CheckOuterOptimizer(const v1::OuterOptimizerConfig& outer,
                         Checker& check) {
  check.Enum("outer_optimizer.algorithm", outer.algorithm(),
             *v1::OuterOptimizerConfig::Algorithm_descriptor());
  check.OpenRange("outer_optimizer.learning_rate", outer.learning_rate(), 0,
                  10);
  check.Range("outer_optimizer.momentum", outer.momentum(), 0, 0.9999);
  check.Enum("outer_optimizer.weighting", outer.weighting(),
             *v1::OuterOptimizerConfig::Weighting_descriptor());
  check.Enum("outer_optimizer.merge", outer.merge(),
             *v1::OuterOptimizerConfig::Merge_descriptor());
  check.Range("outer_optimizer.momentum_delay", outer.momentum_delay(), 1,
              1024);
  check.Range("outer_optimizer.momentum_spread", outer.momentum_spread(), 0,
              1.0 / std::max(1u, outer.momentum_delay()));
}

void CheckSynchronization(const v1::RunConfig& config, Checker& check) {
  const v1::SynchronizationConfig& sync = config.synchronization();
  check.Enum("synchronization.inner_step_shares", sync.inner_step_shares(),
             *v1::SynchronizationConfig::InnerStepShares_descriptor());
  check.Range("synchronization.inner_steps_per_round",
              sync.inner_steps_per_round(), 1, 1'000'000);
  if (config.training().total_steps() > 0 &&
      sync.inner_steps_per_round() > config.training().total_steps()) {
    check.Fail("synchronization.inner_steps_per_round",
               absl::StrCat("is ", sync.inner_steps_per_round(),
                            "; allowed: up to training.total_steps = ",
                            config.training().total_steps()));
  }
  const uint32_t most = config.model().layers() + 1;
  if (sync.fragments() < 1 || sync.fragments() > most) {
    check.Fail("synchronization.fragments",
               absl::StrCat("is ", sync.fragments(),
                            "; allowed: 1 to model.layers + 1 = ", most));
  } else if (sync.fragments() > sync.inner_steps_per_round()) {
    check.Fail("synchronization.fragments",
               absl::StrCat("is ", sync.fragments(),
                            "; allowed: up to inner_steps_per_round = ",
                            sync.inner_steps_per_round(),
                            ", so that each fragment has a step of its own"));
  }
  check.Enum("synchronization.pattern", sync.pattern(),
             *v1::SynchronizationConfig::Pattern_descriptor());
  if (sync.overlap_steps() >= std::max(1u, sync.inner_steps_per_round())) {
    check.Fail("synchronization.overlap_steps",
               absl::StrCat("is ", sync.overlap_steps(),
                            "; allowed: less than inner_steps_per_round = ",
                            sync.inner_steps_per_round()));
  } else if (sync.overlap_steps() + sync.max_overlap_steps() >=
                 sync.inner_steps_per_round() &&
             sync.max_overlap_steps() > 0) {
    check.Fail("synchronization.max_overlap_steps",
               absl::StrCat("is ", sync.max_overlap_steps(),
                            "; allowed: overlap_steps + max_overlap_steps "
                            "less than inner_steps_per_round = ",
                            sync.inner_steps_per_round()));
  }
  check.Range("synchronization.mixing", sync.mixing(), 0, 1);
  check.Enum("synchronization.uplink_format", sync.uplink_format(),
             *v1::Format_descriptor());
  check.Enum("synchronization.downlink_format", sync.downlink_format(),
             *v1::Format_descriptor());
  if (sync.block_size() != 64 && sync.block_size() != 128 &&
      sync.block_size() != 256) {
    check.Fail(
        "synchronization.block_size",
        absl::StrCat("is ", sync.block_size(), "; allowed: 64, 128, 256"));
  }
  check.Enum("synchronization.uplink_rounding", sync.uplink_rounding(),
             *v1::SynchronizationConfig::Rounding_descriptor());
  if (sync.uplink_rounding() == v1::SynchronizationConfig::STOCHASTIC &&
      (sync.uplink_format() == v1::FP32 || sync.uplink_format() == v1::BF16)) {
    check.Fail("synchronization.uplink_rounding",
               absl::StrCat("is STOCHASTIC; allowed for uplink_format ",
                            v1::Format_Name(sync.uplink_format()),
                            ", which has no scales: NEAREST"));
  }
  check.Range("synchronization.error_feedback", sync.error_feedback(), 0, 1);
  if (sync.ecq_bits() != 0) {
    check.Range("synchronization.ecq_bits", sync.ecq_bits(), 0.5, 8);
  }
  check.Range("synchronization.ecq_distortion", sync.ecq_distortion(), 1e-4,
              0.9);
  const v1::OuterOptimizerConfig& outer = config.outer_optimizer();
  if (sync.eager_updates() &&
      (outer.merge() != v1::OuterOptimizerConfig::MEAN ||
       outer.algorithm() == v1::OuterOptimizerConfig::DELAYED_NESTEROV)) {
    check.Fail("synchronization.eager_updates",
               "is true; allowed only with outer_optimizer.merge MEAN and an "
               "outer_optimizer.algorithm other than DELAYED_NESTEROV");
  }
}

void CheckMembership(const v1::MembershipConfig& membership, Checker& check) {
  check.Range("membership.max_islands", membership.max_islands(), 1, 4096);
  check.Range("membership.min_islands", membership.min_islands(), 1,
              std::max(1u, membership.max_islands()));
  check.Range("membership.quorum", membership.quorum(), 1,
              std::max(1u, membership.max_islands()));
  check.Range("membership.grace_seconds", membership.grace_seconds(), 0, 1e6);
  check.Range("membership.lease_seconds", membership.lease_seconds(), 0.1, 1e6);
  check.Range("membership.heartbeat_seconds", membership.heartbeat_seconds(),
              0.01, membership.lease_seconds() / 3);
  check.Range("membership.grace_overlap_share",
              membership.grace_overlap_share(), 0, 1);
  if (membership.outlier_factor() != 0) {
    check.Range("membership.outlier_factor", membership.outlier_factor(), 1.5,
                1e6);
  }
  check.Range("membership.drop_contributions", membership.drop_contributions(),
              0, 1);
}

void CheckStorage(const v1::StorageConfig& storage, Checker& check) {
  check.Range("storage.update_history", storage.update_history(), 2, 1 << 20);
  check.Range("storage.versions_kept", storage.versions_kept(), 2, 1 << 20);
}

void Resolve(v1::RunConfig& config) {
  v1::ModelConfig& model = *config.mutable_model();
  if (model.kv_heads() == 0) model.set_kv_heads(model.heads());
  if (model.vocab_size() == 0 &&
      config.data().tokenizer() == v1::DataConfig::BYTES) {
    model.set_vocab_size(kByteVocabulary);
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

bool IsValidName(absl::string_view name) {
  if (name.empty() || name.size() > 64) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  });
}

absl::StatusOr<v1::RunConfig> ParseRunConfig(absl::string_view text,
                                             absl::string_view file) {
  v1::RunConfig config;
  ErrorList errors(text, file);
  TextFormat::ParseInfoTree tree;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&tree);
  if (!parser.ParseFromString(std::string(text), &config)) {
    return errors.ToStatus();
  }
  Resolve(config);
  Checker check(config, tree, &errors);
  if (!IsValidName(config.name())) {
    check.Fail("name", absl::StrCat("is \"", config.name(),
                                    "\"; allowed: 1 to 64 of [a-z0-9-]"));
  }
  CheckModel(config.model(), check);
  CheckData(config, check);
  CheckTraining(config.training(), check);
  CheckOuterOptimizer(config.outer_optimizer(), check);
  CheckSynchronization(config, check);
  CheckMembership(config.membership(), check);
  CheckStorage(config.storage(), check);
  RETURN_IF_ERROR(errors.ToStatus());
  return config;
}

absl::StatusOr<v1::RunConfig> LoadRunConfig(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(
        absl::StrCat("cannot read the run configuration \"", path,
                     "\"; give a text-format RunConfig that exists and is not "
                     "empty"));
  }
  return ParseRunConfig(text.str(), path);
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
    *part.mutable_model() = config.model();
    part.mutable_data()->set_tokenizer(config.data().tokenizer());
    const v1::SynchronizationConfig& sync = config.synchronization();
    v1::SynchronizationConfig& plan = *part.mutable_synchronization();
    plan.set_inner_steps_per_round(sync.inner_steps_per_round());
    plan.set_fragments(sync.fragments());
    plan.set_pattern(sync.pattern());
    // These decide whether a fragment has momentum and a residual.
    plan.set_downlink_format(sync.downlink_format());
    part.mutable_outer_optimizer()->set_algorithm(
        config.outer_optimizer().algorithm());
    return part;
  };
  return ConfigDifference(identity(original), identity(proposed));
}

}  // namespace causeway
