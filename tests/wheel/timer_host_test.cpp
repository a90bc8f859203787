// timer_host_test.cpp - whose clock a timeout is measured from, and when the host is told to come
// back.
//
// Mostly on the manual wheel, whose time a test holds; a host of this file's own shows what the
// derived class is told. The loop's host is tested in tests/uv.
#include "idlewheel/wheel/timer_host.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "idlewheel/testing/manual_wheel.hpp"
#include "tests/wheel/fixtures.hpp"

namespace idlewheel {
namespace {

using namespace std::chrono_literals;
using testing::manual_wheel;

class TimerHost : public EachMode {
 protected:
  static constexpr auto length = 100ms;
  static testing::manual_wheel_options options(std::size_t budget = 256) {
    return {.tick = length, .slots = 64, .refresh = GetParam(), .budget = budget};
  }
  // When its timer fired, on the host's clock.
  struct stamped {
    explicit stamped(manual_wheel& host) : time{&host} {}
    manual_wheel* time;
    std::vector<instant> fired;
    timer t{[this] { fired.push_back(time->now()); }};
  };
  // Fired once, not before `limit` and less than a tick later.
  static void expect_on_time(const stamped& s, instant limit) {
    ASSERT_EQ(s.fired.size(), 1u);
    EXPECT_GE(s.fired[0], limit) << "early";
    EXPECT_LT(s.fired[0], later(limit, length)) << "late";
  }
};

TEST_P(TimerHost, IsNeverEarlyAndLessThanATickLate) {
  for (int phase = 0; phase < 100; phase += 7)
    for (const auto timeout : {1ms, 50ms, 99ms, 100ms, 101ms, 1000ms, 6400ms, 7777ms}) {
      manual_wheel time{options()};
      stamped s{time};
      time.advance(std::chrono::milliseconds{phase});
      const instant limit = later(time.now(), timeout);
      EXPECT_TRUE(time.arm(s.t, timeout));
      time.advance(20s);
      expect_on_time(s, limit);
    }
}

TEST_P(TimerHost, ArmCountsFromAFreshClockRead) {
  for (const auto blocked : {1ms, 4999ms, 5000ms, 60'000ms}) {
    manual_wheel time{options()};
    stamped s{time};
    time.block(blocked);  // the last poll was long ago
    time.arm(s.t, 5s);
    time.advance(10s);
    expect_on_time(s, later(instant{blocked}, 5s));
  }
}

TEST_P(TimerHost, ArmAtTakesThePointAsItIs) {
  manual_wheel time{options()};
  stamped s{time};
  time.advance(1s);
  EXPECT_TRUE(time.arm_at(s.t, instant{3050ms}));
  EXPECT_EQ(s.t.timeout(), timespan{2050ms});
  time.advance(10s);
  expect_on_time(s, instant{3050ms});
  EXPECT_TRUE(time.arm_at(s.t, instant{1s}));  // long past
  EXPECT_EQ(s.t.timeout(), timespan{});
  time.advance(100ms);
  EXPECT_EQ(s.fired.size(), 2u);
}

TEST_P(TimerHost, NegativeFiresAtTheNextTickAndForEverDoesNot) {
  manual_wheel time{options()};
  stamped past{time}, forever{time};
  time.advance(250ms);
  time.arm(past.t, -1h);
  EXPECT_EQ(past.t.deadline(), 3u);
  time.arm(forever.t, timespan::max());
  EXPECT_TRUE(past.fired.empty()) << "not inside the call";
  time.advance(100ms);
  EXPECT_EQ(past.fired, std::vector{instant{300ms}});
  time.advance(std::chrono::hours{24 * 365});
  EXPECT_TRUE(forever.fired.empty());
  EXPECT_TRUE(forever.t.armed());
}

TEST_P(TimerHost, RefreshRepeatsTheTimeoutFromThePoll) {
  manual_wheel time{options()};
  stamped s{time};
  time.arm(s.t, 1s);
  for (int i = 0; i < 50; ++i) {
    time.advance(990ms);
    EXPECT_TRUE(time.refresh(s.t));
  }
  EXPECT_TRUE(s.fired.empty());
  const instant polled = time.poll_time();
  EXPECT_EQ(polled, time.now());
  time.advance(10s);
  expect_on_time(s, later(polled, 1s));
}

TEST_P(TimerHost, RefreshWithAnotherTimeoutIsRepeatedToo) {
  manual_wheel time{options()};
  stamped s{time};
  time.arm(s.t, 10s);
  EXPECT_TRUE(time.refresh(s.t, 2s));  // sooner: the visit has to be sooner, too
  time.advance(1s);
  EXPECT_TRUE(time.refresh(s.t));
  time.advance(10s);
  expect_on_time(s, instant{3s});
}

TEST_P(TimerHost, RefreshAtMovesToAPointAndTheTimeoutFollows) {
  for (const auto point : {1000ms, 1950ms, 2000ms, 7050ms}) {
    manual_wheel time{options()};
    stamped s{time};
    time.arm(s.t, 5s);
    time.advance(500ms);
    EXPECT_TRUE(time.refresh_at(s.t, instant{point}));
    EXPECT_EQ(s.t.timeout(), timespan{point - 500ms});
    time.advance(20s);
    expect_on_time(s, instant{point});
  }
}

TEST_P(TimerHost, RefreshAloneNeverMakesATimerSooner) {
  manual_wheel time{options()};
  stamped s{time};
  time.arm(s.t, 2s);
  EXPECT_TRUE(time.arm_since(s.t, instant{8s}, 2s));  // counts from later than any poll yet
  time.advance(1s);
  EXPECT_TRUE(time.refresh(s.t));
  EXPECT_EQ(s.t.deadline(), 100u);
  time.advance(20s);
  expect_on_time(s, instant{10s});
}

TEST_P(TimerHost, ArmSinceCountsFromAnotherMoment) {
  for (const auto base : {-5s, 0s, 3s, 4s, 9s}) {
    manual_wheel time{options()};
    stamped s{time};
    time.advance(5s);
    EXPECT_TRUE(time.arm_since(s.t, instant{base}, 2s));
    EXPECT_EQ(s.t.timeout(), timespan{2s});
    EXPECT_TRUE(s.fired.empty()) << "not inside the call";
    const instant limit = std::max(instant{base + 2s}, time.now());  // or already reached
    time.advance(20s);
    expect_on_time(s, limit);
    EXPECT_TRUE(time.arm_since(s.t, instant{base}, 60s));
    EXPECT_TRUE(time.refresh(s.t));  // its timeout counts anew, from the poll
    const instant polled = time.poll_time();
    s.fired.clear();
    time.advance(100s);
    expect_on_time(s, later(polled, 60s));
  }
}

TEST_P(TimerHost, ArmSinceTheEndsOfTime) {
  manual_wheel time{options()};
  stamped past{time}, future{time}, forever{time};
  time.advance(5s);
  time.arm_since(past.t, instant::min(), 1s);
  time.arm_since(future.t, instant::max(), 1s);
  time.arm_since(forever.t, instant{1s}, timespan::max());
  time.advance(100ms);
  EXPECT_EQ(past.fired.size(), 1u);
  time.advance(std::chrono::hours{24 * 365});
  EXPECT_TRUE(future.fired.empty() && forever.fired.empty());
  EXPECT_TRUE(future.t.cancel());
  EXPECT_TRUE(forever.t.cancel());
}

TEST_P(TimerHost, RefreshIsNotEarlyHoweverOldTheClock) {
  for (const int years : {1, 50, 72, 73, 74, 100, 140}) {
    const std::chrono::hours age{24 * 365 * years};
    manual_wheel time{{.tick = length, .slots = 64, .refresh = GetParam(), .start = instant{age}}};
    stamped armed{time}, refreshed{time};
    time.arm(armed.t, 10s);
    time.arm(refreshed.t, 10s);
    time.advance(5s);
    EXPECT_TRUE(time.refresh(refreshed.t));
    time.advance(60s);
    expect_on_time(armed, instant{age + 10s});
    SCOPED_TRACE(years);
    expect_on_time(refreshed, instant{age + 15s});
  }
}

TEST_P(TimerHost, RefreshNeverRevives) {
  manual_wheel time{options()}, other{options()};
  timer t{[] {}};
  EXPECT_FALSE(time.refresh(t));
  EXPECT_FALSE(time.refresh(t, 1s));
  EXPECT_FALSE(time.refresh_at(t, instant{1s}));
  EXPECT_EQ(t.timeout(), timespan{});
  other.arm(t, 5s);
  EXPECT_FALSE(time.refresh(t, 1s));
  EXPECT_FALSE(time.cancel(t));
  EXPECT_EQ(t.timeout(), timespan{5s});
  EXPECT_TRUE(other.cancel(t));
  EXPECT_FALSE(t.armed());
}

// ---- a handler that blocks between the poll and the refresh

TEST_P(TimerHost, BytesReadDuringAStallCountFromItsEnd) {
  for (const auto stall : {150ms, 999ms, 3000ms, 60'000ms}) {
    manual_wheel time{options()};
    stamped s{time}, armed{time};
    time.arm(s.t, 1s);
    time.advance(500ms);
    time.poll();
    const instant stamp = time.poll_time();
    time.block(stall);  // the bytes came in meanwhile: nobody can say when
    EXPECT_TRUE(time.refresh(s.t));
    time.arm(armed.t, 1s);  // a fresh read: no doubt about that one
    EXPECT_EQ(time.poll_time(), stamp);
    time.turn();
    EXPECT_EQ(time.stalls(), 1u);
    EXPECT_EQ(time.longest_stall(), timespan{stall});
    EXPECT_EQ(time.latest(stamp), later(stamp, stall));
    EXPECT_EQ(time.latest(later(stamp, 1h)), later(stamp, 1h)) << "another turn's stamp";
    time.advance(120s);
    expect_on_time(s, later(stamp, timespan{stall + 1s}));
    expect_on_time(armed, later(stamp, timespan{stall + 1s}));
  }
}

TEST_P(TimerHost, AStallOfAnotherTurnDelaysNothing) {
  manual_wheel time{options()};
  stamped before{time}, after{time}, stalled{time};
  for (stamped* s : {&before, &after, &stalled}) time.arm(s->t, 60s);
  EXPECT_TRUE(time.refresh(before.t, 10s));
  time.advance(5s);
  time.poll();
  EXPECT_TRUE(time.refresh(stalled.t, 10s));
  time.block(2s);
  time.turn();
  time.advance(1s);
  EXPECT_TRUE(time.refresh(after.t, 10s));
  time.advance(60s);
  expect_on_time(before, instant{10s});
  expect_on_time(stalled, instant{5s + 2s + 10s});
  expect_on_time(after, instant{8s + 10s});
}

TEST_P(TimerHost, ArmedAnewAfterAStallIsExact) {
  manual_wheel time{options()};
  stamped s{time};
  time.arm(s.t, 5s);
  time.poll();
  time.refresh(s.t);
  time.block(3s);
  time.turn();
  EXPECT_EQ(time.stalls(), 1u);
  time.arm_at(s.t, instant{5s});  // the very deadline that the stalled stamp had made
  time.advance(20s);
  expect_on_time(s, instant{5s});
}

TEST_P(TimerHost, ArmedAtTheVeryStampOfAStallIsExact) {
  manual_wheel time{options()};
  stamped armed{time}, refreshed{time};
  time.arm(refreshed.t, 10s);
  time.advance(5s);
  time.arm(armed.t, 10s);  // the clock read that this counts from is no stamp
  time.refresh(refreshed.t);
  time.block(3s);
  time.turn();
  time.advance(20s);
  expect_on_time(armed, instant{15s});
  expect_on_time(refreshed, instant{18s});
}

TEST_P(TimerHost, ArmedAnewForgetsWhatItCountedFrom) {
  manual_wheel time{options()};
  stamped s{time};
  time.arm(s.t, 100s);
  time.advance(50s);
  EXPECT_TRUE(time.refresh(s.t));  // from here on
  time.arm_since(s.t, instant{45s}, 10s);
  time.advance(60s);
  expect_on_time(s, instant{55s});
}

TEST_P(TimerHost, RefreshedToAPointAfterAStallIsExact) {
  manual_wheel time{options()};
  stamped s{time};
  time.arm(s.t, 5s);
  time.poll();
  time.refresh(s.t);
  time.block(3s);
  time.turn();
  EXPECT_TRUE(time.refresh_at(s.t, instant{5s}));
  time.advance(20s);
  expect_on_time(s, instant{5s});
}

TEST_P(TimerHost, ManyStallsAreRememberedWellEnoughNeverToBeEarly) {
  // More than the log holds singly, each with a timer that was refreshed in it.
  manual_wheel time{options()};
  std::deque<stamped> timers;
  std::vector<instant> limits;
  for (int i = 0; i < 600; ++i) {
    stamped& s = timers.emplace_back(time);
    time.arm(s.t, 20'000s);
    time.poll();
    EXPECT_TRUE(time.refresh(s.t));
    limits.push_back(later(time.now(), 2s + 20'000s));
    time.block(2s);
    time.turn();
    time.advance(10s);
  }
  EXPECT_EQ(time.stalls(), 600u);
  time.advance(40'000s);
  for (std::size_t i = 0; i < timers.size(); ++i) expect_on_time(timers[i], limits[i]);
}

TEST_P(TimerHost, TheLongestOfManyStallsCounts) {
  manual_wheel time{options()};
  stamped s{time};
  time.arm(s.t, 5s);
  for (const auto stall : {20ms, 70ms, 10ms}) {  // stamps within one tick share an entry
    time.poll();
    time.refresh(s.t);
    time.block(stall);
  }
  time.turn();
  EXPECT_EQ(time.stalls(), 3u);
  EXPECT_EQ(time.longest_stall(), timespan{70ms});
  EXPECT_GE(time.latest(instant{}), instant{20ms});
  EXPECT_GE(time.latest(instant{20ms}), instant{90ms});
  time.advance(20s);
  ASSERT_EQ(s.fired.size(), 1u);
  EXPECT_GE(s.fired[0], instant{100ms + 5s});
}

// ---- visits

TEST_P(TimerHost, SleepsUntilTheDeadline) {
  manual_wheel time{options()};
  stamped s{time};
  time.advance(1h);
  EXPECT_EQ(time.turns(), 0u) << "nothing armed, nothing to do";
  time.arm(s.t, 600s);  // many laps
  time.advance(599s);
  EXPECT_EQ(time.turns(), 0u);
  time.advance(1s);
  EXPECT_EQ(time.turns(), 1u);
  EXPECT_EQ(s.fired.size(), 1u);
  time.advance(1h);
  EXPECT_EQ(time.turns(), 1u);
  // In the middle of a tick, armed or refreshed to: also one turn.
  time.arm(s.t, 600'050ms);
  time.advance(700s);
  EXPECT_EQ(time.turns(), 2u);
  time.arm(s.t, 600s);
  EXPECT_TRUE(time.refresh(s.t, 1'050ms));
  time.advance(700s);
  EXPECT_EQ(time.turns(), 3u);
  EXPECT_EQ(s.fired.size(), 3u);
}

TEST_P(TimerHost, TrafficCostsFewTurns) {
  manual_wheel time{options()};
  stamped s{time};
  time.arm(s.t, 5s);
  for (int i = 0; i < 200; ++i) {
    time.advance(1s);
    EXPECT_TRUE(time.refresh(s.t));
  }
  EXPECT_TRUE(s.fired.empty());
  // Both modes visit the place of four seconds ago. Relinking moves the timer before that visit:
  // what refreshes have noted is moved in batches, and always before a visit.
  EXPECT_LE(time.turns(), 200u / 4);
  EXPECT_LE(time.wheel().counts().relinked, 200u);
  EXPECT_GE(time.wheel().counts().relinked, 200u / 5);
}

TEST_P(TimerHost, ASoonerTimerBringsTheVisitNearer) {
  manual_wheel time{options()};
  stamped far{time}, near{time}, nearest{time};
  time.arm(far.t, 60s);
  time.arm(near.t, 30s);
  time.arm(nearest.t, 40s);
  EXPECT_TRUE(time.refresh(nearest.t, 1s));
  time.advance(1s);
  EXPECT_EQ(nearest.fired.size(), 1u);
  time.advance(29s);
  EXPECT_EQ(near.fired.size(), 1u);
  time.advance(30s);
  EXPECT_EQ(far.fired.size(), 1u);
}

TEST_P(TimerHost, CancellingTheLastForgetsTheVisitAndTheNextArmPlansAnew) {
  manual_wheel time{options()};
  stamped s{time};
  time.arm(s.t, 5s);
  EXPECT_TRUE(time.cancel(s.t));
  time.advance(10s);
  EXPECT_EQ(time.turns(), 0u);
  for (const auto timeout : {3s, 7s}) {  // sooner and later than the one forgotten
    time.arm(s.t, 5s);
    s.t.cancel();
    const instant limit = later(time.now(), timeout);
    s.fired.clear();
    time.arm(s.t, timeout);
    time.advance(10s);
    expect_on_time(s, limit);
  }
}

TEST_P(TimerHost, WhatACallbackArmsIsPlanned) {
  manual_wheel time{options()};
  stamped second{time};
  struct {
    manual_wheel* time;
    timer* other;
  } both{&time, &second.t};
  timer first{[&both] { both.time->arm(*both.other, 2s); }};
  time.arm(first, 1s);
  time.advance(10s);
  expect_on_time(second, instant{3s});
}

TEST_P(TimerHost, AnUnfinishedPassGoesOnInTheNextTurn) {
  manual_wheel time{options(10)};
  std::deque<stamped> timers;
  for (int i = 0; i < 95; ++i) time.arm(timers.emplace_back(time).t, 1s);
  time.block(1s);
  time.poll();
  std::size_t fired = 0;
  for (int turn = 1; turn <= 10; ++turn) {
    const progress done = time.turn();
    fired += done.fired;
    EXPECT_EQ(fired, std::min(10 * turn, 95));
    EXPECT_EQ(done.more, turn != 10);
    time.poll();
  }
  EXPECT_EQ(time.turn().fired, 0u);
}

TEST_P(TimerHost, ArmedBetweenTwoTurnsOfOnePassIsNotForgotten) {
  manual_wheel time{options(1)};
  std::deque<stamped> timers;
  for (int i = 0; i < 3; ++i) time.arm(timers.emplace_back(time).t, 1s);
  time.block(1s);
  time.poll();
  EXPECT_TRUE(time.turn().more);
  stamped late{time};
  time.arm(late.t, 1s);
  for (stamped& s : timers) s.t.cancel();
  time.advance(5s);
  expect_on_time(late, instant{2s});
}

TEST_P(TimerHost, TheVerdictsTimeIsTheWheelsAndNotTheClocks) {
  manual_wheel time{options()};
  struct {
    manual_wheel* time;
    instant judged{}, now{};
  } seen{&time};
  timer t{[&seen] {
    seen.judged = seen.time->judged_at();
    seen.now = seen.time->now();
  }};
  time.arm(t, 1s);
  time.block(5s);
  time.poll();
  time.block(300ms);
  time.turn();
  EXPECT_EQ(seen.judged, instant{5s});
  EXPECT_EQ(seen.now, instant{5300ms});
}

// ---- refreshes of relinked timers, which are noted and moved a batch at a time

TEST_P(TimerHost, RelinkingMovesTheTimerBeforeTheNextJudgement) {
  manual_wheel time{options()};
  stamped s{time}, other{time};
  time.arm(s.t, 2s);
  time.arm(other.t, 1200ms);
  time.advance(1s);
  EXPECT_TRUE(time.refresh(s.t));
  EXPECT_EQ(s.t.deadline(), 30u);
  time.advance(200ms);
  EXPECT_EQ(other.fired.size(), 1u);
  EXPECT_EQ(time.wheel().next_visit(), GetParam() == refresh_mode::relink ? 30u : 20u);
  EXPECT_TRUE(time.wheel().check_invariants());
}

TEST_P(TimerHost, AnyNumberMayBeRefreshedInOneTurn) {
  for (const std::size_t count : {1u, 127u, 128u, 129u, 255u, 256u, 257u, 1000u}) {
    manual_wheel time{options(5000)};
    std::deque<stamped> timers;
    while (timers.size() < count) time.arm(timers.emplace_back(time).t, 5s);
    for (int turn = 0; turn < 7; ++turn) {
      time.advance(1s);
      for (int twice = 0; twice < 2; ++twice)
        for (stamped& s : timers) ASSERT_TRUE(time.refresh(s.t));
      ASSERT_TRUE(time.wheel().check_invariants()) << count;
    }
    time.advance(10s);
    for (const stamped& s : timers) expect_on_time(s, instant{7s + 5s});
  }
}

TEST_P(TimerHost, RefreshedAndGoneInTheSameTurn) {
  manual_wheel time{options()}, other{options()};
  std::deque<std::optional<stamped>> timers(5);
  for (auto& s : timers) time.arm(s.emplace(time).t, 5s);
  time.advance(1s);
  for (auto& s : timers) EXPECT_TRUE(time.refresh(s->t));
  timers[0].reset();
  timers[1]->t.cancel();
  other.arm(timers[2]->t, 1h);
  time.arm(timers[3]->t, 2s);
  EXPECT_TRUE(time.wheel().check_invariants());
  EXPECT_EQ(time.wheel().size(), 2u);
  time.advance(20s);
  expect_on_time(*timers[3], instant{3s});
  expect_on_time(*timers[4], instant{6s});
  EXPECT_TRUE(timers[1]->fired.empty() && timers[2]->fired.empty());
  EXPECT_TRUE(time.wheel().check_invariants() && other.wheel().check_invariants());
}

TEST_P(TimerHost, RefreshedInSeveralTicksAndGoneBeforeTheNextJudgement) {
  // A poll without a judgement, so that each timer is noted once more; then some are given a time to
  // count from that is older than any of those refreshes.
  manual_wheel time{options()};
  std::deque<std::optional<stamped>> timers(7);
  for (auto& s : timers) time.arm(s.emplace(time).t, 5s);
  for (int poll = 0; poll < 3; ++poll) {
    time.block(length);
    time.poll();
    for (auto& s : timers) EXPECT_TRUE(time.refresh(s->t));
    EXPECT_TRUE(time.wheel().check_invariants());
  }
  time.arm_since(timers[0]->t, instant{}, 5s);
  time.arm_since(timers[1]->t, instant{-1s}, 6s);
  EXPECT_TRUE(time.refresh_at(timers[2]->t, instant{100ms}));
  EXPECT_TRUE(time.refresh(timers[3]->t, 2s));
  EXPECT_TRUE(time.wheel().check_invariants());
  for (const std::size_t gone : {0u, 2u, 3u, 4u}) timers[gone].reset();
  EXPECT_TRUE(time.wheel().check_invariants());
  timers[5]->t.cancel();
  time.turn();
  time.advance(20s);
  expect_on_time(*timers[1], instant{5s});
  EXPECT_TRUE(timers[5]->fired.empty());
  expect_on_time(*timers[6], instant{5300ms});
}

TEST_P(TimerHost, HowOftenItIsRefreshedInATickItMovesOnce) {
  if (GetParam() == refresh_mode::deferred) return;
  manual_wheel time{options()};
  stamped s{time};
  time.arm(s.t, 5s);
  for (int tick = 0; tick < 10; ++tick)
    for (int refresh = 0; refresh < 10; ++refresh) {
      time.advance(length / 10);
      EXPECT_TRUE(time.refresh(s.t));
    }
  time.advance(20s);
  expect_on_time(s, instant{1s + 5s});
  EXPECT_LE(time.wheel().counts().relinked, 12u);
}

TEST_P(TimerHost, RefreshedAndClosedInTheSameTurn) {
  manual_wheel time{options()};
  auto timers = std::make_unique<std::deque<stamped>>();
  for (int i = 0; i < 10; ++i) time.arm(timers->emplace_back(time).t, 5s);
  time.advance(1s);
  for (stamped& s : *timers) EXPECT_TRUE(time.refresh(s.t));
  time.close();
  EXPECT_TRUE(time.wheel().check_invariants());
  timers.reset();
  time.poll();
  time.turn();
  time.advance(10s);
  EXPECT_TRUE(time.wheel().check_invariants());
}

TEST_P(TimerHost, RefreshedAndFiredInTheSamePass) {
  // A callback refreshes a timer without any timeout, to the very tick that this pass ends with.
  manual_wheel time{options()};
  auto second = std::make_unique<stamped>(time);
  struct {
    manual_wheel* time;
    timer* other;
  } both{&time, &second->t};
  timer first{[&both] { EXPECT_TRUE(both.time->refresh(*both.other)); }};
  time.advance(1s);
  time.arm(first, 100ms);
  time.arm_since(second->t, instant{2s}, 0s);
  time.block(4s);
  time.poll();
  time.turn();
  EXPECT_TRUE(time.wheel().check_invariants());
  EXPECT_EQ(second->fired, std::vector{instant{5s}});
  second.reset();
  time.advance(10s);
  EXPECT_TRUE(time.wheel().check_invariants());
}

// ---- many timers, random acts, against the dullest model: when each has to fire

struct crowd_member {
  manual_wheel* time = nullptr;
  std::optional<instant> limit;  // empty: not armed
  bool wrong = false;            // fired early, late or without being armed
  std::optional<timer> t;
  void birth() {
    limit.reset();
    t.emplace([this] {
      const instant now = time->now();
      wrong = wrong || !limit || now < *limit || now >= later(*limit, 100ms);
      limit.reset();
    });
  }
};

TEST_P(TimerHost, ACrowdFiresOnTimeWhateverIsDoneToIt) {
  for (const unsigned seed : {1u, 2u}) {
    std::mt19937_64 rng{seed};
    const auto upto = [&](std::uint64_t n) { return rng() % (n + 1); };
    manual_wheel time{options(20)}, other{options()};
    std::deque<crowd_member> crowd(300);
    for (crowd_member& m : crowd) {
      m.time = &time;
      m.birth();
    }
    const auto some_time = [&] {
      return std::chrono::milliseconds{upto(upto(9) == 0 ? 60'000 : 3000)};
    };
    for (int step = 0; step < 600; ++step) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", step " << step);
      for (auto n = upto(400); n != 0; --n) {  // within one turn: refreshed again, moved, destroyed
        crowd_member& m = crowd[upto(crowd.size() - 1)];
        const instant now = time.now();
        const timespan timeout = some_time();
        switch (upto(11)) {
          case 0:
            m.birth();
            break;
          case 1:
            ASSERT_EQ(m.t->cancel(), m.limit.has_value());
            m.limit.reset();
            break;
          case 2:
            time.arm(*m.t, timeout);
            m.limit = later(now, timeout);
            break;
          case 3:
            time.arm_at(*m.t, later(now, timeout));
            m.limit = later(now, timeout);
            break;
          case 4:
            ASSERT_EQ(time.refresh(*m.t, timeout), m.limit.has_value());
            if (m.limit) m.limit = later(now, timeout);
            break;
          case 5:
            ASSERT_EQ(time.refresh_at(*m.t, later(now, timeout)), m.limit.has_value());
            if (m.limit) m.limit = later(now, timeout);
            break;
          case 6:
            other.arm(*m.t, 1h);
            ASSERT_FALSE(time.refresh(*m.t));
            m.t->cancel();
            m.limit.reset();
            break;
          default:
            ASSERT_EQ(time.refresh(*m.t), m.limit.has_value());
            if (m.limit) m.limit = later(now, m.t->timeout());
        }
      }
      ASSERT_TRUE(time.wheel().check_invariants());
      time.advance(std::chrono::milliseconds{upto(upto(19) == 0 ? 20'000 : 150)});
      ASSERT_TRUE(time.wheel().check_invariants());
      for (const crowd_member& m : crowd) {
        ASSERT_FALSE(m.wrong);
        ASSERT_EQ(m.t->armed(), m.limit.has_value());
        ASSERT_TRUE(!m.limit || later(*m.limit, 100ms) > time.now()) << "overdue";
      }
    }
    EXPECT_GT(time.wheel().counts().fired, 1000u);
  }
}

// ---- the end

TEST_P(TimerHost, ClosingDisarmsAndIsIdempotent) {
  manual_wheel time{options()};
  stamped s{time};
  time.arm(s.t, 1s);
  EXPECT_FALSE(time.closed());
  time.close();
  time.close();
  EXPECT_TRUE(time.closed());
  EXPECT_FALSE(s.t.armed());
  EXPECT_FALSE(time.refresh(s.t));
  time.advance(10s);
  EXPECT_TRUE(s.fired.empty());
}

TEST_P(TimerHost, MayBeClosedOrDestroyedInACallback) {
  for (const bool destroyed : {false, true}) {
    auto time = std::make_unique<manual_wheel>(options());
    int fires = 0;
    struct {
      std::unique_ptr<manual_wheel>* time;
      int* fires;
      bool destroyed;
    } what{&time, &fires, destroyed};
    const auto end_it = [&what] {
      ++*what.fires;
      if (what.destroyed)
        what.time->reset();
      else
        (*what.time)->close();
    };
    timer a{end_it}, b{end_it};
    time->arm(a, 1s);
    time->arm(b, 1s);
    time->advance(10s);
    EXPECT_EQ(fires, 1);
    EXPECT_FALSE(a.armed() || b.armed());
  }
}

TEST_P(TimerHost, ATurnThatStallsTwiceIsAsLongAsBoth) {
  // A read handler that blocked, and then an expiry's handler that blocked for longer: what that one
  // refreshes has the stamp of the same poll.
  manual_wheel time{options()};
  stamped read{time}, refreshed{time};
  instant when{};
  struct {
    manual_wheel* time;
    timer* other;
    instant* when;
  } all{&time, &refreshed.t, &when};
  timer blocks{[&all] {
    all.time->block(5s);
    all.time->refresh(*all.other);
    *all.when = all.time->now();
  }};
  time.arm(blocks, 1s);
  time.arm(refreshed.t, 10s);
  time.arm(read.t, 100s);
  time.block(1s);
  time.poll();
  time.block(150ms);
  time.refresh(read.t);
  time.turn();
  time.advance(60s);
  ASSERT_NE(when, instant{});
  ASSERT_EQ(refreshed.fired.size(), 1u);
  EXPECT_GE(refreshed.fired[0], later(when, 10s));
}

// ---- what the derived host is told

class PlainHost : public timer_host {
 public:
  explicit PlainHost(refresh_mode mode)
      : timer_host{wheel_options{.slots = 64, .refresh = mode}, tick_scale{1ms},
                   poll_clock{.count = &polled, .unit = 1'000'000, .slack = 1}} {}
  ~PlainHost() override { close_host(); }

  using timer_host::close_host;
  using timer_host::end_of_stamps;
  using timer_host::judge;
  using timer_host::stamps_used;

  socket_look look(const socket_view&) noexcept override { return {}; }

  std::uint64_t polled = 0;  // ms, as libuv counts
  instant clock{};
  std::vector<instant> planned;
  int forgotten = 0;

 private:
  void plan_visit(instant when) noexcept override { planned.push_back(when); }
  void forget_visit() noexcept override { ++forgotten; }
  instant read_clock() noexcept override { return clock; }
};

TEST_P(TimerHost, Case046_APollsClockThatStepsBackMakesNothingOlder) {
  // Stamped while the clock is behind; it comes back, and nobody is expired.
  PlainHost host{GetParam()};
  timer a{[] {}};
  host.polled = 100'000;
  host.clock = instant{100s};
  host.arm(a, 10s);
  EXPECT_TRUE(host.refresh(a));
  host.polled = 70'000;
  host.clock = instant{70s};
  EXPECT_TRUE(host.refresh(a));
  EXPECT_GE(host.now(), instant{100s});
  timer b{[] {}};
  host.arm(b, 10s);
  host.judge(instant{109s}, plenty);
  EXPECT_TRUE(a.armed() && b.armed());
  host.judge(instant{111s}, plenty);
  EXPECT_FALSE(a.armed() || b.armed());
}

TEST_P(TimerHost, Case045_AStepOfAnotherClockIsNoneOfThisOne) {
  PlainHost host{GetParam()};
  timer a{[] {}};
  host.arm(a, 10s);
  host.judge(instant{1s}, plenty);  // an hour later by the wall
  EXPECT_EQ(a.remaining(host.wheel().now()), 9'000u);
}

TEST_P(TimerHost, NotedWhileThePollsClockStepsBackAndGone) {
  PlainHost host{GetParam()};
  timer a{[] {}};
  auto b = std::make_unique<timer>([] {});
  host.arm(a, 10s);
  host.arm(*b, 10s);
  host.polled = 100;
  EXPECT_TRUE(host.refresh(a));
  host.polled = 60;
  EXPECT_TRUE(host.refresh(*b));
  EXPECT_TRUE(host.wheel().check_invariants());
  b.reset();
  EXPECT_TRUE(host.wheel().check_invariants());
  host.judge(instant{200ms}, plenty);
}

TEST_P(TimerHost, AClosedHostReadsNoClockThatMayBeGone) {
  auto host = std::make_unique<PlainHost>(GetParam());
  timer a{[] {}};
  host->arm(a, 1s);
  host->close_host();
  host->polled = 5'000;  // as if it were somebody else's memory by now
  EXPECT_FALSE(host->refresh(a));
  EXPECT_LT(host->poll_time(), instant{5s});
}

TEST_P(TimerHost, PlansOnlyWhatIsSooner) {
  PlainHost host{GetParam()};
  timer a{[] {}}, b{[] {}}, c{[] {}};
  host.arm(a, 50ms);
  host.arm(b, 60ms);
  host.arm(c, 50ms);
  for (int i = 0; i < 10; ++i) host.refresh(b);
  EXPECT_EQ(host.planned, std::vector{instant{50ms}});
  host.arm(c, 20ms);
  EXPECT_EQ(host.planned, (std::vector{instant{50ms}, instant{20ms}}));
  EXPECT_TRUE(host.refresh_at(b, instant{10ms}));
  EXPECT_EQ(host.planned.back(), instant{10ms});
  EXPECT_EQ(host.forgotten, 0);
  a.cancel();
  b.cancel();
  EXPECT_EQ(host.forgotten, 0);
  c.cancel();
  EXPECT_EQ(host.forgotten, 1);
}

TEST_P(TimerHost, PlansAnewAfterAVisitInVain) {
  PlainHost host{GetParam()};
  timer a{[] {}};
  host.arm(a, 50ms);
  host.judge(instant{20ms}, plenty);
  EXPECT_EQ(host.planned, (std::vector{instant{50ms}, instant{50ms}}));
  host.judge(instant{50ms}, plenty);
  EXPECT_EQ(host.forgotten, 1);
  host.judge(instant{30ms}, plenty);  // time that steps back
  EXPECT_EQ(host.judged_at(), instant{50ms});
}

TEST_P(TimerHost, PlansNothingWhileAPassIsUnfinished) {
  PlainHost host{GetParam()};
  std::deque<timer> timers;
  for (int i = 0; i < 3; ++i) host.arm(timers.emplace_back([] {}), 10ms);
  timer later_one{[] {}};
  host.arm(later_one, 100ms);
  EXPECT_TRUE(host.judge(instant{10ms}, 1).more);
  EXPECT_EQ(host.planned.size(), 1u);
  EXPECT_FALSE(host.judge(instant{10ms}, plenty).more);
  EXPECT_EQ(host.planned, (std::vector{instant{10ms}, instant{100ms}}));
}

TEST_P(TimerHost, PlansOnceAtTheEndOfAPassWhateverWasArmedMeanwhile) {
  PlainHost host{GetParam()};
  std::deque<timer> others;
  struct {
    PlainHost* host;
    std::deque<timer>* others;
  } both{&host, &others};
  timer a{[&both] {
    for (int i = 9; i > 0; --i)
      both.host->arm(both.others->emplace_back([] {}), std::chrono::milliseconds{20 * i});
  }};
  timer b{[] {}};
  host.arm(a, 10ms);
  host.arm(b, 10ms);
  EXPECT_TRUE(host.judge(instant{10ms}, 1).more);
  host.arm(others.emplace_back([] {}), 300ms);  // between two calls of the pass
  EXPECT_EQ(host.planned.size(), 1u);
  EXPECT_FALSE(host.judge(instant{10ms}, plenty).more);
  EXPECT_EQ(host.planned, (std::vector{instant{10ms}, instant{20ms}}));
}

TEST_P(TimerHost, JudgesByTheTickThatHasBegun) {
  PlainHost host{GetParam()};
  timer a{[] {}};
  host.arm(a, 10ms);
  EXPECT_EQ(host.judge(instant{9'999'999ns}, plenty).fired, 0u);
  EXPECT_EQ(host.judge(instant{10ms}, plenty).fired, 1u);
}

TEST_P(TimerHost, ClosedInACallbackTouchesThePlanNoMore) {
  PlainHost host{GetParam()};
  timer a{[&host] { host.close_host(); }}, b{[] {}};
  host.arm(a, 10ms);
  host.arm(b, 20ms);
  EXPECT_EQ(host.judge(instant{10ms}, plenty).fired, 1u);
  EXPECT_EQ(host.planned.size(), 1u);
  EXPECT_EQ(host.forgotten, 0);
}

TEST_P(TimerHost, JudgingInACallbackIsRefused) {
  PlainHost host{GetParam()};
  struct {
    PlainHost* host;
    progress nested{};
  } seen{&host};
  timer a{[&seen] { seen.nested = seen.host->judge(instant{1h}, plenty); }}, b{[] {}};
  host.arm(a, 10ms);
  host.arm(b, 20ms);
  EXPECT_EQ(host.judge(instant{10ms}, plenty).fired, 1u);
  EXPECT_EQ(seen.nested.fired, 0u);
  EXPECT_TRUE(seen.nested.more);
  EXPECT_EQ(host.judged_at(), instant{10ms});
  EXPECT_EQ(host.planned.back(), instant{20ms});
}

TEST_P(TimerHost, ThePollsStampIsRoundedUpByTheSlack) {
  // libuv counts whole milliseconds, rounded down: what a poll reported is not later than count
  // + 1.
  PlainHost host{GetParam()};
  timer a{[] {}};
  host.arm(a, 10ms);
  EXPECT_FALSE(host.stamps_used());
  host.polled = 5;
  EXPECT_EQ(host.poll_time(), instant{6ms});
  EXPECT_TRUE(host.stamps_used());
  EXPECT_TRUE(host.refresh(a));
  EXPECT_EQ(a.deadline(), 16u);
  host.end_of_stamps(instant{6ms});
  EXPECT_FALSE(host.stamps_used());
  EXPECT_EQ(host.stalls(), 0u);

  EXPECT_TRUE(host.refresh(a));
  host.polled = 9;  // a second poll in one turn closes the books of the first
  EXPECT_TRUE(host.refresh(a));
  EXPECT_EQ(host.stalls(), 1u);
  EXPECT_EQ(host.longest_stall(), timespan{4ms});
}

TEST_P(TimerHost, TheBooksAreClosedWhenTheLastTimerGoes) {
  for (const bool fired : {false, true}) {  // or cancelled
    PlainHost host{GetParam()};
    timer a{[] {}};
    host.arm(a, 10ms);
    host.polled = 5;
    const instant stamp = host.poll_time();
    EXPECT_TRUE(host.stamps_used());
    host.clock = instant{50ms};
    if (fired)
      host.judge(instant{50ms}, plenty);
    else
      a.cancel();
    EXPECT_FALSE(host.stamps_used());
    EXPECT_EQ(host.stalls(), 1u);
    EXPECT_EQ(host.latest(stamp), instant{50ms});
  }
}

TEST_P(TimerHost, WithNothingArmedNoBooksAreKept) {
  PlainHost host{GetParam()};
  host.polled = 5;
  EXPECT_EQ(host.poll_time(), instant{6ms});
  EXPECT_FALSE(host.stamps_used());
  host.polled = 7;
  EXPECT_EQ(host.poll_time(), instant{8ms});
  EXPECT_EQ(host.stalls(), 0u);

  host.clock = instant{50ms};  // nor when a timer went that nobody had refreshed
  timer a{[] {}};
  host.arm(a, 10ms);
  a.cancel();
  EXPECT_EQ(host.stalls(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Modes, TimerHost, both_modes, name_of_mode);

}  // namespace
}  // namespace idlewheel
