// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/checker.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace causeway::simulation {
namespace {

// The longest pause of the coordinator after an outer step that failed.
constexpr absl::Duration kRetryPause = absl::Seconds(5);

// The most rounds of a fragment that an island misses before it has caught up.
constexpr int kMostMissed = 2;

std::string NameOf(const v1::IslandIdentity& identity) {
  return absl::StrCat(identity.island_id(), ".", identity.incarnation());
}

}  // namespace

Checker::Checker(const Scenario* scenario, World* world)
    : scenario_(scenario),
      lease_(absl::Seconds(scenario->config.membership().lease_seconds())),
      violations_(world),
      commits_(scenario, &violations_),
      rounds_(static_cast<size_t>(scenario->plan.fragments_size())) {}

void Checker::Admitted(uint32_t process, const v1::IslandIdentity& identity) {
  const auto [known, is_new] = admitted_.emplace(
      std::make_pair(identity.island_id(), identity.incarnation()), process);
  if (!is_new && known->second != process) {
    Fail("processes ", known->second, " and ", process, " were both made ",
         NameOf(identity));
  }
}

void Checker::Restarted(Coordinator& core, const Disk& disk, absl::Time now) {
  const std::map<std::string, KnownMember> before = std::move(members_);
  members_.clear();
  for (const auto& [name, member] : disk.members()) {
    members_[name] = {.incarnation = member.incarnation,
                      .live = member.state == v1::IslandStatus::LIVE,
                      .draining = false,
                      .heard_surely = now,
                      .heard_at_most = now};
    // A drain that was confirmed to an operator survives the restart.
    const auto known = before.find(name);
    const bool same = known != before.end() &&
                      known->second.incarnation == member.incarnation;
    members_[name].draining = same && known->second.draining;
    // An island's reports survive the restart, too.
    members_[name].ready = member.IsReady();
    members_[name].surely_ready = member.IsReady();
    if (same && known->second.surely_ready && !member.IsReady()) {
      Fail(name, ".", member.incarnation,
           " was ready, but is not after a restart");
    }
  }
  paused_at_ = core.run_state() == v1::PAUSED ? now : absl::InfiniteFuture();
  // A loss that was not durable may be recorded again.
  const std::optional<v1::ValidationPoint> durable = disk.History().validation;
  validated_ = durable.has_value() ? durable->validation().version() : 0;
  for (uint32_t fragment = 0; fragment < rounds_.size(); ++fragment) {
    rounds_[fragment] = {};
    const v1::FragmentHead& head = core.heads()[fragment].head;
    const uint64_t newest = commits_.newest_version(fragment);
    if (head.version() != newest) {
      Fail("after a restart fragment ", fragment, " is at version ",
           head.version(), ", but ", newest, " was committed");
    }
  }
}

bool Checker::MayAct(const v1::IslandIdentity& identity) const {
  const auto known = members_.find(identity.island_id());
  return known != members_.end() && known->second.live &&
         known->second.incarnation == identity.incarnation();
}

void Checker::Calls(const v1::IslandIdentity& identity, absl::Time now) {
  if (MayAct(identity)) members_[identity.island_id()].heard_at_most = now;
}

void Checker::Checked(const v1::IslandIdentity& identity,
                      const absl::Status& status) {
  const bool may_act = MayAct(identity);
  if (status.ok() && !may_act) {
    Fail(NameOf(identity), " is fenced off, but its call was accepted");
  }
  if (absl::IsAborted(status) && may_act) {
    Fail(NameOf(identity),
         " is a member, but was turned away: ", status.message());
  }
}

void Checker::Called(const v1::IslandIdentity& identity,
                     const absl::Status& status, absl::Time now) {
  Checked(identity, status);
  if (status.ok() && MayAct(identity)) {
    members_[identity.island_id()].heard_surely = now;
  }
}

void Checker::Joined(const v1::JoinRequest& request,
                     const v1::JoinResponse& response, const Effects& effects,
                     absl::Time now) {
  KnownMember& member = members_[request.island_id()];
  const v1::IslandIdentity& identity = response.identity();
  // A process that is known to be dead may be replaced within its lease.
  for (const Member& ended : effects.ended) {
    if (ended.island_id == request.island_id() &&
        ended.incarnation == member.incarnation &&
        ended.instance_id == request.replaces_instance_id()) {
      member.live = false;
    }
  }
  if (member.live) {
    if (identity.incarnation() != member.incarnation) {
      Fail(NameOf(identity), " was admitted beside incarnation ",
           member.incarnation);
    }
  } else if (identity.incarnation() <= member.incarnation) {
    Fail(NameOf(identity), " was admitted after incarnation ",
         member.incarnation);
  } else {
    for (const uint64_t first : response.first_contribution_version()) {
      if (first != Member::kNotExpected) {
        Fail(NameOf(identity), " is expected from version ", first,
             " on, but is not ready");
      }
    }
    // The answer must survive a restart.
    if (effects.joined.empty()) {
      Fail(NameOf(identity), " was admitted, but is not to be persisted");
    }
    member = {.incarnation = identity.incarnation(), .live = true};
  }
  member.heard_surely = now;
  member.heard_at_most = now;
}

