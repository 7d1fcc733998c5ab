// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/membership.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr absl::Duration kLease = absl::Seconds(10);

v1::JoinRequest Request(const std::string& island, uint64_t instance) {
  v1::JoinRequest request;
  request.set_island_id(island);
  request.set_instance_id(instance);
  return request;
}

v1::IslandIdentity Identity(const std::string& island, uint64_t incarnation) {
  v1::IslandIdentity identity;
  identity.set_run_id("run-1");
  identity.set_island_id(island);
  identity.set_incarnation(incarnation);
  return identity;
}

std::vector<std::string> Names(const std::vector<Member*>& members) {
  std::vector<std::string> names;
  for (const Member* member : members) names.push_back(member->island_id);
  return names;
}

class MembershipTest : public testing::Test {
 protected:
  // Returns the new member; expects success.
  Member& Join(const std::string& island, uint64_t instance,
               absl::Time now = kStart) {
    const auto joined = members_.Join(Request(island, instance), now);
    EXPECT_OK(joined);
    EXPECT_TRUE(joined->is_new);
    return *joined->member;
  }

  Membership members_{Membership::Options{
      .run_id = "run-1", .max_islands = 3, .shards = 2, .lease = kLease}};
};

TEST_F(MembershipTest, IncarnationsOfANameRise) {
  for (uint64_t incarnation = 1; incarnation <= 4; ++incarnation) {
    Member& member = Join("oslo", /*instance=*/incarnation + 100);
    EXPECT_EQ(member.incarnation, incarnation);
    EXPECT_EQ(Join("bergen", incarnation + 200).incarnation, incarnation);
    members_.End(member, v1::IslandStatus::EVICTED, "test", kStart);
    members_.End(*members_.Live().front(), v1::IslandStatus::LEFT, "test",
                 kStart);
  }
}

TEST_F(MembershipTest, ANameThatJoinsTooOftenHasToWait) {
  uint64_t instance = 0;
  const auto join = [&](absl::Time now) {
    const auto joined = members_.Join(Request("a", ++instance), now);
    if (joined.ok()) {
      members_.End(*joined->member, v1::IslandStatus::LEFT, "left", now);
    }
    return joined.status();
  };
  for (int i = 0; i < Membership::kMostJoins; ++i) ASSERT_OK(join(kStart));
  EXPECT_THAT(join(kStart), IsResourceExhausted("too often; retry in 10s"));
  EXPECT_OK(members_.Join(Request("b", 1), kStart).status());
  const absl::Time later = kStart + Membership::kJoinPause;
  EXPECT_OK(join(later));
  EXPECT_THAT(join(later), IsResourceExhausted());
  EXPECT_OK(join(later + absl::Hours(24)));
}

TEST_F(MembershipTest, ARetriedJoinIsTheSameMembership) {
  const Member& first = Join("oslo", 7);
  const absl::Time later = kStart + kLease;
  ASSERT_OK_AND_ASSIGN(const Membership::JoinResult again,
                       members_.Join(Request("oslo", 7), later));
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.member, &first);
  EXPECT_EQ(first.incarnation, 1);
  // The retry renews the lease.
  EXPECT_THAT(members_.Expired(later + kLease), IsEmpty());
}

TEST_F(MembershipTest, TheSameProcessComesBackAsANewIncarnation) {
  members_.End(Join("oslo", 7), v1::IslandStatus::EVICTED, "no heartbeat",
               kStart);
  const Member& back = Join("oslo", 7, kStart + absl::Seconds(1));
  EXPECT_EQ(back.incarnation, 2);
  EXPECT_EQ(back.state, v1::IslandStatus::LIVE);
  EXPECT_EQ(back.joined_at, kStart + absl::Seconds(1));
  EXPECT_EQ(back.reason, "");
}

TEST_F(MembershipTest, ANameInUseIsRefusedAndTheMessageSaysWhatToDo) {
  Join("oslo", 7);
  EXPECT_THAT(members_.Join(Request("oslo", 8), kStart + absl::Seconds(4)),
              IsResourceExhausted("\"oslo\" is already joined (incarnation 1, "
                                  "last heard from 4 s ago)",
                                  "its lease ends in 6 s; retry"));
  EXPECT_THAT(members_.Join(Request("oslo", 8), kStart + absl::Seconds(4.0123)),
              IsResourceExhausted("last heard from 4 s ago", "ends in 6 s;"));
  EXPECT_EQ(members_.members().at("oslo").instance_id, 7);
  // The refused process does not renew the lease of the one that has the name.
  EXPECT_THAT(Names(members_.Expired(kStart + absl::Seconds(11))),
              ElementsAre("oslo"));
}

