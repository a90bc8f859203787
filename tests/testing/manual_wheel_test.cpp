// manual_wheel_test.cpp - the host that a test winds by hand keeps the contract of timer_host, to
// the nanosecond, and does what its header says about time, polls, turns and sockets.
#include "idlewheel/testing/manual_wheel.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace idlewheel::testing {
namespace {
using namespace std::chrono_literals;

instant at(std::chrono::nanoseconds since_start) { return instant{since_start}; }

struct firing {
  explicit firing(manual_wheel& host) : time{host} {}
  manual_wheel& time;
  timer t{[this] { note(); }};
  std::vector<instant> when;
  std::function<void()> then;

  void note() {
    when.push_back(time.now());
    if (then) then();
  }
};

class ManualWheel : public ::testing::TestWithParam<refresh_mode> {
 protected:
  manual_wheel_options options(timespan tick = 100ms) const {
    return {.tick = tick, .refresh = GetParam()};
  }
};

// Time -------------------------------------------------------------------------------------------

TEST_P(ManualWheel, StartsAtZeroOrWhereTheOptionsSay) {
  manual_wheel zero{options()};
  EXPECT_EQ(zero.now(), instant{});
  EXPECT_EQ(zero.poll_time(), instant{});
  EXPECT_EQ(zero.wheel().now(), 0u);
  auto late = options();
  late.start = at(1234567890123ns);
  manual_wheel other{late};
  EXPECT_EQ(other.now(), late.start);
  EXPECT_EQ(other.poll_time(), late.start);
  EXPECT_EQ(other.wheel().now(), 12345u);
}

TEST_P(ManualWheel, MovesByAdvanceAndBlockOnly) {
  manual_wheel time{options()};
  time.advance(3s);
  EXPECT_EQ(time.now(), at(3s));
  EXPECT_EQ(time.poll_time(), at(3s));
  time.block(2s);
  EXPECT_EQ(time.now(), at(5s));
  EXPECT_EQ(time.poll_time(), at(3s));
  time.poll();
  EXPECT_EQ(time.poll_time(), at(5s));
  time.turn();
  time.advance(0s);
  time.block(0s);
  EXPECT_EQ(time.now(), at(5s));
}

TEST_P(ManualWheel, OptionsAreThoseOfItsWheel) {
  manual_wheel time{{.tick = 7ms, .slots = 100, .refresh = GetParam()}};
  EXPECT_EQ(time.scale().length(), timespan{7ms});
  EXPECT_EQ(time.wheel().slots(), 128u);
  EXPECT_EQ(time.wheel().refresh_by(), GetParam());
  EXPECT_FALSE(time.closed());
  manual_wheel plain;
  EXPECT_EQ(plain.scale().length(), timespan{100ms});
  EXPECT_EQ(plain.wheel().slots(), 512u);
}

TEST(ManualWheelOptions, WrongOnesAreRefusedWithTheValue) {
  const auto text = [](const manual_wheel_options& options) -> std::string {
    try {
      manual_wheel{options};
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(text({.tick = 0ns}).find("not 0 ns"), std::string::npos);
  EXPECT_NE(text({.tick = -3ns}).find("not -3 ns"), std::string::npos);
  EXPECT_NE(text({.slots = 0}).find("not 0"), std::string::npos);
  EXPECT_NE(text({.slots = timer_wheel::max_slots + 1}).find("not 16777217"), std::string::npos);
  EXPECT_NE(text({.budget = 0}).find("not 0"), std::string::npos);
  EXPECT_NE(text({.start = instant{-1ns}}).find("not -1 ns"), std::string::npos);
  EXPECT_NE(text({.start = instant::max()}).find("146 years"), std::string::npos);
}

TEST_P(ManualWheel, TimeDoesNotStepBackWhenACallbackBlocksLongerThanTheAdvance) {
  manual_wheel time{options()};
  timer blocks{[&] { time.block(5s); }};
  time.arm(blocks, 500ms);
  time.advance(1s);
  EXPECT_GE(time.now(), instant{5500ms});
  EXPECT_LE(time.poll_time(), time.now());
}

TEST_P(ManualWheel, NoClockReadIsEverBehindAPoll) {
  manual_wheel time{options()};
  for (int i = 0; i != 10; ++i) {
    time.block(std::chrono::milliseconds{i});
    EXPECT_LE(time.poll_time(), time.now());
    time.poll();
    EXPECT_EQ(time.poll_time(), time.now());
  }
}

// Firing -----------------------------------------------------------------------------------------

// Every phase of a tick with every timeout over three ticks, a nanosecond at a time.
TEST_P(ManualWheel, FiresAtTheFirstTickAtOrAfterTheDeadline) {
  for (std::int64_t phase = 0; phase != 21; ++phase)
    for (std::int64_t timeout = 0; timeout != 32; ++timeout) {
      SCOPED_TRACE(::testing::Message() << "armed at " << phase << ", timeout " << timeout);
      manual_wheel time{options(10ns)};
      time.advance(std::chrono::nanoseconds{phase});
      firing f{time};
      ASSERT_TRUE(time.arm(f.t, std::chrono::nanoseconds{timeout}));
      for (int i = 0; i != 64; ++i) time.advance(1ns);
      ASSERT_EQ(f.when.size(), 1u);
      const std::int64_t fired = f.when[0].time_since_epoch().count();
      const std::int64_t deadline = (phase + timeout + 9) / 10 * 10;
      if (deadline > phase) {
        EXPECT_EQ(fired, deadline);
      } else {  // reached already: in the next turn that judges
        EXPECT_LE(fired, phase + 10);
      }
      EXPECT_GE(fired, phase + timeout);
    }
}

TEST_P(ManualWheel, OneLongAdvanceSeesEachTimerAtItsOwnTime) {
  manual_wheel time{options(1ms)};
  std::deque<firing> all;
  for (int i = 1; i <= 50; ++i) {
    all.emplace_back(time);
    time.arm(all.back().t, std::chrono::milliseconds{i * 37});
  }
  time.advance(1h);
  for (int i = 1; i <= 50; ++i) {
    ASSERT_EQ(all[static_cast<std::size_t>(i - 1)].when.size(), 1u);
    EXPECT_EQ(all[static_cast<std::size_t>(i - 1)].when[0], at(std::chrono::milliseconds{i * 37}));
  }
  EXPECT_EQ(time.now(), at(1h));
  EXPECT_EQ(time.turns(), 50u);
}

TEST_P(ManualWheel, ACallbackThatArmsAgainRunsAtEachOfItsTimes) {
  manual_wheel time{options(10ms)};
  firing f{time};
  f.then = [&] { time.arm(f.t, 1s); };
  time.arm(f.t, 1s);
  time.advance(10s);
  ASSERT_EQ(f.when.size(), 10u);
  for (std::size_t i = 0; i != 10; ++i) EXPECT_EQ(f.when[i], at(1s * (i + 1)));
  EXPECT_TRUE(time.wheel().check_invariants());
}

TEST_P(ManualWheel, ManyLapsAheadIsExactToo) {
  manual_wheel time{{.tick = 1ms, .slots = 8, .refresh = GetParam()}};
  firing soon{time}, far{time};
  time.arm(far.t, 24h);
  time.arm(soon.t, 9ms);
  time.advance(24h - 1ms);
  EXPECT_EQ(soon.when, std::vector{at(9ms)});
  EXPECT_TRUE(far.when.empty());
  time.advance(1ms);
  EXPECT_EQ(far.when, std::vector{at(24h)});
  EXPECT_LE(time.turns(), 3u) << "sleeps over the slots between";
}

TEST_P(ManualWheel, TheVerdictIsBasedOnThePollsTime) {
  manual_wheel time{options(10ms)};
  firing f{time};
  instant judged{};
  f.then = [&] { judged = time.judged_at(); };
  time.arm(f.t, 25ms);
  time.advance(1s);
  EXPECT_EQ(judged, at(30ms));
  EXPECT_EQ(time.judged_at(), at(30ms));
}

// Re-arming, refreshing --------------------------------------------------------------------------

TEST_P(ManualWheel, ArmCountsFromAFreshReadRefreshFromThePoll) {
  manual_wheel time{options(1ms)};
  firing armed{time}, refreshed{time}, with_timeout{time}, to_point{time};
  for (firing* f : {&refreshed, &with_timeout, &to_point}) time.arm(f->t, 10s);
  time.advance(1s);
  time.block(2s);
  time.arm(armed.t, 10s);
  EXPECT_TRUE(time.refresh(refreshed.t));
  EXPECT_TRUE(time.refresh(with_timeout.t, 5s));
  EXPECT_TRUE(time.refresh_at(to_point.t, at(7s)));
  EXPECT_EQ(armed.t.deadline(), 13'000u);
  EXPECT_EQ(refreshed.t.deadline(), 11'000u);
  EXPECT_EQ(with_timeout.t.deadline(), 6'000u);
  EXPECT_EQ(to_point.t.deadline(), 7'000u);
  EXPECT_EQ(with_timeout.t.timeout(), timespan{5s});
  EXPECT_EQ(to_point.t.timeout(), timespan{6s}) << "from the poll to there";
  EXPECT_EQ(refreshed.t.timeout(), timespan{10s});
}

TEST_P(ManualWheel, ARefreshMovesExactlyOnceATimeHasPassed) {
  manual_wheel time{options(10ms)};
  firing f{time};
  time.arm(f.t, 300ms);
  for (int i = 0; i != 50; ++i) {
    time.advance(70ms);
    EXPECT_TRUE(time.refresh(f.t));
  }
  EXPECT_TRUE(f.when.empty());
  time.advance(1s);
  EXPECT_EQ(f.when, std::vector{at(50 * 70ms + 300ms)});
  EXPECT_FALSE(time.refresh(f.t)) << "a refresh never revives";
  EXPECT_FALSE(time.refresh(f.t, 1s));
  EXPECT_FALSE(time.refresh_at(f.t, at(1h)));
}

TEST_P(ManualWheel, ARefreshMayBringItForward) {
  manual_wheel time{options(10ms)};
  firing by_timeout{time}, by_point{time};
  time.arm(by_timeout.t, 1h);
  time.arm(by_point.t, 1h);
  time.refresh(by_timeout.t, 50ms);
  time.refresh_at(by_point.t, at(20ms));
  time.advance(1s);
  EXPECT_EQ(by_timeout.when, std::vector{at(50ms)});
  EXPECT_EQ(by_point.when, std::vector{at(20ms)});
}

TEST_P(ManualWheel, ArmAtRemembersTheTimeFromNow) {
  manual_wheel time{options(10ms)};
  firing ahead{time}, past{time};
  time.advance(900ms);
  time.block(100ms);  // now is a fresh read, not the poll's time
  time.arm_at(ahead.t, at(1500ms));
  EXPECT_EQ(ahead.t.timeout(), timespan{500ms});
  time.arm_at(past.t, at(3ms));
  EXPECT_EQ(past.t.timeout(), timespan{});
  time.advance(1s);
  ASSERT_EQ(past.when.size(), 1u);
  EXPECT_LE(past.when[0], at(1010ms));
  EXPECT_EQ(ahead.when, std::vector{at(1500ms)});
}

TEST_P(ManualWheel, NegativeIsTheNextTickAndHugeIsNever) {
  manual_wheel time{options(10ms)};
  firing negative{time}, least{time}, most{time}, hours{time};
  time.advance(1s);
  time.arm(negative.t, -1ns);
  time.arm(least.t, std::chrono::nanoseconds::min());
  time.arm(most.t, timespan::max());
  time.arm(hours.t, std::chrono::hours::max());
  EXPECT_TRUE(negative.when.empty()) << "never inside arm";
  time.advance(100 * 365 * 24h);
  for (firing* f : {&negative, &least}) {
    ASSERT_EQ(f->when.size(), 1u);
    EXPECT_LE(f->when[0], at(1010ms));
  }
  EXPECT_TRUE(most.when.empty());
  EXPECT_TRUE(hours.when.empty());
  EXPECT_TRUE(most.t.cancel());
}

// Blocking, polling, turning ---------------------------------------------------------------------

TEST_P(ManualWheel, NothingIsJudgedWhileBlocked) {
  manual_wheel time{options(10ms)};
  firing f{time};
  time.arm(f.t, 50ms);
  time.block(1h);
  time.poll();
  EXPECT_TRUE(f.when.empty()) << "nor by the poll alone";
  EXPECT_EQ(time.turn().fired, 1u);
  EXPECT_EQ(f.when, std::vector{at(1h)});
}

TEST_P(ManualWheel, ATurnJudgesWhatWasDueWhenThePollBegan) {
  manual_wheel time{options(10ms)};
  firing f{time};
  time.arm(f.t, 50ms);
  time.poll();
  time.block(1s);
  EXPECT_EQ(time.turn().fired, 0u);
  EXPECT_TRUE(f.when.empty());
  EXPECT_EQ(time.turns(), 0u);
  time.poll();
  EXPECT_EQ(time.turn().fired, 1u);
  EXPECT_EQ(time.turns(), 1u);
}

TEST_P(ManualWheel, ATurnThatJudgesGoesNoFurtherThanItsPoll) {
  manual_wheel time{options(10ms)};
  firing due{time}, meanwhile{time};
  time.arm(due.t, 50ms);
  time.arm(meanwhile.t, 100ms);
  time.block(50ms);
  time.poll();
  time.block(1s);  // a handler
  EXPECT_EQ(time.turn().fired, 1u);
  EXPECT_EQ(time.judged_at(), at(50ms));
  EXPECT_TRUE(meanwhile.when.empty());
  time.advance(0s);
  EXPECT_EQ(meanwhile.when, std::vector{at(1050ms)});
}

TEST_P(ManualWheel, ATurnWithNothingDueIsNone) {
  manual_wheel time{options(10ms)};
  const progress nothing = time.turn();
  EXPECT_EQ(nothing.fired, 0u);
  EXPECT_FALSE(nothing.more);
  firing f{time};
  time.arm(f.t, 1s);
  time.advance(900ms);
  time.poll();
  time.turn();
  EXPECT_EQ(time.turns(), 0u);
  f.t.cancel();
  time.advance(1h);
  EXPECT_EQ(time.turns(), 0u) << "cancelled: nothing to come back for";
}

TEST_P(ManualWheel, AdvanceAfterABlockJudgesAtTheBlocksEnd) {
  manual_wheel time{options(10ms)};
  firing a{time}, b{time};
  time.arm(a.t, 50ms);
  time.arm(b.t, 1100ms);
  time.block(1s);
  time.advance(200ms);
  EXPECT_EQ(a.when, std::vector{at(1s)});
  EXPECT_EQ(b.when, std::vector{at(1100ms)});
}

TEST_P(ManualWheel, TheBudgetLimitsATurnAndTheRestFollows) {
  auto narrow = options(10ms);
  narrow.budget = 3;
  manual_wheel time{narrow};
  std::deque<firing> all;
  for (int i = 0; i != 8; ++i) {
    all.emplace_back(time);
    time.arm(all.back().t, 50ms);
  }
  time.block(60ms);
  time.poll();
  for (const auto& [fired, more] : {std::pair{3u, true}, {3u, true}, {2u, false}, {0u, false}}) {
    const progress done = time.turn();
    EXPECT_EQ(done.fired, fired);
    EXPECT_EQ(done.more, more);
    time.poll();
  }
  EXPECT_EQ(time.turns(), 3u);
  // And advance() goes on to the end, without letting time pass.
  for (firing& f : all) time.arm(f.t, 50ms);
  time.advance(1s);
  for (firing& f : all) {
    ASSERT_EQ(f.when.size(), 2u);
    EXPECT_EQ(f.when[1], at(110ms));
  }
  EXPECT_EQ(time.turns(), 6u);
}

TEST_P(ManualWheel, WhatTheBudgetLeftIsCancelledAndDestroyedLikeAnyOther) {
  auto narrow = options(10ms);
  narrow.budget = 1;
  manual_wheel time{narrow};
  auto all = std::make_unique<std::deque<firing>>();
  for (int i = 0; i != 4; ++i) {
    all->emplace_back(time);
    time.arm(all->back().t, 10ms);
  }
  time.block(10ms);
  time.poll();
  EXPECT_TRUE(time.turn().more);
  all.reset();
  EXPECT_FALSE(time.turn().more);
  EXPECT_EQ(time.wheel().size(), 0u);
  firing next{time};
  time.arm(next.t, 10ms);
  time.advance(1s);
  EXPECT_EQ(next.when, std::vector{at(20ms)});
}

TEST_P(ManualWheel, WhatIsArmedBetweenTwoBatchesIsNotForgotten) {
  auto narrow = options(10ms);
  narrow.budget = 1;
  manual_wheel time{narrow};
  firing a{time}, b{time}, extra{time};
  time.arm(a.t, 10ms);
  time.arm(b.t, 10ms);
  time.block(10ms);
  time.poll();
  EXPECT_TRUE(time.turn().more);
  time.arm(extra.t, 20ms);
  EXPECT_FALSE(time.turn().more);
  time.advance(1s);
  EXPECT_EQ(extra.when, std::vector{at(30ms)});
}

// Stalls -----------------------------------------------------------------------------------------

TEST_P(ManualWheel, ARefreshUnderAnOldStampIsNotEarlyAndLateByTheStallAtMost) {
  manual_wheel time{options(10ms)};
  firing bare{time}, with_timeout{time}, unaffected{time}, point{time};
  for (firing* f : {&bare, &with_timeout, &unaffected, &point}) time.arm(f->t, 1s);
  time.advance(500ms);
  time.refresh(unaffected.t);  // in a turn of its own
  time.advance(100ms);
  // A poll at 600 ms; a handler blocks until 3.6 s; then the bytes of the others are read.
  time.block(3s);
  time.refresh(bare.t);
  time.refresh(with_timeout.t, 2s);
  time.refresh_at(point.t, at(4s));
  time.turn();
  EXPECT_EQ(time.stalls(), 1u);
  EXPECT_EQ(time.longest_stall(), timespan{3s});
  EXPECT_TRUE(bare.when.empty());
  time.advance(10s);
  EXPECT_EQ(unaffected.when, std::vector{at(3600ms)});
  EXPECT_EQ(bare.when, std::vector{at(4600ms)});
  EXPECT_EQ(with_timeout.when, std::vector{at(5600ms)});
  EXPECT_EQ(point.when, std::vector{at(4s)}) << "a point is taken as it is";
}

TEST_P(ManualWheel, AStallIsForgivenOnceAndOnlyToItsStamps) {
  manual_wheel time{options(10ms)};
  firing f{time}, armed{time};
  time.arm(f.t, 1s);
  time.advance(100ms);
  time.block(3s);
  time.refresh(f.t);
  time.arm(armed.t, 1s);  // from a fresh read: nothing to forgive
  time.turn();
  time.advance(100ms);
  time.refresh(f.t);  // a newer stamp
  time.advance(10s);
  EXPECT_EQ(armed.when, std::vector{at(4100ms)});
  EXPECT_EQ(f.when, std::vector{at(4200ms)});
  // Armed anew, even for the deadline that had been forgiven once.
  time.arm(f.t, 1s);
  const instant now = time.now();
  time.advance(10s);
  EXPECT_EQ(f.when.back(), now + 1s);
}

TEST_P(ManualWheel, StampsWithinATickOfAStallShareItsLag) {
  // The stamp is known from the deadline, to within a tick: never early for any phase of it.
  for (std::int64_t phase = 0; phase != 20; ++phase)
    for (std::int64_t timeout = 20; timeout != 32; ++timeout) {
      SCOPED_TRACE(::testing::Message() << "phase " << phase << ", timeout " << timeout);
      manual_wheel time{options(10ns)};
      firing f{time};
      time.arm(f.t, std::chrono::nanoseconds{timeout});
      time.advance(std::chrono::nanoseconds{phase});
      time.block(100ns);
      time.refresh(f.t);
      const std::int64_t read = time.now().time_since_epoch().count();
      time.turn();
      time.advance(1us);
      ASSERT_EQ(f.when.size(), 1u);
      const std::int64_t fired = f.when[0].time_since_epoch().count();
      EXPECT_GE(fired, read + timeout);
      EXPECT_LT(fired, read + timeout + 20) << "a tick for the deadline and one for the lag";
    }
}

TEST_P(ManualWheel, LatestAddsTheLagOfAStampOnceItsTurnIsOver) {
  manual_wheel time{options(10ms)};
  firing f{time};
  time.arm(f.t, 1h);
  time.advance(1s);
  const instant stamp = time.poll_time();
  EXPECT_EQ(time.latest(stamp), stamp);
  time.block(2s);
  time.turn();
  EXPECT_EQ(time.latest(stamp), at(3s));
  EXPECT_EQ(time.latest(stamp - 1ns), stamp - 1ns);
  EXPECT_EQ(time.latest(stamp + 1ns), stamp + 1ns);
  time.advance(1s);
  EXPECT_EQ(time.latest(time.poll_time()), time.poll_time());
}

TEST_P(ManualWheel, ATurnThatUsedNoStampIsNoStall) {
  manual_wheel time{options(10ms)};
  firing f{time};
  time.arm(f.t, 1h);
  time.advance(1s);
  time.block(2s);
  time.turn();
  EXPECT_EQ(time.stalls(), 0u);
  time.advance(1s);
  time.refresh(f.t);
  time.turn();  // no time has passed since the poll
  EXPECT_EQ(time.stalls(), 0u);
  EXPECT_EQ(time.longest_stall(), timespan{});
}

TEST_P(ManualWheel, ARefreshInACallbackIsNoStallHoweverLongTheLoopSleepsThen) {
  manual_wheel time{options(10ms)};
  firing f{time}, refresher{time};
  time.arm(f.t, 10s);
  refresher.then = [&] { time.refresh(f.t); };
  time.arm(refresher.t, 1s);
  time.advance(1h);
  EXPECT_EQ(f.when, std::vector{at(11s)});
  EXPECT_EQ(time.stalls(), 0u);
  // The same when it is turned by hand.
  time.arm(f.t, 10s);
  time.arm(refresher.t, 1s);
  const instant armed = time.now();
  time.block(1s);
  time.poll();
  time.turn();
  time.advance(1h);
  EXPECT_EQ(f.when.back(), armed + 11s);
}

TEST_P(ManualWheel, AStampUsedUpToTheNextPollIsAccountedForThere) {
  manual_wheel time{options(10ms)};
  firing f{time};
  time.arm(f.t, 1s);
  time.block(500ms);
  time.refresh(f.t);
  time.poll();  // without turn()
  EXPECT_EQ(time.stalls(), 1u);
  EXPECT_EQ(time.longest_stall(), timespan{500ms});
  time.advance(10s);
  EXPECT_EQ(f.when, std::vector{at(1500ms)});
}

// More stalls than any log has room for, while each of many connections remembers one of them.
TEST_P(ManualWheel, NoNumberOfStallsMakesOneOfThemForgotten) {
  for (const int stalls : {100, 128, 129, 130, 200, 257, 1'000}) {
    SCOPED_TRACE(stalls);
    manual_wheel time{{.tick = 1ms, .slots = 64, .refresh = GetParam()}};
    std::deque<firing> all;
    std::vector<instant> read;
    for (int i = 0; i != stalls; ++i) {
      all.emplace_back(time);
      time.arm(all.back().t, 1h);
      time.poll();
      const auto stall = std::chrono::milliseconds{5 + i * 7 % 40};
      time.block(stall);
      time.refresh(all.back().t);
      read.push_back(time.now());
      time.turn();
      time.advance(10ms);
    }
    EXPECT_EQ(time.stalls(), static_cast<std::uint64_t>(stalls));
    EXPECT_EQ(time.longest_stall(), timespan{44ms});
    time.advance(2h);
    for (std::size_t i = 0; i != all.size(); ++i) {
      ASSERT_EQ(all[i].when.size(), 1u);
      EXPECT_GE(all[i].when[0] - read[i], 1h) << i;
      EXPECT_LE(all[i].when[0] - read[i], 1h + 44ms + 2ms) << i;
    }
  }
}

TEST_P(ManualWheel, AnArmBetweenTwoStallsIsLateByNoneOfThem) {
  // However many there were since: it counts from a clock read of its own, not from a stamp.
  manual_wheel time{{.tick = 1ms, .slots = 64, .refresh = GetParam()}};
  firing refreshed{time};
  time.arm(refreshed.t, 2h);
  std::deque<firing> all;
  std::vector<instant> armed;
  for (int i = 0; i != 1'000; ++i) {
    time.poll();
    time.block(40ms);
    time.refresh(refreshed.t);
    time.turn();
    time.advance(5ms);
    all.emplace_back(time);
    time.arm(all.back().t, 1h);
    armed.push_back(time.now());
    time.advance(5ms);
  }
  time.advance(3h);
  for (std::size_t i = 0; i != all.size(); ++i)
    EXPECT_EQ(all[i].when, std::vector{armed[i] + 1h}) << i;
}

TEST_P(ManualWheel, StallsLessThanATickApartAreEachAccountedFor) {
  // Timeouts around the tick, since rounding hides a lag that is shorter.
  for (const bool larger_first : {false, true})
    for (auto timeout = 9s + 0ms; timeout != 11s; timeout += 50ms) {
      SCOPED_TRACE(::testing::Message()
                   << "larger first " << larger_first << ", timeout " << timeout.count() << " ms");
      manual_wheel time{options(1s)};
      firing a{time}, b{time};
      time.arm(a.t, timeout);
      time.arm(b.t, timeout);
      std::vector<instant> read;
      for (firing* f : {&a, &b}) {
        time.poll();
        time.block((f == &a) == larger_first ? 600ms : 100ms);
        time.refresh(f->t);
        read.push_back(time.now());
        time.turn();
      }
      EXPECT_EQ(time.longest_stall(), timespan{600ms});
      time.advance(60s);
      EXPECT_GE(a.when.at(0) - read[0], timeout);
      EXPECT_GE(b.when.at(0) - read[1], timeout);
      EXPECT_LT(a.when[0] - read[0], timeout + 2s);
      EXPECT_LT(b.when[0] - read[1], timeout + 2s);
    }
}

TEST_P(ManualWheel, ALongStallIsNotChargedToAShortOneJustBefore) {
  manual_wheel time{options(1s)};
  firing a{time}, b{time};
  time.arm(a.t, 30s);
  time.arm(b.t, 30s);
  time.block(100ms);
  time.refresh(a.t);
  time.turn();
  time.poll();
  time.block(20s);
  time.refresh(b.t);
  time.turn();
  time.advance(90s);
  EXPECT_EQ(a.when, std::vector{at(31s)});
  EXPECT_EQ(b.when, std::vector{at(51s)});
}

// Callbacks --------------------------------------------------------------------------------------

TEST_P(ManualWheel, IsDestroyedByACallback) {
  for (const bool by_advance : {true, false})
    for (const std::size_t budget : {std::size_t{256}, std::size_t{1}}) {
      auto wide = options(10ms);
      wide.budget = budget;
      auto time = std::make_unique<manual_wheel>(wide);
      int fired = 0;
      struct killer {
        std::unique_ptr<manual_wheel>& time;
        int& fired;
        timer t{[this] {
          ++fired;
          time.reset();
        }};
      };
      killer first{time, fired}, second{time, fired}, far{time, fired};
      time->arm(first.t, 10ms);
      time->arm(second.t, 10ms);
      time->arm(far.t, 20ms);
      if (by_advance) {
        time->advance(1h);
      } else {
        time->block(10ms);
        time->poll();
        EXPECT_EQ(time->turn().fired, 1u);
      }
      EXPECT_EQ(time, nullptr);
      EXPECT_EQ(fired, 1);
      EXPECT_FALSE(far.t.armed());
    }
}

TEST_P(ManualWheel, IsClosedByACallback) {
  manual_wheel time{options(10ms)};
  firing first{time}, second{time};
  first.then = second.then = [&] { time.close(); };
  time.arm(first.t, 10ms);
  time.arm(second.t, 10ms);
  time.advance(1h);
  EXPECT_EQ(first.when.size() + second.when.size(), 1u);
  EXPECT_TRUE(time.closed());
  EXPECT_EQ(time.now(), at(1h));
}

TEST_P(ManualWheel, ACallbackMayTurnIt) {
  manual_wheel time{options(10ms)};
  firing a{time}, b{time};
  progress nested{};
  a.then = b.then = [&] { nested = time.turn(); };
  time.arm(a.t, 10ms);
  time.arm(b.t, 10ms);
  time.advance(1s);
  EXPECT_EQ(a.when.size(), 1u);
  EXPECT_EQ(b.when.size(), 1u);
  EXPECT_EQ(nested.fired, 0u);
}

// Nested calls must not hang or leave the wheel behind; each runs in a process with an alarm.
class ManualWheelDeathTest : public ManualWheel {
 protected:
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  static constexpr unsigned patience = 5;  // seconds
};

TEST_P(ManualWheelDeathTest, ACallbackMayAdvanceItThoughTheBudgetLeftSomething) {
  const auto nested = [this] {
    alarm(patience);
    auto narrow = options(10ms);
    narrow.budget = 1;
    manual_wheel time{narrow};
    std::deque<firing> all;
    for (int i = 0; i != 4; ++i) {
      all.emplace_back(time);
      all.back().then = [&] { time.advance(0s); };
      time.arm(all.back().t, 10ms);
    }
    time.advance(1s);
    for (firing& f : all)
      if (f.when.size() != 1) std::_Exit(1);
    std::_Exit(0);
  };
  EXPECT_EXIT(nested(), ::testing::ExitedWithCode(0), "");
}

TEST_P(ManualWheelDeathTest, ACallbackMayAdvanceAndThenDestroyIt) {
  const auto nested = [this] {
    alarm(patience);
    struct both {
      explicit both(const manual_wheel_options& o) : time{std::make_unique<manual_wheel>(o)} {}
      std::unique_ptr<manual_wheel> time;
      timer t{[this] {
        time->advance(0s);
        time.reset();
      }};
    } b{options(10ms)};
    b.time->arm(b.t, 10ms);
    b.time->advance(1s);
    std::_Exit(b.time == nullptr ? 0 : 1);
  };
  EXPECT_EXIT(nested(), ::testing::ExitedWithCode(0), "");
}

TEST_P(ManualWheelDeathTest, AdvancingToTheEndOfTimeEnds) {
  const auto for_ever = [this] {
    alarm(patience);
    manual_wheel time{options(100ms)};
    firing never{time}, some_time{time};
    time.arm(never.t, timespan::max());
    time.arm(some_time.t, 24h);
    time.advance(timespan::max());
    time.advance(timespan::max());
    std::_Exit(some_time.when.size() == 1 && never.when.size() <= 1 ? 0 : 1);
  };
  EXPECT_EXIT(for_ever(), ::testing::ExitedWithCode(0), "");
}

#ifndef NDEBUG
TEST_P(ManualWheelDeathTest, ArmingAfterCloseAndTimeBackwardsAreAssertions) {
  manual_wheel time{options()};
  timer t{[] {}};
  EXPECT_DEATH(time.advance(-1ns), "time only goes forward");
  EXPECT_DEATH(time.block(-1ns), "time only goes forward");
  time.close();
  EXPECT_DEATH(time.arm(t, 1s), "armed after close");
}
#else
TEST_P(ManualWheel, ArmingAfterCloseIsRefused) {
  manual_wheel time{options()};
  timer t{[] {}};
  time.close();
  EXPECT_FALSE(time.arm(t, 1s));
  EXPECT_FALSE(time.arm_at(t, at(1s)));
  EXPECT_FALSE(t.armed());
}
#endif

INSTANTIATE_TEST_SUITE_P(Modes, ManualWheelDeathTest,
                         ::testing::Values(refresh_mode::relink, refresh_mode::deferred),
                         [](const auto& i) {
                           return i.param == refresh_mode::relink ? "Relink" : "Deferred";
                         });

TEST_P(ManualWheel, ClosedItFiresNothingAndClosingAgainIsNothing) {
  manual_wheel time{options(10ms)};
  firing f{time};
  time.arm(f.t, 10ms);
  time.close();
  time.close();
  EXPECT_FALSE(f.t.armed());
  EXPECT_FALSE(time.refresh(f.t));
  EXPECT_FALSE(time.cancel(f.t));
  time.advance(1s);
  EXPECT_TRUE(f.when.empty());
  EXPECT_EQ(time.turns(), 0u);
}

TEST_P(ManualWheel, AndItsTimersDieInEitherOrder) {
  auto time = std::make_unique<manual_wheel>(options(10ms));
  {
    firing f{*time};
    time->arm(f.t, 10ms);
  }
  EXPECT_EQ(time->wheel().size(), 0u);
  timer t{[] { ADD_FAILURE(); }};
  time->arm(t, 10ms);
  time.reset();
  EXPECT_FALSE(t.armed());
}

TEST_P(ManualWheel, ATimerMovesFromOneToAnother) {
  manual_wheel one{options(10ms)}, two{options(10ms)};
  firing f{two};
  one.arm(f.t, 10ms);
  two.arm(f.t, 10ms);
  EXPECT_FALSE(one.cancel(f.t));
  one.advance(1s);
  EXPECT_TRUE(f.when.empty());
  EXPECT_EQ(one.turns(), 0u);
  two.advance(1s);
  EXPECT_EQ(f.when.size(), 1u);
}

// Sockets ----------------------------------------------------------------------------------------

TEST_P(ManualWheel, SocketsAreWhatTheTestSays) {
  manual_wheel time{options()};
  const socket_view a = time.open_socket(), b = time.open_socket();
  EXPECT_NE(a.fd(), b.fd());
  EXPECT_GE(a.fd(), 0);
  EXPECT_EQ(a.stream(), nullptr);
  EXPECT_EQ(time.looks(), 0u);
  const socket_look unknown = time.look(a);
  EXPECT_FALSE(unknown.unread || unknown.unsent || unknown.last_arrival || unknown.last_delivery);
  time.look_at(a) = {.unread = 3, .unsent = 4, .last_arrival = at(5s), .last_delivery = at(6s)};
  const socket_look seen = time.look(a);
  EXPECT_EQ(seen.unread, 3u);
  EXPECT_EQ(seen.unsent, 4u);
  EXPECT_EQ(seen.last_arrival, at(5s));
  EXPECT_EQ(seen.last_delivery, at(6s));
  EXPECT_FALSE(time.look(b).unread);
  time.look_at(a).unread = 7;
  EXPECT_EQ(time.look(a).unread, 7u);
  EXPECT_FALSE(time.look({}).unread) << "no socket";
  EXPECT_EQ(time.looks(), 5u);
}

INSTANTIATE_TEST_SUITE_P(Modes, ManualWheel,
                         ::testing::Values(refresh_mode::relink, refresh_mode::deferred),
                         [](const auto& i) {
                           return i.param == refresh_mode::relink ? "Relink" : "Deferred";
                         });

}  // namespace
}  // namespace idlewheel::testing