void Checker::ReportedReady(const v1::IslandIdentity& identity,
                            const Coordinator& core, const Effects& effects,
                            v1::RunState state_before) {
  if (!MayAct(identity) || members_[identity.island_id()].ready) return;
  const bool others =
      std::any_of(members_.begin(), members_.end(), [](const auto& known) {
        return known.second.live && known.second.ready;
      });
  members_[identity.island_id()].ready = true;
  const auto changed =
      std::find_if(effects.changed.begin(), effects.changed.end(),
                   [&](const Member& member) {
                     return member.island_id == identity.island_id();
                   });
  if (changed == effects.changed.end()) {
    Fail(NameOf(identity), " is ready, but this is not to be persisted");
    return;
  }
  // A pause hides whether the run has started.
  if (state_before == v1::PAUSED || state_before == v1::FINISHED) return;
  const bool window_under_way =
      others && state_before != v1::WAITING_FOR_ISLANDS;
  for (uint32_t fragment = 0; fragment < rounds_.size(); ++fragment) {
    const uint64_t version = core.heads()[fragment].head.version();
    const uint64_t want = version + (window_under_way ? 1 : 0);
    const uint64_t first = changed->first_contribution_version[fragment];
    if (first != want) {
      Fail(NameOf(identity), " is ready while fragment ", fragment,
           " is at version ", version, "; it is expected from version ", first,
           " on, not ", want);
    }
  }
}

void Checker::ReadyIsDurable(const v1::IslandIdentity& identity) {
  if (MayAct(identity)) members_[identity.island_id()].surely_ready = true;
}

void Checker::Answered(const v1::ContributionHeader& header,
                       const v1::ContributeResponse& response,
                       const Coordinator& core, absl::Time now) {
  const v1::IslandIdentity& identity = header.identity();
  const Round& round = core.round(header.fragment());
  OpenRound& open = rounds_[header.fragment()];
  if (response.verdict() == v1::ContributeResponse::LATE &&
      round.base_version() == header.base_version()) {
    // Only one contribution of an island counts, whichever process it came
    // from.
    const auto earlier = open.credited.lower_bound({identity.island_id(), 0});
    if (earlier != open.credited.end() &&
        earlier->first == identity.island_id()) {
      open.credited.insert({identity.island_id(), identity.incarnation()});
    }
  }
  if (response.verdict() != v1::ContributeResponse::ACCEPTED) return;
  const bool in_round = std::any_of(
      round.contributions().begin(), round.contributions().end(),
      [&](const auto& entry) {
        return entry.first.island_id == identity.island_id() &&
               entry.second.object().digest() == header.object().digest();
      });
  if (round.base_version() != header.base_version() || !in_round) {
    Fail("a contribution of ", NameOf(identity), " to version ",
         header.base_version(), " of fragment ", header.fragment(),
         " was accepted, but is in no round");
    return;
  }
  open.credited.insert({identity.island_id(), identity.incarnation()});
  const bool added = open.accepted.insert(header.object().digest()).second;
  if (added &&
      open.accepted.size() == scenario_->config.membership().quorum()) {
    open.quorum_at = now;
  }
}

void Checker::Evicted(const std::string& island) {
  members_[island].heard_surely = absl::InfinitePast();
}

void Checker::Drained(const std::string& island) {
  KnownMember& member = members_[island];
  member.draining = member.live;
}

void Checker::Shown(const v1::IslandIdentity& identity,
                    const v1::SessionResponse& view) {
  if (MayAct(identity) && members_[identity.island_id()].draining &&
      !view.drain()) {
    Fail(NameOf(identity), " is drained, but is not told so");
  }
  const v1::SynchronizationConfig& sync = scenario_->config.synchronization();
  if (view.uplink_bits() != 0 &&
      !(sync.uplink_bits_floor() > 0 &&
        view.uplink_bits() >= sync.uplink_bits_floor() &&
        view.uplink_bits() <= sync.ecq_bits())) {
    Fail(NameOf(identity), " is to send ", view.uplink_bits(),
         " bits per value");
  }
}