TEST_F(MembershipTest, RefusesRequestsThatCannotBeMembers) {
  for (const std::string& name : {std::string(), std::string("Oslo"),
                                  std::string("a/b"), std::string(65, 'a')}) {
    EXPECT_THAT(members_.Join(Request(name, 7), kStart),
                IsInvalidArgument("1 to 64 of [a-z0-9-]"));
  }
  EXPECT_THAT(members_.Join(Request("oslo", 0), kStart),
              IsInvalidArgument("instance_id is 0"));
  v1::JoinRequest foreign = Request("oslo", 7);
  foreign.set_expected_run_id("run-2");
  EXPECT_THAT(members_.Join(foreign, kStart),
              IsFailedPrecondition("run-1", "run-2"));
  EXPECT_THAT(members_.members(), IsEmpty());
  foreign.set_expected_run_id("run-1");
  EXPECT_OK(members_.Join(foreign, kStart));
}

TEST_F(MembershipTest, OnlyLiveIslandsCountAgainstTheLimit) {
  Member& first = Join("a", 1);
  Join("b", 2);
  Join("c", 3);
  EXPECT_THAT(members_.Join(Request("d", 4), kStart),
              IsResourceExhausted("3 live islands", "membership.max_islands"));
  // A retry needs no further place.
  EXPECT_OK(members_.Join(Request("a", 1), kStart));
  members_.End(first, v1::IslandStatus::LEFT, "finished", kStart);
  EXPECT_EQ(members_.live_count(), 2);
  EXPECT_OK(members_.Join(Request("d", 4), kStart));
}

TEST_F(MembershipTest, FencesOffAllButTheLiveIncarnation) {
  Member& member = Join("oslo", 7);
  EXPECT_THAT(members_.Check(Identity("oslo", 1)), IsOkAndHolds(&member));

  v1::IslandIdentity other_run = Identity("oslo", 1);
  other_run.set_run_id("run-2");
  EXPECT_THAT(members_.Check(other_run),
              IsFailedPrecondition("run-1", "run-2"));
  EXPECT_THAT(members_.Check(Identity("bergen", 1)), IsAborted("not a member"));
  EXPECT_THAT(members_.Check(Identity("oslo", 2)), IsAborted());

  for (const v1::IslandStatus::State ended :
       {v1::IslandStatus::LEFT, v1::IslandStatus::EVICTED}) {
    Member& live = *members_.Live().front();
    const uint64_t incarnation = live.incarnation;
    members_.End(live, ended, "pre-emption notice", kStart);
    EXPECT_THAT(members_.Check(Identity("oslo", incarnation)),
                IsAborted("pre-emption notice", "join again"));
    Join("oslo", 100 + incarnation);
    EXPECT_THAT(members_.Check(Identity("oslo", incarnation)),
                IsAborted(absl::StrCat("current one is ", incarnation + 1)));
    EXPECT_OK(members_.Check(Identity("oslo", incarnation + 1)));
  }
}

TEST_F(MembershipTest, NoProcessContinuesFromADivergedOne) {
  members_.End(Join("oslo", 7), v1::IslandStatus::DIVERGED, "not finite",
               kStart);
  EXPECT_THAT(members_.Join(Request("oslo", 7), kStart), IsOutOfRange());
  // Its process may also have continued from the checkpoint of process 6.
  for (const uint64_t whose : {6, 7}) {
    v1::JoinRequest successor = Request("oslo", 8);
    successor.set_replaces_instance_id(whose);
    EXPECT_THAT(members_.Join(successor, kStart), IsOutOfRange());
  }
  EXPECT_EQ(Join("oslo", 8).incarnation, 2) << "from the run's parameters";
}

