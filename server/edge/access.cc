// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/access.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "common/transport/tcp_connections.h"
#include "common/transport/x509.h"
#include "google/protobuf/descriptor.h"

namespace causeway {

struct AccessRule {
  absl::string_view method;
  // One bit for each role that may call the method.
  uint32_t roles;
  // Is true if requests name the island that sends them.
  bool names_island = false;
  Precedence precedence = Precedence::kMember;
};

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr uint32_t Bit(Role role) { return 1u << static_cast<int>(role); }
constexpr uint32_t kIsland = Bit(Role::kIsland);
constexpr uint32_t kOperator = Bit(Role::kOperator);
constexpr uint32_t kWatchers = kIsland | kOperator | Bit(Role::kViewer);
// Any client, even without a certificate.
constexpr uint32_t kAnybody = 1u << 31;
constexpr Precedence kJoiner = Precedence::kJoiner;
constexpr Precedence kWatcher = Precedence::kWatcher;

constexpr AccessRule kRules[] = {
    {"/causeway.v1.Coordinator/Join", kIsland, true, kJoiner},
    {"/causeway.v1.Coordinator/Session", kIsland, true},
    {"/causeway.v1.Coordinator/FetchParameters", kIsland, true},
    {"/causeway.v1.Coordinator/Contribute", kIsland, true},
    {"/causeway.v1.Coordinator/FetchUpdate", kIsland, true},
    {"/causeway.v1.Coordinator/Leave", kIsland, true},
    {"/causeway.v1.Replication/Follow", Bit(Role::kCoordinator)},
    {"/causeway.v1.Replication/Promote", kOperator},
    {"/causeway.v1.Status/GetRun", kWatchers, false, kWatcher},
    {"/causeway.v1.Status/ListIslands", kWatchers, false, kWatcher},
    {"/causeway.v1.Status/ListFragments", kWatchers, false, kWatcher},
    {"/causeway.v1.Status/GetHistory", kWatchers, false, kWatcher},
    {"/causeway.v1.Status/WatchEvents", kWatchers, false, kWatcher},
    {"/causeway.v1.Control/PauseRun", kOperator},
    {"/causeway.v1.Control/ResumeRun", kOperator},
    {"/causeway.v1.Control/DrainIsland", kOperator},
    {"/causeway.v1.Control/EvictIsland", kOperator},
    {"/causeway.v1.Control/ListQuarantine", kOperator},
    {"/causeway.v1.Control/AdmitContribution", kOperator},
    {"/causeway.v1.Control/DropContribution", kOperator},
    {"/causeway.v1.Control/AcceptData", kOperator},
    {"/causeway.v1.Control/ListPeers", kOperator},
    {"/causeway.v1.Trust/Enrol", kAnybody, false, kJoiner},
    {"/causeway.v1.Trust/Renew", kWatchers | Bit(Role::kCoordinator)},
    {"/causeway.v1.Trust/CreateToken", kOperator},
    {"/causeway.v1.Trust/ListTokens", kOperator},
    {"/causeway.v1.Trust/RevokeToken", kOperator},
    {"/causeway.v1.Trust/ListCertificates", kOperator},
    {"/causeway.v1.Trust/RevokeCertificate", kOperator},
};

const AccessRule* FindRule(absl::string_view method) {
  const auto* const rule =
      std::find_if(std::begin(kRules), std::end(kRules),
                   [&](const AccessRule& one) { return one.method == method; });
  return rule == std::end(kRules) ? nullptr : rule;
}

// The most callers whose refused calls are counted. Refusals give one event a
// minute for each caller, and one for all callers without an identity. An
// authority signs far fewer certificates than this.
constexpr size_t kMostRefused = 1024;

// The most certificates remembered, of 1 KB each.
constexpr size_t kMostShown = 1024;

void AppendIslands(const Message& message, std::vector<std::string>& islands) {
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->name() == "island_id") {
      islands.push_back(reflection.GetString(message, field));
    } else if (!field->is_repeated() &&
               field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      AppendIslands(reflection.GetMessage(message, field), islands);
    }
  }
}