void Checker::AdmittedToRound(const v1::ContributionHeader& header,
                              absl::Time now) {
  OpenRound& open = rounds_[header.fragment()];
  // The contribution counts for later offers of its island.
  open.credited.insert(
      {header.identity().island_id(), header.identity().incarnation()});
  const bool added = open.accepted.insert(header.object().digest()).second;
  if (added &&
      open.accepted.size() == scenario_->config.membership().quorum()) {
    open.quorum_at = now;
  }
}

void Checker::Saw(const Effects& effects, const Coordinator& core,
                  absl::Time now) {
  for (const Member& ended : effects.ended) {
    KnownMember& member = members_[ended.island_id];
    // A process that joined in the same event has replaced it.
    if (std::any_of(effects.joined.begin(), effects.joined.end(),
                    [&](const Member& joined) {
                      return joined.island_id == ended.island_id &&
                             joined.incarnation == ended.incarnation + 1;
                    })) {
      continue;
    }
    // An operator may repeat the eviction of an island that is gone.
    const bool again = !member.live &&
                       member.incarnation == ended.incarnation &&
                       absl::StartsWith(ended.reason, kByOperator);
    if (again) continue;
    if (!member.live || member.incarnation != ended.incarnation) {
      Fail(ended.island_id, ".", ended.incarnation,
           " was ended, but is no member");
    }
    member.live = false;
    if (ended.state == v1::IslandStatus::EVICTED &&
        now - member.heard_surely <= lease_) {
      Fail(ended.island_id, ".", ended.incarnation,
           " was evicted within its lease");
    }
  }
  for (const v1::ValidationPoint& point : effects.validations) {
    const v1::Validation& validation = point.validation();
    if (validation.version() <= validated_) {
      Fail("version ", validation.version(), " of the model is measured after ",
           validated_);
    }
    validated_ = validation.version();
    commits_.CheckValidation(validation, core.schedule());
  }
  if (effects.flags.has_value()) NotePause(effects.flags->paused, now);
  for (const ClosedRound& closed : effects.outer_steps) {
    CheckClosed(closed, core, now);
  }
}

void Checker::NotePause(bool paused, absl::Time now) {
  if (paused) {
    paused_at_ = std::min(paused_at_, now);
    return;
  }
  const absl::Time begin = std::exchange(paused_at_, absl::InfiniteFuture());
  if (begin == absl::InfiniteFuture()) return;
  for (OpenRound& open : rounds_) {
    if (open.quorum_at == absl::InfiniteFuture()) continue;
    open.quorum_at =
        now - std::max(begin - open.quorum_at, absl::ZeroDuration());
  }
}

void Checker::CheckClosed(const ClosedRound& closed, const Coordinator& core,
                          absl::Time now) {
  const std::string name = absl::StrCat("round ", closed.base_version + 1,
                                        " of fragment ", closed.fragment);
  const v1::MembershipConfig& config = scenario_->config.membership();
  OpenRound& open = rounds_[closed.fragment];
  if (open.merging) Fail(name, " is merged while a merge is under way");
  if (core.run_state() == v1::PAUSED) Fail(name, " was closed in a pause");
  open.merging = true;
  const uint64_t newest = commits_.newest_version(closed.fragment);
  if (closed.base_version != newest) {
    Fail(name, " was closed, but version ", newest, " is the newest");
  }
  if (closed.contributions.size() < config.quorum()) {
    Fail(name, " was closed with ", closed.contributions.size(),
         " contributions; the quorum is ", config.quorum());
  }
  std::set<std::string> merged;
  for (const v1::ContributionHeader& header : closed.contributions) {
    merged.insert(header.object().digest());
    if (header.base_version() != closed.base_version ||
        header.fragment() != closed.fragment) {
      Fail(name, " merges a contribution to version ", header.base_version(),
           " of fragment ", header.fragment());
    }
  }
  if (merged != open.accepted) {
    Fail(name, " merges ", merged.size(), " contributions, but ",
         open.accepted.size(), " were accepted");
  }
  const std::string awaited = Awaited(closed.fragment, core);
  if (!awaited.empty() &&
      now < open.quorum_at + absl::Seconds(config.grace_seconds())) {
    Fail(name, " was closed within its grace window, without ", awaited);
  }
  if (healed_ && scenario_->IsEven()) CheckParticipation(closed);
}