TEST_F(MembershipTest, ALaterProcessDoesNotContinueFromBeforeADivergence) {
  members_.End(Join("oslo", 7), v1::IslandStatus::DIVERGED, "not finite",
               kStart);
  members_.End(Join("oslo", 8), v1::IslandStatus::LEFT, "resumes", kStart);
  Membership restarted(Membership::Options{.run_id = "run-1"});
  restarted.Restore(members_.members().at("oslo"), kStart);
  for (Membership* const members : {&members_, &restarted}) {
    v1::JoinRequest successor = Request("oslo", 9);
    for (const uint64_t older : {6, 7, 9}) {
      successor.set_replaces_instance_id(older);
      EXPECT_THAT(members->Join(successor, kStart), IsOutOfRange());
    }
    // A copy replaces no process.
    successor.set_saved_by(7);
    EXPECT_THAT(members->Join(successor, kStart), IsOutOfRange());
    successor.set_saved_by(8);
    ASSERT_OK_AND_ASSIGN(Membership::JoinResult joined,
                         members->Join(successor, kStart));
    members->End(*joined.member, v1::IslandStatus::LEFT, "killed", kStart);
    // The checkpoint may be that of either process.
    for (const uint64_t newer : {8, 9}) {
      v1::JoinRequest next = Request("oslo", 10 + newer);
      next.set_replaces_instance_id(newer);
      ASSERT_OK_AND_ASSIGN(joined, members->Join(next, kStart));
      members->End(*joined.member, v1::IslandStatus::LEFT, "killed", kStart);
    }
    ASSERT_OK_AND_ASSIGN(joined, members->Join(Request("oslo", 30), kStart));
    members->End(*joined.member, v1::IslandStatus::DIVERGED, "again", kStart);
    ASSERT_OK(members->Join(Request("oslo", 31), kStart));
    members->End(*members->Live().front(), v1::IslandStatus::LEFT, "left",
                 kStart);
    successor.set_instance_id(32);
    EXPECT_THAT(members->Join(successor, kStart), IsOutOfRange());
  }
}

TEST_F(MembershipTest, ALeaseEndsOnlyAfterItsWholeLength) {
  Join("b", 1);
  Join("a", 2, kStart + absl::Seconds(1));
  EXPECT_THAT(members_.Expired(kStart + kLease), IsEmpty());
  EXPECT_THAT(Names(members_.Expired(kStart + kLease + absl::Nanoseconds(1))),
              ElementsAre("b"));
  EXPECT_THAT(Names(members_.Expired(kStart + 2 * kLease)),
              ElementsAre("a", "b"));
  // Listing changes nothing; ending does.
  for (Member* member : members_.Expired(kStart + 2 * kLease)) {
    members_.End(*member, v1::IslandStatus::EVICTED, "silent", kStart);
  }
  EXPECT_THAT(members_.Expired(absl::InfiniteFuture()), IsEmpty());
  EXPECT_THAT(members_.Live(), IsEmpty());
}

TEST_F(MembershipTest, LiveIslandsHaveDifferentPlacesAtTheData) {
  // Two shards: places 0 and 1 are shards, 2 and 3 the same in another order.
  EXPECT_EQ(Join("a", 1).place, 0);
  Member& second = Join("b", 2);
  EXPECT_EQ(second.place, 1);
  Member& third = Join("c", 3);
  EXPECT_EQ(third.place, 2) << "three islands, two shards";
  // The next island continues where one has ended ...
  members_.End(second, v1::IslandStatus::LEFT, "finished", kStart);
  Member& replacement = Join("d", 4);
  EXPECT_EQ(replacement.place, 1);
  members_.End(third, v1::IslandStatus::LEFT, "finished", kStart);
  // ... and a name that comes back gets its old shard, in another order while
  // the place is taken.
  Member& shared = Join("b", 5);
  EXPECT_EQ(shared.place, 3);
  members_.End(shared, v1::IslandStatus::LEFT, "finished", kStart);
  members_.End(replacement, v1::IslandStatus::LEFT, "finished", kStart);
  EXPECT_EQ(Join("b", 6).place, 3);
}