std::string ListRoles(uint32_t roles) {
  std::vector<absl::string_view> names;
  for (const Role role :
       {Role::kIsland, Role::kOperator, Role::kViewer, Role::kCoordinator}) {
    if (roles & Bit(role)) names.push_back(RoleName(role));
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

std::string Caller::Name() const {
  return identity_.ok() ? Describe(*identity_) : peer_;
}

Precedence Caller::precedence() const {
  const bool is_operator = identity_.ok() && identity_->role == Role::kOperator;
  return is_operator || rule_ == nullptr ? Precedence::kMember
                                         : rule_->precedence;
}

absl::Status Caller::Check() const {
  const absl::Status checked = CheckIdentity();
  // A certificate that expires on an open connection is no event: a peer that
  // has a newer one connects again, and TLS refuses one that has none.
  if (!checked.ok() && !absl::IsUnavailable(checked)) {
    access_->RecordRefusal(*this, checked);
  }
  return checked;
}

absl::Status Caller::Check(const Message& request) const {
  RETURN_IF_ERROR(Check());
  const absl::Status checked = CheckIslands(request);
  if (!checked.ok()) access_->RecordRefusal(*this, checked);
  return checked;
}

absl::Status Caller::CheckIdentity() const {
  const Access::Options& options = access_->options_;
  if (rule_ == nullptr) {
    return absl::PermissionDeniedError(
        absl::StrCat("no role may call ", method_));
  }
  if (!options.certificates || rule_->roles == kAnybody) {
    return absl::OkStatus();
  }
  const std::string needed =
      absl::StrCat(method_, " is reserved for these roles of run ", options.run,
                   ": ", ListRoles(rule_->roles));
  if (!identity_.ok()) {
    return absl::UnauthenticatedError(absl::StrCat(
        needed, "; ", absl::string_view(identity_.status().message())));
  }
  if (identity_->run != options.run || !(rule_->roles & Bit(identity_->role))) {
    return absl::PermissionDeniedError(
        absl::StrCat(needed, "; the certificate is for ", Describe(*identity_),
                     " of run ", identity_->run));
  }
  if (options.wall_clock() >= certificate_.expires) {
    return absl::UnavailableError(absl::StrCat(
        "the certificate of ", Describe(*identity_), " expired at ",
        absl::FormatTime(absl::RFC3339_sec, certificate_.expires,
                         absl::UTCTimeZone()),
        ": connect again with a new one"));
  }
  if (options.check_certificate == nullptr) return absl::OkStatus();
  return options.check_certificate(certificate_);
}

absl::Status Caller::CheckIslands(const Message& request) const {
  if (!access_->options_.certificates || !rule_->names_island) {
    return absl::OkStatus();
  }
  std::vector<std::string> islands;
  AppendIslands(request, islands);
  if (islands == std::vector<std::string>{identity_->name}) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(Describe(*identity_), " may not call ", method_, " for \"",
                   absl::CHexEscape(absl::StrJoin(islands, ", ")),
                   "\": use the name of its certificate, or enrol the other "
                   "island with a token of its own"));
}

Caller Access::Identify(absl::string_view method,
                        const grpc::CallbackServerContext& context) const {
  Caller caller(this);
  caller.method_ = std::string(method);
  caller.rule_ = FindRule(method);
  caller.peer_ = PeerAddress(context.peer());
  if (!options_.certificates) return caller;
  Shown shown = ReadCertificate(*context.auth_context());
  caller.identity_ = std::move(shown.identity);
  caller.certificate_ = std::move(shown.certificate);
  return caller;
}

Access::Shown Access::ReadCertificate(const grpc::AuthContext& context) const {
  const std::vector<grpc::string_ref> property =
      context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (property.empty()) {
    return {absl::UnauthenticatedError("the caller shows no certificate"), {}};
  }
  const absl::string_view pem(property.front().data(), property.front().size());
  {
    absl::MutexLock lock(&mu_);
    const auto known = shown_.find(pem);
    if (known != shown_.end()) return known->second;
  }
  const absl::StatusOr<std::vector<Certificate>> read = ParseCertificates(pem);
  if (!read.ok()) {
    return {absl::UnauthenticatedError("the certificate cannot be read"), {}};
  }
  const CertificateFacts facts = FactsOf(*read->front());
  Shown shown = {ParseIdentity(facts.names),
                 {.serial = facts.serial, .expires = facts.valid_until}};
  absl::MutexLock lock(&mu_);
  if (shown_.size() >= kMostShown) shown_.clear();
  shown_.emplace(pem, shown);
  return shown;
}

bool Access::Knows(absl::string_view method) {
  return FindRule(method) != nullptr;
}

void Access::RecordRefusal(const Caller& caller,
                           const absl::Status& refusal) const {
  const bool known = caller.identity_.ok();
  std::string text =
      absl::StrCat("a call from ", caller.Name(),
                   " is refused: ", absl::string_view(refusal.message()));
  {
    absl::MutexLock lock(&mu_);
    std::string who = known ? FormatUri(*caller.identity_) : "";
    if (refusals_.size() >= kMostRefused && refusals_.count(who) == 0) who = "";
    const std::optional<uint64_t> others = refusals_[who].Note(options_.now());
    if (!others.has_value()) return;
    if (*others > 0) {
      absl::StrAppend(&text, *others == 1 ? "; so was " : "; so were ", *others,
                      *others == 1 ? " call" : " calls", " before it");
    }
  }
  if (options_.record == nullptr) return;
  const bool is_island = known && caller.identity_->role == Role::kIsland;
  options_.record({.kind = "call_refused",
                   .island_id = is_island ? caller.identity_->name : "",
                   .text = std::move(text)});
}

}  // namespace causeway