void Checker::CheckParticipation(const ClosedRound& closed) {
  for (auto& [island, member] : members_) {
    const bool merged =
        std::any_of(closed.contributions.begin(), closed.contributions.end(),
                    [&island = island](const v1::ContributionHeader& header) {
                      return header.identity().island_id() == island;
                    });
    if (!member.live || !member.ready || member.draining || merged) continue;
    if (++member.rounds_missed <=
        kMostMissed * scenario_->plan.fragments_size())
      continue;
    Fail("though nothing fails any more, island ", island, " missed ",
         member.rounds_missed, " rounds, now round ", closed.base_version + 1,
         " of fragment ", closed.fragment);
  }
}

std::string Checker::Awaited(uint32_t fragment, const Coordinator& core) const {
  const OpenRound& open = rounds_[fragment];
  for (const auto& [island, member] : members_) {
    const Member& known = core.membership().members().at(island);
    if (member.live && member.ready &&
        known.first_contribution_version[fragment] <=
            core.round(fragment).base_version() &&
        !open.credited.contains({island, member.incarnation})) {
      return island;
    }
  }
  return "";
}

void Checker::Ticked(const Coordinator& core, absl::Time now) {
  for (const auto& [island, member] : members_) {
    if (member.live && now - member.heard_at_most > lease_) {
      Fail(island, ".", member.incarnation,
           " is still a member, though its lease has ended");
    }
  }
  if (core.run_state() == v1::PAUSED) return;
  const v1::MembershipConfig& config = scenario_->config.membership();
  for (uint32_t fragment = 0; fragment < rounds_.size(); ++fragment) {
    const OpenRound& open = rounds_[fragment];
    if (!open.merging && open.accepted.size() >= config.quorum() &&
        now > open.failed_at + kRetryPause &&
        (now >= open.quorum_at + absl::Seconds(config.grace_seconds()) ||
         Awaited(fragment, core).empty())) {
      Fail("fragment ", fragment, " has what it needs for version ",
           core.round(fragment).base_version() + 1,
           ", but its round stays open");
    }
  }
}

void Checker::OuterStepEnds(uint32_t fragment, bool committed, absl::Time now) {
  if (committed) {
    rounds_[fragment] = {};
  } else {
    rounds_[fragment].merging = false;
    rounds_[fragment].failed_at = now;
  }
}

void Checker::SetAside(const ClosedRound& closed, const Coordinator& core,
                       const Effects& effects) {
  const auto largest =
      std::max_element(closed.norms.begin(), closed.norms.end());
  const v1::ContributionHeader& header =
      closed.contributions[static_cast<size_t>(largest - closed.norms.begin())];
  const Round& round = core.round(closed.fragment);
  OpenRound& open = rounds_[closed.fragment];
  // The coordinator closes the round again at once if it can.
  open.failed_at = absl::InfinitePast();
  open.accepted.erase(header.object().digest());
  if (open.accepted.size() < scenario_->config.membership().quorum()) {
    open.quorum_at = absl::InfiniteFuture();
  }
  // The contribution no longer counts for any process.
  std::erase_if(open.credited, [&](const auto& credited) {
    ContributionKey own = KeyOf(header);
    own.incarnation = credited.second;
    return credited.first == own.island_id &&
           !round.contributions().contains(own);
  });
  // Members that have to offer again must join again, even if their leases
  // last.
  for (const Member& ended : effects.ended) Evicted(ended.island_id);
}

void Checker::Inspect(const Coordinator& core, const Staging& staging) {
  for (uint32_t fragment = 0; fragment < rounds_.size(); ++fragment) {
    const Round& round = core.round(fragment);
    const v1::FragmentHead& head = core.heads()[fragment].head;
    commits_.Heard(head);
    if (round.base_version() != head.version()) {
      Fail("the open round builds on version ", round.base_version(), ", not ",
           NameOf(head));
    }
    if (round.merging() != rounds_[fragment].merging) {
      Fail("fragment ", fragment, round.merging() ? " is" : " is not",
           " being merged, but an outer step was ",
           round.merging() ? "not ordered" : "ordered");
    }
    commits_.CheckLedger(core.FragmentLedger(fragment), head);
    for (const auto& [key, header] : round.contributions()) {
      // The bytes of admitted contributions lie elsewhere.
      if (std::any_of(core.quarantine().entries().begin(),
                      core.quarantine().entries().end(),
                      [&, &key = key](const auto& entry) {
                        const v1::ContributionHeader& held =
                            entry.second.header;
                        return entry.second.in_round &&
                               held.fragment() == key.fragment &&
                               held.identity().island_id() == key.island_id &&
                               held.identity().incarnation() == key.incarnation;
                      })) {
        continue;
      }
      const absl::Status staged = staging.Get(key).status();
      if (!staged.ok()) {
        Fail("the bytes of an accepted contribution are gone: ",
             staged.message());
      }
    }
  }
}

}  // namespace causeway::simulation