TEST_F(MembershipTest, ANewIslandReadsTheShardWithTheFewestReaders) {
  Member& first = Join("a", 1);
  Member& second = Join("b", 2);
  EXPECT_EQ(Join("c", 3).place, 2);
  members_.End(first, v1::IslandStatus::LEFT, "finished", kStart);
  members_.End(second, v1::IslandStatus::LEFT, "finished", kStart);
  // Place 0 is free, too, but "c" reads its shard.
  EXPECT_EQ(Join("d", 4).place, 1);
  EXPECT_EQ(Join("e", 5).place, 0);
}

TEST_F(MembershipTest, AnEndedMemberReadsNoShard) {
  Member& first = Join("a", 1);
  ASSERT_EQ(first.place, 0);
  members_.End(first, v1::IslandStatus::EVICTED, "its lease ended", kStart);
  EXPECT_EQ(Join("b", 2).place, 0);
}

TEST_F(MembershipTest, RestoredMembersKeepTheirPlaceAndGetAFreshLease) {
  members_.Restore({.island_id = "oslo",
                    .incarnation = 5,
                    .instance_id = 7,
                    .state = v1::IslandStatus::LIVE,
                    .place = 1},
                   kStart + absl::Hours(1));
  members_.Restore({.island_id = "bergen",
                    .incarnation = 3,
                    .state = v1::IslandStatus::EVICTED,
                    .reason = "no heartbeat"},
                   kStart + absl::Hours(1));
  EXPECT_EQ(members_.live_count(), 1);
  EXPECT_OK(members_.Check(Identity("oslo", 5)));
  EXPECT_THAT(members_.Check(Identity("bergen", 3)), IsAborted());
  EXPECT_THAT(members_.Expired(kStart + absl::Hours(1) + kLease), IsEmpty());
  EXPECT_EQ(Join("bergen", 8).incarnation, 4);
  // The process retries a Join whose answer was lost in the restart.
  ASSERT_OK_AND_ASSIGN(const Membership::JoinResult again,
                       members_.Join(Request("oslo", 7), kStart));
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.member->incarnation, 5);
}

TEST_F(MembershipTest, TheEndOfAMembershipIsNoted) {
  Member& member = Join("oslo", 7);
  members_.End(member, v1::IslandStatus::LEFT, "test",
               kStart + absl::Seconds(3));
  EXPECT_EQ(member.ended_at, kStart + absl::Seconds(3));
  EXPECT_EQ(member.reason, "test");
  EXPECT_THAT(members_.FindLive("oslo"), IsNotFound());
}

TEST_F(MembershipTest, ANameIsTakenIfItsProcessIsHeardOfLongAfterTheOtherCame) {
  Member& member = Join("oslo", 7);
  const auto come = [&](uint64_t instance, int64_t second) {
    return members_
        .Join(Request("oslo", instance), kStart + absl::Seconds(second))
        .status();
  };
  const auto retry = IsResourceExhausted();
  const auto taken = IsAlreadyExists("another name");
  EXPECT_THAT(come(8, 4), retry);
  EXPECT_THAT(come(8, 5), retry);
  // This heartbeat may have been under way when the process died.
  member.last_heartbeat = kStart + absl::Seconds(9);
  EXPECT_THAT(come(8, 9), retry);
  member.last_heartbeat = kStart + absl::Seconds(10);
  EXPECT_THAT(come(8, 11), taken);
  // It may have died since.
  EXPECT_THAT(come(9, 12), retry);
  EXPECT_THAT(come(9, 19), retry);
  members_.End(*members_.Expired(kStart + absl::Seconds(21)).front(),
               v1::IslandStatus::EVICTED, "", kStart + absl::Seconds(21));
  EXPECT_OK(come(9, 21));
  EXPECT_EQ(members_.members().at("oslo").incarnation, 2);
}

