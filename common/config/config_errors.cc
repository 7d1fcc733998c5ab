// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/config/config_errors.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/printable.h"
#include "google/protobuf/descriptor.h"
#include "proto/run_config.pb.h"

namespace causeway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

std::string FieldNames(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) {
    names.push_back(message.field(i)->name());
  }
  return absl::StrJoin(names, ", ");
}

// The most mistakes that a message lists.
constexpr size_t kMostErrors = 50;
// The most bytes of the parser's messages, which quote the input.
constexpr size_t kMostMessageBytes = 500;

// Returns the text between the first pair of quotes after `marker`, or an empty
// string.
std::string QuotedAfter(const std::string& message, const char* marker) {
  const size_t at = message.find(marker);
  if (at == std::string::npos) return "";
  const std::vector<std::string> parts =
      absl::StrSplit(message.substr(at), '"');
  return parts.size() > 2 ? parts[1] : "";
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

// Adds the allowed values to the parser's message, which only quotes the wrong
// one.
std::string WithAllowed(const std::string& whole) {
  const std::string message = Excerpt(whole, kMostMessageBytes);
  const Descriptor* const type =
      DescriptorPool::generated_pool()->FindMessageTypeByName(
          QuotedAfter(message, "Message type"));
  if (type != nullptr) {
    return absl::StrCat(message, " Allowed: ", FieldNames(*type), ".");
  }
  const EnumDescriptor* const values = FindEnumOfField(
      *v1::RunConfig::descriptor(), QuotedAfter(message, "for field"));
  if (values == nullptr) return message;
  return absl::StrCat(message, " Allowed: ", EnumNames(*values), ".");
}

}  // namespace

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

ConfigErrors::ConfigErrors(absl::string_view text, absl::string_view file)
    : lines_(absl::StrSplit(text, '\n')), file_(file) {}

void ConfigErrors::AddError(int line, int column, const std::string& message) {
  // For a bad enum value the parser reports the position of the next token.
  const std::string value = QuotedAfter(message, "enumeration value of");
  if (!value.empty()) FindBackwards(value, line, column);
  if (++count_ > kMostErrors) return;
  std::string error = file_;
  if (line >= 0) absl::StrAppend(&error, ":", line + 1, ":", column + 1);
  absl::StrAppend(&error, ": ", WithAllowed(message));
  if (line >= 0 && line < static_cast<int>(lines_.size())) {
    absl::StrAppend(&error, "\n    ",
                    Excerpt(absl::StripAsciiWhitespace(lines_[line])));
  }
  errors_.push_back(std::move(error));
}

absl::Status ConfigErrors::ToStatus() const {
  if (errors_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      absl::StrJoin(errors_, "\n"),
      count_ > kMostErrors ? absl::StrCat("\nand ", count_ - kMostErrors,
                                          " more mistakes in ", file_)
                           : ""));
}

void ConfigErrors::FindBackwards(const std::string& text, int& line,
                                 int& column) const {
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

}  // namespace causeway
