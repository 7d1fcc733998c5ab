// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/election/office.h"

#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "common/status_macros.h"
#include "google/protobuf/util/json_util.h"

namespace causeway {
namespace {

using Step = Voter::Step;

// No office has this epoch, so the leader that etcd names is followed anew.
constexpr uint64_t kOfCopy = std::numeric_limits<uint64_t>::max();

// Returns what coordinator `name` must do: wait, follow or campaign.
absl::StatusOr<Step> StepOf(const OfficeView& view, absl::string_view name,
                            const Holding& holding) {
  const v1::Office& office = view.office;
  if (!holding.run_id.empty() && !office.run_id().empty() &&
      holding.run_id != office.run_id()) {
    return absl::FailedPreconditionError(absl::Substitute(
        "the state directory has run $0, and etcd says that the coordinators "
        "serve run $1: give this one another directory or --etcd_prefix; or, "
        "if etcd has lost its data and run $1 is new, stop the others, delete "
        "the keys of --etcd_prefix, and start this one first",
        holding.run_id, office.run_id()));
  }
  if (view.leader.has_value()) {
    // A lease in its own name is the previous process's. One in another name
    // than the office's is from before etcd was restored or lost the office,
    // because OfficeBook's Claim and Renew write both keys in one transaction.
    // Either ends soon.
    return view.leader->name() == name ||
                   view.leader->name() != office.leader().name()
               ? Step::kWait
               : Step::kFollow;
  }
  if (view.written.empty()) {
    // The run is new to etcd, so the first coordinator begins it with what it
    // has.
    return holding.run_id.empty() || holding.is_complete ? Step::kCampaign
                                                         : Step::kWait;
  }
  if (!absl::c_linear_search(office.in_sync(), name)) return Step::kWait;
  // If the run has no id yet, its first coordinator died before it made the
  // run, and is the only member in sync.
  return holding.is_complete || office.run_id().empty() ? Step::kCampaign
                                                        : Step::kWait;
}

}  // namespace

v1::Office Successor(const v1::Office& before, const v1::Replica& candidate,
                     const Holding& holding) {
  std::set<std::string> in_sync = InSync(before);
  in_sync.erase(before.leader().name());
  in_sync.insert(candidate.name());
  v1::Office after = WithInSync(before, in_sync);
  after.set_run_id(holding.run_id);
  after.set_epoch(std::max(before.epoch(), holding.epoch) + 1);
  *after.mutable_leader() = candidate;
  return after;
}

std::string AwaitedBy(absl::string_view name, const OfficeView& view,
                      const Holding& holding) {
  if (view.leader.has_value()) {
    return absl::Substitute("$0 at $1 leads the run, and does not answer",
                            view.leader->name(), view.leader->address());
  }
  std::set<std::string> able = InSync(view.office);
  const bool is_able = able.erase(std::string(name)) > 0;
  const bool can_lead = view.office.run_id().empty() || holding.is_complete;
  if (able.empty() || (is_able && can_lead)) {
    return can_lead ? "it asks to lead the run"
                    : "its copy of the run is not complete";
  }
  return absl::Substitute(
      able.size() == 1
          ? "only $0 may lead the run (it has every version): start it"
          : "only $0 may lead the run (they have every version): start one of "
            "them",
      absl::StrJoin(able, " or "));
}

std::set<std::string> InSync(const v1::Office& office) {
  return {office.in_sync().begin(), office.in_sync().end()};
}

v1::Office WithInSync(v1::Office office, const std::set<std::string>& names) {
  office.mutable_in_sync()->Assign(names.begin(), names.end());
  return office;
}

std::string WriteKey(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  // Fails only for messages with unknown types.
  google::protobuf::util::MessageToJsonString(message, &text, options);
  return text;
}

absl::Status ReadKey(absl::string_view text,
                     google::protobuf::Message& message) {
  const auto read =
      google::protobuf::util::JsonStringToMessage(std::string(text), &message);
  if (read.ok()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("etcd has \"", text,
                                          "\", which is not a valid ",
                                          message.GetDescriptor()->name()));
}

absl::StatusOr<Voter::Step> Voter::Next(const absl::StatusOr<OfficeView>& view,
                                        const Holding& holding) {
  // While etcd is away, keep following the leader, which may be healthy.
  if (!view.ok()) {
    if (following_ != 0) patience_ = kPatience;
    // A process that has read etcd may have asked for the office since it last
    // followed, so only a new one may follow whom it followed before.
    if (has_read_ || holding.leader.empty() || ++unanswered_ != kPatience) {
      return Step::kWait;
    }
    following_ = kOfCopy;
    return Step::kFollowLast;
  }
  has_read_ = true;
  const std::optional<v1::Replica>& leader = view->leader;
  const bool is_own = leader.has_value() && leader->name() == name_;
  own_waits_ = is_own ? own_waits_ + 1 : 0;
  if (own_waits_ > most_own_waits_) {
    return absl::FailedPreconditionError(
        absl::Substitute("the name $0 is in use by the leader at $1, which is "
                         "another process: set --name",
                         name_, leader->address()));
  }
  ASSIGN_OR_RETURN(const Step step, StepOf(*view, name_, holding));
  if (step == Step::kFollow) {
    patience_ = 0;
    // Reconnect at once to a leader that was elected again.
    const uint64_t before = std::exchange(following_, view->office.epoch());
    return before == following_ ? Step::kWait : Step::kFollow;
  }
  if (step != Step::kCampaign) return step;
  if (patience_ > 0) {
    --patience_;
    return Step::kWait;
  }
  return std::exchange(following_, 0) == 0 ? Step::kCampaign : Step::kPause;
}

}  // namespace causeway