TEST_F(MembershipTest, AnExtendedLeaseIsNoSignOfLife) {
  Member& member = Join("oslo", 7);
  const auto come = [&](int64_t second) {
    return members_.Join(Request("oslo", 8), kStart + absl::Seconds(second))
        .status();
  };
  EXPECT_THAT(come(4), IsResourceExhausted());
  // Twice no member could be heard for a minute.
  members_.ExtendLeases(absl::Minutes(1), kStart + absl::Seconds(65));
  EXPECT_THAT(come(66), IsResourceExhausted());
  members_.ExtendLeases(absl::Minutes(1), kStart + absl::Seconds(126));
  EXPECT_THAT(come(127), IsResourceExhausted());
  EXPECT_THAT(members_.Expired(kStart + absl::Seconds(130)), IsEmpty());
  EXPECT_THAT(Names(members_.Expired(kStart + absl::Seconds(131))),
              ElementsAre("oslo"));
  // It is heard of for half a lease after the last such minute.
  member.last_heartbeat = kStart + absl::Seconds(129);
  EXPECT_THAT(come(129), IsResourceExhausted());
  member.last_heartbeat = kStart + absl::Seconds(130);
  EXPECT_THAT(come(130), IsAlreadyExists());
}

TEST_F(MembershipTest, OnlyAnotherLiveProcessIsReplaced) {
  Member& member = Join("oslo", 7);
  v1::JoinRequest request = Request("oslo", 8);
  const auto replaced = [&](uint64_t instance) {
    request.set_replaces_instance_id(instance);
    return members_.Replaced(request);
  };
  EXPECT_EQ(replaced(7), &member);
  EXPECT_EQ(replaced(6), nullptr);
  EXPECT_EQ(replaced(0), nullptr);
  request.set_instance_id(7);
  EXPECT_EQ(replaced(7), nullptr) << "a process does not replace itself";
  request.set_instance_id(8);
  members_.End(member, v1::IslandStatus::LEFT, "test", kStart);
  EXPECT_EQ(replaced(7), nullptr);
}

TEST_F(MembershipTest, AnEndedMemberKeepsNoDetailsOfItsRanks) {
  Member& member = Join("a", 1);
  for (int i = 0; i < 2048; ++i) member.progress.add_ranks()->set_tokens(1);
  member.progress.set_loss(2);
  members_.End(member, v1::IslandStatus::LEFT, "left", kStart);
  EXPECT_EQ(member.progress.ranks_size(), 0);
  EXPECT_EQ(member.progress.loss(), 2);
}

TEST_F(MembershipTest, TheFirstEndedMembersAreForgotten) {
  constexpr int kMost = Membership::kMostDeparted;
  Join("live", 1);
  Member& diverged = Join("diverged", 1);
  members_.End(diverged, v1::IslandStatus::DIVERGED, "far off", kStart);
  for (uint64_t instance = 1; instance <= 3; ++instance) {
    members_.End(Join("first", instance), v1::IslandStatus::LEFT, "left",
                 kStart);
  }
  for (int i = 0; i < kMost; ++i) {
    EXPECT_EQ(members_.members().count("first"), i + 1 < kMost) << i;
    const absl::Time now = kStart + absl::Seconds(i + 1);
    members_.End(Join(absl::StrCat("island-", i), 1, now),
                 v1::IslandStatus::EVICTED, "gone", now);
  }
  EXPECT_EQ(members_.members().size(), kMost + 1);
  EXPECT_EQ(members_.members().count("first"), 0);
  EXPECT_EQ(members_.members().count("island-0"), 0);
  EXPECT_EQ(members_.members().count("island-1"), 1);
  EXPECT_EQ(members_.members().count("live"), 1);
  EXPECT_EQ(members_.members().count("diverged"), 1)
      << "its process must learn that it may not go on";
  // Calls of the forgotten incarnations stay fenced off.
  EXPECT_GT(Join("first", 4).incarnation, 3);
  EXPECT_THAT(members_.Check(Identity("first", 3)), IsAborted());
}

TEST_F(MembershipTest, AForgottenMemberComesBackAboveItsIncarnations) {
  constexpr int kMost = Membership::kMostDeparted;
  for (int i = 0; i <= kMost; ++i) {
    members_.Restore({.island_id = absl::StrCat("island-", i),
                      .incarnation = i == kMost ? 7u : 1u,
                      .state = v1::IslandStatus::LEFT,
                      .ended_at = kStart + absl::Seconds(kMost - i)},
                     kStart);
  }
  const std::string forgotten = absl::StrCat("island-", kMost);
  EXPECT_EQ(members_.members().size(), kMost);
  EXPECT_EQ(members_.members().count(forgotten), 0);
  EXPECT_EQ(Join(forgotten, 1).incarnation, 8);
}

}  // namespace
}  // namespace causeway
