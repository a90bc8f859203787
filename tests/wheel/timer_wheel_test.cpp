// timer_wheel_test.cpp - the wheel's promises, one by one, in both refresh modes.
//
// Time is a number that each test holds.
#include "idlewheel/wheel/timer_wheel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/wheel/fixtures.hpp"

namespace {
std::size_t allocations = 0;  // by new, in this whole binary
}

void* operator new(std::size_t n) {
  ++allocations;
  if (void* const p = std::malloc(n)) return p;
  throw std::bad_alloc{};
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace idlewheel {
namespace {

class TimerWheel : public EachMode {};

// ---- construction

TEST(TimerWheelOptions, Defaults) {
  const timer_wheel wheel;
  EXPECT_EQ(wheel.slots(), 512u);
  EXPECT_EQ(wheel.now(), 0u);
  EXPECT_EQ(wheel.size(), 0u);
  EXPECT_EQ(wheel.refresh_by(), refresh_mode::relink);
  EXPECT_EQ(wheel.next_visit(), std::nullopt);
  EXPECT_EQ(wheel.counts().fired + wheel.counts().relinked + wheel.counts().kept, 0u);
  EXPECT_TRUE(wheel.check_invariants());
  static_assert(!std::is_copy_constructible_v<timer_wheel>);
  static_assert(!std::is_move_constructible_v<timer_wheel>);
}

TEST(TimerWheelOptions, WrongSlotsAreRefusedWithTheValue) {
  const auto text = [](std::size_t slots) {
    return text_thrown<std::invalid_argument>([=] { timer_wheel{{.slots = slots}}; });
  };
  EXPECT_NE(text(0).find("not 0"), std::string::npos) << text(0);
  EXPECT_NE(text(16'777'217).find("not 16777217"), std::string::npos);
  EXPECT_NE(text(timer_wheel::no_limit).find("not 18446744073709551615"), std::string::npos);
  EXPECT_NE(text(std::size_t{1} << 63).find("not 9223372036854775808"), std::string::npos);
  static_assert(timer_wheel::max_slots == 16'777'216);
}

TEST_P(TimerWheel, SlotsAreRoundedUpToAPowerOfTwo) {
  for (std::size_t slots = 1; slots <= 1100; ++slots) {
    const timer_wheel wheel{with(slots)};
    ASSERT_GE(wheel.slots(), slots);
    ASSERT_LT(wheel.slots(), 2 * slots);
    ASSERT_TRUE(std::has_single_bit(wheel.slots()));
    ASSERT_EQ(wheel.refresh_by(), GetParam());
  }
}

TEST_P(TimerWheel, BeginsWhereItIsTold) {
  for (const tick start : {tick{0}, tick{1}, tick{1} << 31, tick{1} << 32, tick{1} << 63}) {
    const timer_wheel wheel{with(8, start)};
    EXPECT_EQ(wheel.now(), start);
    EXPECT_TRUE(wheel.check_invariants());
  }
  // One short of the largest tick, so that a deadline saturated to it does not come.
  EXPECT_EQ(timer_wheel{with(8, never)}.now(), never - 1);
  EXPECT_EQ(timer_wheel{with(8, never - 1)}.now(), never - 1);
}

// ---- firing

TEST_P(TimerWheel, FiresAtItsDeadlineAndNotBefore) {
  timer_wheel wheel{with(8)};
  journal log;
  actor a{log, wheel, "A"};
  for (tick delay = 1; delay <= 40; ++delay) {
    const tick due = wheel.now() + delay;
    wheel.arm(a, due);
    EXPECT_EQ(pump(wheel, due - 1), 0u);
    EXPECT_TRUE(a->armed());
    EXPECT_EQ(pump(wheel, due), 1u);
    EXPECT_FALSE(a->armed());
    EXPECT_EQ(log.take(), "A@" + std::to_string(due));
  }
}

TEST_P(TimerWheel, EverySizeFiresEveryDelayOnTime) {
  for (std::size_t slots = 1; slots <= 70; ++slots) {
    SCOPED_TRACE(::testing::Message() << slots << " slots");
    timer_wheel ticked{with(slots, 5)}, jumped{with(slots, 5)};
    std::vector<tick> by_ticks, by_jump;
    std::deque<dated> timers;
    for (tick due = 5 + 200; due > 5; --due) {
      ticked.arm(timers.emplace_back(by_ticks, due).t, due);
      jumped.arm(timers.emplace_back(by_jump, due).t, due);
    }
    for (tick now = 6; now <= 205; ++now) {
      ASSERT_EQ(ticked.advance(now, plenty).fired, 1u);
      ASSERT_EQ(by_ticks.back(), now);
    }
    ASSERT_EQ(jumped.advance(205, plenty).fired, 200u);
    ASSERT_EQ(by_jump, by_ticks);
    ASSERT_TRUE(jumped.check_invariants());
  }
}

TEST_P(TimerWheel, OneSlotHoldsEverything) {
  timer_wheel wheel{with(1)};
  journal log;
  actor a{log, wheel, "A"}, b{log, wheel, "B"}, c{log, wheel, "C"};
  wheel.arm(c, 9);
  wheel.arm(a, 1);
  wheel.arm(b, 2);
  EXPECT_EQ(wheel.next_visit(), 1u);
  pump(wheel, 8);
  EXPECT_EQ(log.take(), "A@1 B@2");
  EXPECT_TRUE(wheel.refresh(c, 20));
  pump(wheel, 20);
  EXPECT_EQ(log.take(), "C@20");
}

TEST_P(TimerWheel, TwoSlotsHoldEverything) {
  timer_wheel wheel{with(2)};
  journal log;
  actor a{log, wheel, "A"}, b{log, wheel, "B"}, c{log, wheel, "C"};
  wheel.arm(c, 9);
  wheel.arm(a, 1);
  wheel.arm(b, 2);
  EXPECT_EQ(wheel.next_visit(), 1u);
  wheel.advance(9);
  EXPECT_EQ(log.take(), "A@9 B@9 C@9");
}

TEST_P(TimerWheel, DeadlineOrderAcrossTicksWhateverTheStride) {
  std::mt19937_64 rng{11};
  for (const std::size_t slots : {1u, 2u, 8u, 64u, 128u})
    for (const tick stride : {1u, 3u, 7u, 8u, 9u, 64u, 65u, 129u, 1000u, 100'000u}) {
      SCOPED_TRACE(::testing::Message() << slots << " slots, stride " << stride);
      timer_wheel wheel{with(slots, 77)};
      std::vector<tick> fired;
      std::deque<dated> timers;
      for (int i = 0; i < 200; ++i) {
        const tick due = 78 + rng() % 1500;
        wheel.arm(timers.emplace_back(fired, due).t, due);
      }
      while (wheel.size() != 0) {
        const std::size_t before = fired.size();
        const tick last = wheel.now();
        ASSERT_FALSE(wheel.advance(last + stride, plenty).more);
        for (std::size_t i = before; i < fired.size(); ++i) {
          ASSERT_LE(fired[i], wheel.now());
          ASSERT_GT(fired[i], last);
        }
      }
      EXPECT_EQ(fired.size(), 200u);
      EXPECT_TRUE(std::ranges::is_sorted(fired));
    }
}

TEST_P(TimerWheel, DeadlineOrderHoldsForRefreshedTimersToo) {
  // Deferred ones wait in slots of earlier ticks than their own.
  std::mt19937_64 rng{12};
  for (const std::size_t slots : {1u, 8u, 64u, 128u})
    for (const tick stride : {1u, 7u, 8u, 40u, 64u, 65u, 1000u}) {
      SCOPED_TRACE(::testing::Message() << slots << " slots, stride " << stride);
      timer_wheel wheel{with(slots)};
      std::vector<tick> fired;
      std::deque<dated> timers;
      for (int i = 0; i < 200; ++i) {
        dated& d = timers.emplace_back(fired, 1 + rng() % 300);
        wheel.arm(d.t, d.due);
        d.due += rng() % 60;
        ASSERT_TRUE(wheel.refresh(d.t, d.due));
      }
      while (wheel.size() != 0) {
        ASSERT_FALSE(wheel.advance(wheel.now() + stride, plenty).more);
        ASSERT_TRUE(fired.empty() || fired.back() <= wheel.now());
      }
      EXPECT_EQ(fired.size(), 200u);
      EXPECT_TRUE(std::ranges::is_sorted(fired));
    }
}

TEST_P(TimerWheel, AJumpOfManyLapsOverPowersOfTwoKeepsOrder) {
  // The sorting of a long jump works on bits of the deadline: straddle each of them.
  for (unsigned bit = 4; bit < 64; ++bit) {
    const tick middle = tick{1} << bit;
    timer_wheel wheel{with(4, middle - 9)};
    std::vector<tick> fired;
    std::deque<dated> timers;
    for (const tick due : {middle + 40, middle - 1, middle, middle + 1, middle - 8, middle + 39,
                           middle + 9, middle - 5, middle + 2, middle + 8, middle})
      wheel.arm(timers.emplace_back(fired, due).t, due);
    const progress done = wheel.advance(middle + 40, plenty);
    EXPECT_EQ(done.fired, 11u) << bit;
    EXPECT_FALSE(done.more);
    EXPECT_TRUE(std::ranges::is_sorted(fired)) << bit;
    EXPECT_TRUE(wheel.check_invariants());
  }
}

TEST_P(TimerWheel, WhatACallbackArmsWaitsForALaterTick) {
  timer_wheel wheel{with(8)};
  journal log;
  actor same_slot{log, wheel, "lap"}, next{log, wheel, "next"}, past{log, wheel, "past"};
  actor a{log, wheel, "A", [&] {
            wheel.arm(same_slot, wheel.now() + 8);
            wheel.arm(next, wheel.now() + 1);
            wheel.arm(past, 0);
            wheel.arm(a, wheel.now());
          }};
  wheel.arm(a, 5);
  EXPECT_EQ(wheel.advance(5).fired, 1u);
  EXPECT_EQ(log.take(), "A@5");
  a.then = nullptr;
  EXPECT_EQ(wheel.advance(6).fired, 3u);
  log.take();
  pump(wheel, 12);
  EXPECT_EQ(log.take(), "");
  pump(wheel, 13);
  EXPECT_EQ(log.take(), "lap@13");
}

TEST_P(TimerWheel, ArmedDuringACatchUpWaitsForTheTickAfterIt) {
  for (const tick jump : {tick{7}, tick{8}, tick{9}, tick{500}}) {
    timer_wheel wheel{with(8)};
    journal log;
    actor b{log, wheel, "B"};
    actor a{log, wheel, "A", [&] { wheel.arm(b, 2); }};  // long past, though the sweep is before it
    wheel.arm(a, 1);
    EXPECT_EQ(wheel.advance(jump, plenty).fired, 1u);
    EXPECT_EQ(b->deadline(), jump + 1);
    EXPECT_EQ(wheel.advance(jump, plenty).fired, 0u);
    EXPECT_EQ(wheel.advance(jump + 1, plenty).fired, 1u);
  }
}

// ---- arming

TEST_P(TimerWheel, ArmingAgainReplaces) {
  for (const tick first : {3u, 4u, 12u, 100u})
    for (const tick second : {2u, 3u, 4u, 11u, 12u, 20u, 101u}) {
      timer_wheel wheel{with(8)};
      journal log;
      actor a{log, wheel, "A"};
      wheel.arm(a, first);
      wheel.arm(a, second);
      EXPECT_EQ(wheel.size(), 1u);
      EXPECT_EQ(a->deadline(), second);
      EXPECT_TRUE(wheel.check_invariants());
      pump(wheel, 200);
      EXPECT_EQ(log.take(), "A@" + std::to_string(second)) << first;
    }
}

TEST_P(TimerWheel, ArmingMovesFromAnotherWheel) {
  for (const bool set_aside : {false, true}) {
    timer_wheel one{with(8)}, two{with(4, 50)};
    journal log;
    actor a{log, two, "A"}, b{log, one, "B"};
    one.arm(a, 3);
    one.arm(b, 3);
    if (set_aside) one.advance(3, 0);
    two.arm(a, 60);
    EXPECT_EQ(one.size(), 1u);
    EXPECT_EQ(two.size(), 1u);
    EXPECT_TRUE(one.check_invariants() && two.check_invariants());
    EXPECT_FALSE(one.cancel(a));
    EXPECT_FALSE(one.refresh(a, 5));
    one.advance(100);
    EXPECT_EQ(log.take(), "B@100");
    pump(two, 60);
    EXPECT_EQ(log.take(), "A@60");
  }
}

TEST_P(TimerWheel, ADeadlineAlreadyReachedFiresAtTheNextTickAndNotInsideTheCall) {
  for (const tick deadline : {tick{0}, tick{7}, tick{99}, tick{100}}) {
    timer_wheel wheel{with(8, 100)};
    journal log;
    actor armed{log, wheel, "A"}, refreshed{log, wheel, "R"};
    wheel.arm(armed, deadline);
    wheel.arm(refreshed, 130);
    EXPECT_TRUE(wheel.refresh(refreshed, deadline));
    EXPECT_EQ(log.take(), "");
    EXPECT_EQ(armed->deadline(), 101u);
    EXPECT_EQ(refreshed->deadline(), 101u);
    EXPECT_EQ(wheel.next_visit(), 101u);
    EXPECT_EQ(wheel.advance(100).fired, 0u);
    EXPECT_EQ(wheel.advance(101).fired, 2u);
  }
}

TEST_P(TimerWheel, ADeadlineBehindASleepingWheelCountsFromTheWheelsOwnTick) {
  // The wheel still holds the tick of its last advance; a deadline between that and the real time
  // is the caller's arithmetic, and fires at the first advance that reaches it.
  timer_wheel wheel{with(8)};
  journal log;
  actor a{log, wheel, "A"};
  wheel.arm(a, 205);
  EXPECT_EQ(wheel.advance(200, plenty).fired, 0u);
  EXPECT_EQ(wheel.advance(204, plenty).fired, 0u);
  EXPECT_EQ(wheel.advance(205, plenty).fired, 1u);
}

// ---- refreshing

TEST_P(TimerWheel, RefreshMovesLaterAndEarlier) {
  for (const std::size_t slots : {1u, 2u, 8u, 64u})
    for (const tick first : {3u, 8u, 9u, 70u})
      for (const tick second : {1u, 2u, 3u, 4u, 10u, 11u, 16u, 17u, 19u, 67u, 150u})
        for (const tick third : {1u, 2u, 3u, 11u, 12u, 75u, 300u}) {
          timer_wheel wheel{with(slots)};
          journal log;
          actor a{log, wheel, "A"};
          wheel.arm(a, first);
          EXPECT_TRUE(wheel.refresh(a, second));
          EXPECT_TRUE(wheel.refresh(a, third));
          EXPECT_EQ(a->deadline(), third);
          EXPECT_EQ(wheel.size(), 1u);
          EXPECT_TRUE(wheel.check_invariants());
          EXPECT_LE(*wheel.next_visit(), third);
          visit(wheel, 400);
          ASSERT_EQ(log.take(), "A@" + std::to_string(third))
              << slots << ' ' << first << ' ' << second;
        }
}

TEST_P(TimerWheel, RefreshNeverRevives) {
  timer_wheel wheel{with(8)}, other{with(8)};
  journal log;
  actor idle{log, wheel, "idle"};
  EXPECT_FALSE(wheel.refresh(idle, 5)) << "never armed";
  wheel.arm(idle, 3);
  idle->cancel();
  EXPECT_FALSE(wheel.refresh(idle, 5)) << "cancelled";
  EXPECT_FALSE(idle->armed());

  bool revived = true;
  idle.then = [&] { revived = wheel.refresh(idle, 50); };
  wheel.arm(idle, 3);
  wheel.advance(3);
  EXPECT_FALSE(revived) << "in its own callback";
  EXPECT_FALSE(wheel.refresh(idle, 50)) << "fired";

  other.arm(idle, 7);
  EXPECT_FALSE(wheel.refresh(idle, 50)) << "on another wheel";
  EXPECT_EQ(idle->deadline(), 7u);
  EXPECT_EQ(wheel.size(), 0u);
  EXPECT_EQ(wheel.next_visit(), std::nullopt);
  EXPECT_EQ(wheel.advance(100, plenty).fired, 0u);
}

TEST_P(TimerWheel, RefreshOfOneSetAsideSavesIt) {
  for (const tick jump : {tick{3}, tick{100}})
    for (const tick by : {0u, 1u, 2u, 7u, 8u, 9u, 16u, 40u}) {
      timer_wheel wheel{with(8)};
      journal log;
      actor a{log, wheel, "A"}, b{log, wheel, "B"};
      wheel.arm(a, 3);
      wheel.arm(b, 3);
      EXPECT_TRUE(wheel.advance(jump, 0).more);
      EXPECT_TRUE(wheel.refresh(a, jump + by));
      EXPECT_TRUE(wheel.check_invariants());
      EXPECT_FALSE(wheel.advance(jump, plenty).more);
      EXPECT_EQ(log.take(), "B@" + std::to_string(jump));
      EXPECT_TRUE(wheel.check_invariants());
      visit(wheel, jump + 100);
      EXPECT_EQ(log.take(), "A@" + std::to_string(jump + std::max<tick>(by, 1)));
    }
}

TEST_P(TimerWheel, ARefreshWithinTheSameTickIsOneStore) {
  timer_wheel wheel{with(8)};
  timer t{[] {}};
  wheel.arm(t, 6);
  for (int i = 0; i < 10; ++i) wheel.refresh(t, 6);
  EXPECT_EQ(wheel.counts().relinked, 0u);
  wheel.advance(6);
  EXPECT_EQ(wheel.counts().relinked, 0u);
  EXPECT_EQ(wheel.counts().fired, 1u);
}

TEST(TimerWheelCounts, RelinkMovesAtOnce) {
  timer_wheel wheel{{.slots = 8}};
  timer t{[] {}};
  wheel.arm(t, 2);
  wheel.refresh(t, 3);
  EXPECT_EQ(wheel.counts().relinked, 1u);
  wheel.refresh(t, 3 + 8);  // the same slot: a store, the sweep settles it
  EXPECT_EQ(wheel.counts().relinked, 1u);
  wheel.advance(3);
  EXPECT_EQ(wheel.counts().relinked, 2u);
  EXPECT_EQ(wheel.counts().kept, 0u);
  EXPECT_EQ(wheel.next_visit(), 11u);
}

TEST(TimerWheelCounts, DeferredMovesWhenTheSweepComesBy) {
  timer_wheel wheel{{.slots = 8, .refresh = refresh_mode::deferred}};
  timer t{[] {}};
  wheel.arm(t, 2);
  for (tick to = 3; to <= 7; ++to) wheel.refresh(t, to);
  EXPECT_EQ(wheel.counts().relinked, 0u);
  EXPECT_EQ(wheel.next_visit(), 2u);  // its old place
  wheel.advance(2);
  EXPECT_EQ(wheel.counts().relinked, 1u);
  EXPECT_EQ(wheel.next_visit(), 7u);
  wheel.refresh(t, 6);  // earlier: at once
  EXPECT_EQ(wheel.counts().relinked, 2u);
  wheel.advance(6);
  EXPECT_EQ(wheel.counts().fired, 1u);
  EXPECT_EQ(wheel.counts().relinked, 2u);
}

// A store is enough as long as the new deadline lies behind the old place.
TEST(TimerWheelCounts, DeferredEarlierThanItsDeadlineButNotThanItsPlaceIsAStore) {
  timer_wheel wheel{{.slots = 8, .refresh = refresh_mode::deferred}};
  journal log;
  actor a{log, wheel, "A"};
  wheel.arm(a, 2);
  wheel.refresh(a, 7);
  wheel.refresh(a, 4);
  wheel.refresh(a, 2);
  EXPECT_EQ(wheel.counts().relinked, 0u);
  pump(wheel, 10);
  EXPECT_EQ(log.take(), "A@2");
}

// ---- time

TEST_P(TimerWheel, AnOlderNowIsNoTimeAtAll) {
  timer_wheel wheel{with(8, 100)};
  journal log;
  actor a{log, wheel, "A"};
  wheel.arm(a, 103);
  for (const tick now : {99u, 0u, 100u, 50u}) {
    const progress done = wheel.advance(now);
    EXPECT_EQ(done.fired, 0u);
    EXPECT_FALSE(done.more);
    EXPECT_EQ(wheel.now(), 100u);
    EXPECT_TRUE(wheel.check_invariants());
  }
  wheel.advance(102);
  EXPECT_EQ(log.take(), "");
  wheel.advance(3);
  EXPECT_EQ(wheel.now(), 102u);
  wheel.advance(103);
  EXPECT_EQ(log.take(), "A@103");
}

TEST_P(TimerWheel, AnOlderNowResumesAnUnfinishedPass) {
  timer_wheel wheel{with(8)};
  journal log;
  actor a{log, wheel, "A"}, b{log, wheel, "B"};
  wheel.arm(a, 3);
  wheel.arm(b, 4);
  EXPECT_TRUE(wheel.advance(5, 1).more);
  EXPECT_FALSE(wheel.advance(0, 1).more);
  EXPECT_EQ(log.take(), "A@5 B@5");
}

TEST_P(TimerWheel, TimeMovesWithNothingArmed) {
  timer_wheel wheel{with(8)};
  for (const tick now : {1u, 2u, 10u, 1000u}) {
    EXPECT_EQ(wheel.advance(now).fired, 0u);
    EXPECT_EQ(wheel.now(), now);
  }
  timer t{[] {}};
  wheel.arm(t, 3);
  EXPECT_EQ(t.deadline(), 1001u);
}

TEST_P(TimerWheel, TheLargestTickNeverComes) {
  for (const tick start : {tick{0}, never - 100, never - 2, never - 1, never}) {
    timer_wheel wheel{with(8, start)};
    journal log;
    actor forever{log, wheel, "F"}, refreshed{log, wheel, "R"};
    wheel.arm(forever, never);
    wheel.arm(refreshed, saturated_sum(start, 10));
    EXPECT_TRUE(wheel.refresh(refreshed, never));
    ASSERT_TRUE(wheel.next_visit());
    EXPECT_FALSE(wheel.advance(never, plenty).more);
    EXPECT_EQ(wheel.now(), never - 1);
    EXPECT_FALSE(wheel.advance(never, plenty).more);
    EXPECT_EQ(log.take(), "");
    EXPECT_EQ(wheel.next_visit(), never);
    EXPECT_TRUE(wheel.check_invariants());
    EXPECT_TRUE(forever->cancel());
    EXPECT_TRUE(refreshed->cancel());
    EXPECT_EQ(wheel.next_visit(), std::nullopt);
  }
}

TEST_P(TimerWheel, TheTickBeforeTheLargestDoesCome) {
  for (const tick start : {tick{0}, never - 100, never - 3, never - 2}) {
    timer_wheel wheel{with(8, start)};
    journal log;
    actor last{log, wheel, "L"};
    wheel.arm(last, never - 1);
    EXPECT_EQ(wheel.next_visit(), never - 1);
    EXPECT_EQ(wheel.advance(never - 2, plenty).fired, 0u);
    EXPECT_EQ(wheel.next_visit(), never - 1);
    EXPECT_EQ(wheel.advance(never - 1, plenty).fired, 1u);
  }
}

TEST_P(TimerWheel, WorksAcrossEachPowerOfTwoAndUpToTheEnd) {
  for (const tick boundary : {tick{1} << 31, tick{1} << 32, tick{1} << 63, never - 200})
    for (const std::size_t slots : {1u, 8u, 64u, 256u}) {
      SCOPED_TRACE(::testing::Message() << boundary << ", " << slots << " slots");
      timer_wheel wheel{with(slots, boundary - 20)};
      std::vector<tick> fired;
      std::deque<dated> timers;
      for (tick due = boundary + 100; due > boundary - 20; --due)
        wheel.arm(timers.emplace_back(fired, due).t, due);
      for (tick now = boundary - 19; now <= boundary + 100; ++now) {
        ASSERT_EQ(wheel.next_visit(), now);
        ASSERT_EQ(wheel.advance(now, plenty).fired, 1u);
        ASSERT_EQ(fired.back(), now);
        ASSERT_TRUE(wheel.check_invariants());
      }
      // Refreshed from below the boundary to above it.
      timer_wheel second{with(slots, boundary - 20)};
      journal log;
      actor a{log, second, "A"};
      second.arm(a, boundary - 2);
      pump(second, boundary - 5);
      EXPECT_TRUE(second.refresh(a, boundary + 150));
      visit(second, boundary + 149);
      EXPECT_EQ(log.take(), "");
      visit(second, boundary + 150);
      EXPECT_EQ(log.take(), "A@" + std::to_string(boundary + 150));
    }
}

// ---- next_visit

TEST_P(TimerWheel, NextVisitOfOneTimerIsItsDeadline) {
  for (const std::size_t slots : {1u, 2u, 32u, 64u, 128u, 256u}) {
    timer_wheel wheel{with(slots)};
    timer t{[] {}};
    for (tick now = 0; now < 260; ++now) {
      wheel.advance(now);
      for (tick delay = 1; delay < 600; delay += delay < 270 ? 1 : 13) {
        wheel.arm(t, now + delay);
        ASSERT_EQ(wheel.next_visit(), now + delay) << slots << " slots, now " << now;
      }
      t.cancel();
      ASSERT_EQ(wheel.next_visit(), std::nullopt);
    }
  }
}

TEST_P(TimerWheel, NextVisitIsTheSoonestOfMany) {
  std::mt19937_64 rng{5};
  for (int round = 0; round < 2000; ++round) {
    timer_wheel wheel{with(std::size_t{1} << (rng() % 9), rng() % 1000)};
    std::deque<timer> timers;
    tick soonest = never;
    for (auto n = 1 + rng() % 8; n != 0; --n) {
      const tick due = wheel.now() + 1 + rng() % (rng() % 2 ? 40 : 4000);
      soonest = std::min(soonest, due);
      wheel.arm(timers.emplace_back([] {}), due);
    }
    ASSERT_EQ(wheel.next_visit(), soonest);  // exact while nothing was cancelled or refreshed
  }
}

TEST_P(TimerWheel, NextVisitIsNowWhileAPassIsUnfinished) {
  for (const tick jump : {tick{5}, tick{200}}) {
    timer_wheel wheel{with(8)};
    std::deque<timer> timers;
    for (int i = 0; i < 3; ++i) wheel.arm(timers.emplace_back([] {}), 4);
    wheel.arm(timers.emplace_back([] {}), 1000);
    EXPECT_TRUE(wheel.advance(jump, 0).more);
    EXPECT_EQ(wheel.next_visit(), jump);
    EXPECT_TRUE(wheel.advance(jump, 1).more);
    EXPECT_EQ(wheel.next_visit(), jump);
    EXPECT_FALSE(wheel.advance(jump, plenty).more);
    EXPECT_EQ(wheel.next_visit(), 1000u);
  }
}

TEST_P(TimerWheel, NextVisitIsEmptyWhenNothingIsArmedEvenInAPass) {
  timer_wheel wheel{with(8)};
  timer a{[] {}}, b{[] {}};
  EXPECT_EQ(wheel.next_visit(), std::nullopt);
  wheel.arm(a, 3);
  wheel.arm(b, 3);
  wheel.advance(4, 1);
  EXPECT_EQ(wheel.next_visit(), 4u);
  b.cancel();
  a.cancel();
  EXPECT_EQ(wheel.next_visit(), std::nullopt);
  EXPECT_FALSE(wheel.advance(4).more);
}

TEST_P(TimerWheel, ATimerLapsAheadBringsTheVisitNoNearer) {
  for (const tick laps : {1u, 2u, 50u}) {
    timer_wheel wheel{with(8)};
    timer far{[] {}};
    wheel.arm(far, 3 + laps * 8);
    EXPECT_EQ(visit(wheel, 3 + laps * 8), 1u);
    EXPECT_EQ(wheel.counts().fired, 1u);
    EXPECT_EQ(wheel.counts().kept, 0u);
  }
}

TEST_P(TimerWheel, VisitsInVainAreBounded) {
  // In the near timer's slot another waits three laps ahead: cancelling the near one may leave its
  // tick as the slot's bound, for one visit.
  {
    timer_wheel wheel{with(8)};
    timer near{[] {}}, far{[] {}};
    wheel.arm(near, 3);
    wheel.arm(far, 3 + 24);
    near.cancel();
    EXPECT_LE(visit(wheel, 27), 2u);
    EXPECT_EQ(wheel.counts().fired, 1u);
    EXPECT_LE(wheel.counts().kept, 1u);
  }
  // Refreshed very often: at most the old place, and the new one.
  {
    timer_wheel wheel{with(64)};
    timer t{[] {}};
    wheel.arm(t, 10);
    for (tick to = 11; to <= 50; ++to) wheel.refresh(t, to);
    EXPECT_LE(visit(wheel, 50), 2u);
    EXPECT_EQ(wheel.counts().fired, 1u);
  }
  // A connection that is active for 1,000 ticks with a timeout of 20, from one tick to the next:
  // every 19 ticks its old place comes by.
  {
    timer_wheel wheel{with(64)};
    timer t{[] {}};
    wheel.arm(t, 20);
    std::size_t visits = 0;
    for (tick now = 1; now <= 1000; ++now) {
      visits += visit(wheel, now);
      ASSERT_TRUE(wheel.refresh(t, now + 20));
    }
    EXPECT_LE(visits, 1000u / 19);
    EXPECT_EQ(wheel.counts().fired, 0u);
  }
}

// ---- budget

TEST_P(TimerWheel, TheBudgetLimitsWhatFiresAndMoreIsExact) {
  for (const tick jump : {tick{5}, tick{6}})  // both without and with slots behind the due one
    for (std::size_t due = 0; due <= 8; ++due)
      for (std::size_t budget = 0; budget <= 10; ++budget) {
        timer_wheel wheel{with(8)};
        std::deque<timer> timers;
        for (std::size_t i = 0; i < due; ++i) wheel.arm(timers.emplace_back([] {}), 5);
        wheel.arm(timers.emplace_back([] {}), 7);
        const progress done = wheel.advance(jump, budget);
        ASSERT_EQ(done.fired, std::min(due, budget));
        ASSERT_EQ(done.more, due > budget) << due << " due, budget " << budget;
        ASSERT_TRUE(wheel.check_invariants());
        const progress rest = wheel.advance(jump, plenty);
        ASSERT_EQ(done.fired + rest.fired, due);
        ASSERT_FALSE(rest.more);
      }
}

TEST_P(TimerWheel, MoreIsExactAcrossSlots) {
  // Five timers in five slots: what is left lies in slots not yet taken.
  for (std::size_t budget = 0; budget <= 6; ++budget) {
    timer_wheel wheel{with(64)};
    std::deque<timer> timers;
    for (tick due = 10; due < 60; due += 10) wheel.arm(timers.emplace_back([] {}), due);
    const progress done = wheel.advance(60, budget);
    EXPECT_EQ(done.fired, std::min<std::size_t>(budget, 5));
    EXPECT_EQ(done.more, budget < 5);
    EXPECT_EQ(wheel.next_visit(), budget < 5 ? std::optional<tick>{60} : std::nullopt);
  }
}

TEST_P(TimerWheel, TheBudgetCountsTimersOnlyLookedAt) {
  // Five near and five a lap ahead in one slot: ten are met, whatever their order.
  timer_wheel wheel{with(8)};
  std::deque<timer> timers;
  for (int i = 0; i < 5; ++i) {
    wheel.arm(timers.emplace_back([] {}), 3 + 8);
    wheel.arm(timers.emplace_back([] {}), 3);
  }
  std::size_t fired = 0, calls = 0;
  for (bool more = true; more; ++calls) {
    ASSERT_LT(calls, 20u);
    const progress done = wheel.advance(3, 1);
    EXPECT_LE(done.fired, 1u);
    fired += done.fired;
    more = done.more;
    EXPECT_EQ(wheel.counts().fired + wheel.counts().kept, calls + 1);
    EXPECT_TRUE(wheel.check_invariants());
  }
  EXPECT_EQ(fired, 5u);
  EXPECT_EQ(calls, 10u);
  EXPECT_EQ(wheel.counts().kept, 5u);
}

TEST(TimerWheelBudget, CountsRefilingOfDeferredTimers) {
  timer_wheel wheel{{.slots = 64, .refresh = refresh_mode::deferred}};
  std::deque<timer> timers;
  for (int i = 0; i < 10; ++i) {
    wheel.arm(timers.emplace_back([] {}), 5);
    wheel.refresh(timers.back(), 50);
  }
  progress done = wheel.advance(5, 4);
  EXPECT_EQ(done.fired, 0u);
  EXPECT_TRUE(done.more);
  EXPECT_EQ(wheel.counts().relinked, 4u);
  EXPECT_EQ(wheel.next_visit(), 5u);
  done = wheel.advance(5, 6);
  EXPECT_FALSE(done.more);
  EXPECT_EQ(wheel.counts().relinked, 10u);
  EXPECT_EQ(wheel.next_visit(), 50u);
  EXPECT_EQ(wheel.advance(50, 100).fired, 10u);
}

TEST_P(TimerWheel, AResumedPassFinishesOlderWorkBeforeNewer) {
  for (const tick first_jump : {tick{6}, tick{100}}) {
    timer_wheel wheel{with(8)};
    std::vector<tick> fired;
    std::deque<dated> timers;
    const auto arm = [&](tick due) { wheel.arm(timers.emplace_back(fired, due).t, due); };
    for (const tick due : {4u, 5u, 6u, 5u, 4u, 6u}) arm(due);
    EXPECT_TRUE(wheel.advance(first_jump, 2).more);
    // Newer work, in every slot, also in those of the older.
    for (tick due = first_jump + 16; due > first_jump; --due) arm(due);
    while (wheel.advance(first_jump + 16, 1).more) ASSERT_TRUE(wheel.check_invariants());
    EXPECT_EQ(fired.size(), 22u);
    EXPECT_TRUE(std::ranges::is_sorted(fired));
  }
}

TEST_P(TimerWheel, SmallBudgetsOverManyPassesKeepOrderAndLoseNothing) {
  std::mt19937_64 rng{3};
  for (const std::size_t slots : {1u, 4u, 32u}) {
    timer_wheel wheel{with(slots)};
    std::vector<tick> fired;
    std::deque<dated> timers;
    tick real = 0;
    for (int step = 0; step < 3000; ++step) {
      real += rng() % 5;
      if (step % 500 == 0) real += 200;
      const tick due = std::max(real, wheel.now()) + 1 + rng() % 60;
      wheel.arm(timers.emplace_back(fired, due).t, due);
      wheel.advance(real, rng() % 3);
      ASSERT_TRUE(wheel.check_invariants());
    }
    wheel.advance(real + 100, plenty);
    EXPECT_EQ(fired.size(), 3000u);
    EXPECT_TRUE(std::ranges::is_sorted(fired));
  }
}

TEST_P(TimerWheel, EachTimerIsMetOnceInAPassWithinALap) {
  // Every slot holds one due timer and one three laps ahead.
  timer_wheel wheel{with(64)};
  std::deque<timer> timers;
  for (tick due = 1; due <= 64; ++due) {
    wheel.arm(timers.emplace_back([] {}), due + 3 * 64);
    wheel.arm(timers.emplace_back([] {}), due);
  }
  std::size_t calls = 1;
  while (wheel.advance(64, 1).more) ++calls;
  EXPECT_EQ(calls, 128u);
  EXPECT_EQ(wheel.counts().fired, 64u);
  EXPECT_EQ(wheel.counts().kept, 64u);
  EXPECT_EQ(wheel.counts().relinked, 0u);
}

TEST_P(TimerWheel, TimersLapsAheadAreNotTouchedAtEachLap) {
  timer_wheel wheel{with(8)};
  std::deque<timer> timers;
  for (tick slot = 0; slot < 8; ++slot) wheel.arm(timers.emplace_back([] {}), 50 * 8 + slot);
  pump(wheel, 50 * 8 - 1);
  EXPECT_EQ(wheel.counts().kept, 0u);
  EXPECT_EQ(wheel.counts().relinked, 0u);
  EXPECT_EQ(wheel.counts().fired, 0u);
  // And not after they were met once, beside a near one.
  timer near{[] {}};
  wheel.arm(timers.emplace_back([] {}), 90 * 8 + 1);
  pump(wheel, 50 * 8 + 8);
  wheel.arm(near, 51 * 8 + 1);
  pump(wheel, 52 * 8);
  EXPECT_EQ(wheel.counts().kept, 2u);  // beside slot 1's own timer, and beside `near`
  pump(wheel, 90 * 8);
  EXPECT_EQ(wheel.counts().kept, 2u);
  EXPECT_EQ(wheel.next_visit(), 90 * 8 + 1u);
}

TEST_P(TimerWheel, AJumpVisitsEachTimerABoundedNumberOfTimes) {
  // As promised: beyond the one meeting, log2 of the ticks jumped. The bits of a number of n ticks
  // are log2(n) + 1, and the first of them may be spent on straddling a power of two.
  std::mt19937_64 rng{9};
  for (const tick start : {tick{0}, (tick{1} << 40) - 3})
    for (const tick jump : {9u, 100u, 1000u, 60'000u})
      for (const std::size_t slots : {1u, 8u}) {
        timer_wheel wheel{with(slots, start)};
        std::deque<timer> timers;
        for (int i = 0; i < 100; ++i)
          wheel.arm(timers.emplace_back([] {}), start + 1 + rng() % jump);
        std::size_t meets = 1;
        while (wheel.advance(start + jump, 1).more) ASSERT_LT(++meets, 100'000u);
        EXPECT_EQ(wheel.counts().fired, 100u);
        EXPECT_LE(meets, 100u * (2 + 1 + static_cast<std::size_t>(std::bit_width(jump))));
      }
}

TEST_P(TimerWheel, AJumpJustBeyondALapVisitsNoSlotTwice) {
  for (const tick more : {tick{1}, tick{2}, tick{7}, tick{8}, tick{9}}) {
    timer_wheel wheel{with(8)};
    std::vector<tick> fired;
    std::deque<dated> timers;
    for (tick due = 8 + more; due != 0; --due) wheel.arm(timers.emplace_back(fired, due).t, due);
    EXPECT_EQ(wheel.advance(8 + more, plenty).fired, 8 + more);
    EXPECT_TRUE(std::ranges::is_sorted(fired));
    EXPECT_EQ(wheel.counts().kept, 0u);
    EXPECT_EQ(wheel.counts().relinked, 0u);
  }
}

TEST_P(TimerWheel, AJumpMeetsTimersBeyondItOnce) {
  timer_wheel wheel{with(8)};
  std::deque<timer> timers;
  for (tick i = 0; i < 32; ++i) {
    wheel.arm(timers.emplace_back([] {}), 1000 + i);
    wheel.arm(timers.emplace_back([] {}), 1 + i);
  }
  EXPECT_EQ(wheel.advance(500, plenty).fired, 32u);
  EXPECT_EQ(wheel.counts().kept, 32u);
  EXPECT_EQ(wheel.counts().relinked, 0u);
}

TEST_P(TimerWheel, AVeryLongJumpIsShortWork) {
  timer_wheel wheel{with(512)};
  journal log;
  actor a{log, wheel, "A"}, b{log, wheel, "B"};
  wheel.arm(a, 3);
  wheel.arm(b, tick{1} << 62);
  EXPECT_EQ(wheel.advance(tick{1} << 61, plenty).fired, 1u);
  EXPECT_EQ(wheel.advance(tick{1} << 63, plenty).fired, 1u);
}

// A pass that was interrupted in the middle of sorting, and whose timers then all went away, must
// leave nothing behind for the next long jump.
TEST_P(TimerWheel, AJumpAbandonedWhileSortingLeavesNothingBehind) {
  for (std::size_t budget = 0; budget <= 24; ++budget)
    for (const tick base : {tick{255}, tick{256}, tick{1000}, tick{1023}, tick{4095}}) {
      SCOPED_TRACE(::testing::Message() << "budget " << budget << ", base " << base);
      timer_wheel wheel{with(4)};
      std::deque<timer> doomed;
      for (tick due = 100; due < 108; ++due) wheel.arm(doomed.emplace_back([] {}), due);
      wheel.advance(200, budget);
      doomed.clear();
      ASSERT_FALSE(wheel.advance(base, plenty).more);

      std::vector<tick> fired;
      std::deque<dated> timers;
      for (tick due = base + 1; due <= base + 150; ++due)
        wheel.arm(timers.emplace_back(fired, due).t, due);
      ASSERT_TRUE(wheel.check_invariants());
      const progress done = wheel.advance(base + 150, 10'000);
      ASSERT_FALSE(done.more) << "the pass does not end";
      ASSERT_EQ(done.fired, 150u);
      ASSERT_TRUE(std::ranges::is_sorted(fired));
    }
}

TEST_P(TimerWheel, NestedAdvanceDoesNothingAndSaysSo) {
  for (const tick jump : {tick{3}, tick{300}}) {
    timer_wheel wheel{with(8)};
    journal log;
    progress nested;
    tick now_inside = 0;
    actor b{log, wheel, "B"};
    actor a{log, wheel, "A", [&] {
              nested = wheel.advance(jump + 1000);
              now_inside = wheel.now();
            }};
    wheel.arm(a, 2);
    wheel.arm(b, 3);
    EXPECT_EQ(wheel.advance(jump).fired, 2u);
    EXPECT_EQ(nested.fired, 0u);
    EXPECT_TRUE(nested.more);
    EXPECT_EQ(now_inside, jump);
    EXPECT_EQ(wheel.now(), jump);
  }
}

TEST_P(TimerWheel, AnotherWheelMayBeAdvancedFromACallback) {
  timer_wheel outer{with(8)}, inner{with(8)};
  journal log;
  actor b{log, inner, "B"};
  actor a{log, outer, "A", [&] { EXPECT_EQ(inner.advance(9).fired, 1u); }};
  outer.arm(a, 3);
  inner.arm(b, 9);
  outer.advance(3);
  EXPECT_EQ(log.take(), "A@3 B@9");
}

// ---- cancelling

TEST_P(TimerWheel, CancelAllDisarmsEverythingWherever) {
  for (const tick jump : {tick{0}, tick{4}, tick{12}, tick{50}})
    for (std::size_t budget = 0; budget < 30; ++budget) {
      timer_wheel wheel{with(8)};
      std::size_t ran = 0;
      std::deque<timer> timers;
      for (tick due = 1; due <= 20; ++due) wheel.arm(timers.emplace_back([&ran] { ++ran; }), due);
      const std::size_t fired = wheel.advance(jump, budget).fired;
      wheel.cancel_all();
      ASSERT_EQ(ran, fired);
      ASSERT_EQ(wheel.size(), 0u);
      ASSERT_EQ(wheel.next_visit(), std::nullopt);
      ASSERT_TRUE(wheel.check_invariants());
      for (const timer& t : timers) ASSERT_FALSE(t.armed());
      wheel.cancel_all();
      ASSERT_FALSE(wheel.advance(100, plenty).more);
      ASSERT_EQ(ran, fired);
      // And it is as good as new.
      for (timer& t : timers) wheel.arm(t, 300);
      ASSERT_EQ(wheel.advance(300, plenty).fired, 20u);
    }
}

TEST_P(TimerWheel, CancellingReleasesTheSlot) {
  for (const std::size_t slots : {1u, 8u, 64u, 256u}) {
    timer_wheel wheel{with(slots)};
    std::deque<timer> timers;
    for (tick due = 1; due <= 300; ++due) wheel.arm(timers.emplace_back([] {}), due);
    for (timer& t : timers) {
      ASSERT_TRUE(t.cancel());
      ASSERT_TRUE(wheel.check_invariants());
    }
    EXPECT_EQ(wheel.size(), 0u);
    EXPECT_EQ(wheel.next_visit(), std::nullopt);
  }
}

// ---- lifetime

TEST_P(TimerWheel, TimersMayDieFirst) {
  timer_wheel wheel{with(8)};
  {
    timer waiting{[] { FAIL(); }}, due{[] { FAIL(); }};
    wheel.arm(waiting, 50);
    wheel.arm(due, 1);
    wheel.advance(2, 0);
  }
  EXPECT_EQ(wheel.size(), 0u);
  EXPECT_TRUE(wheel.check_invariants());
  EXPECT_FALSE(wheel.advance(100, plenty).more);
}

TEST_P(TimerWheel, TheWheelMayDieFirstEvenWithTimersSetAside) {
  for (const tick jump : {tick{0}, tick{2}, tick{40}})
    for (std::size_t budget = 0; budget <= 8; ++budget) {
      int fires = 0;
      timer near{[&fires] { ++fires; }}, due{[&fires] { ++fires; }}, far{[&fires] { ++fires; }};
      std::size_t fired = 0;
      {
        timer_wheel wheel{with(8)};
        wheel.arm(near, 1);
        wheel.arm(due, 1);
        wheel.arm(far, 500);
        fired = wheel.advance(jump, budget).fired;
      }
      EXPECT_EQ(static_cast<std::size_t>(fires), fired) << "teardown fires nothing";
      for (timer* t : {&near, &due, &far}) {
        EXPECT_FALSE(t->armed());
        EXPECT_FALSE(t->cancel());
        EXPECT_EQ(t->deadline(), std::nullopt);
      }
      // They go on on another wheel.
      timer_wheel other{with(4)};
      for (timer* t : {&near, &due, &far}) other.arm(*t, 3);
      EXPECT_EQ(other.advance(3).fired, 3u);
    }
}

TEST_P(TimerWheel, DestroyingItInsideItsOwnCallbackStopsThere) {
  for (const tick jump : {tick{3}, tick{100}}) {
    auto wheel = std::make_unique<timer_wheel>(with(8));
    int fires = 0;
    struct {
      std::unique_ptr<timer_wheel>* wheel;
      int* fires;
    } both{&wheel, &fires};
    const auto end_it = [&both] {
      ++*both.fires;
      both.wheel->reset();
    };
    timer a{end_it}, b{end_it}, far{end_it};
    wheel->arm(a, 3);
    wheel->arm(b, 3);
    wheel->arm(far, 200);
    const progress done = wheel->advance(jump);
    EXPECT_EQ(done.fired, 1u);
    EXPECT_FALSE(done.more);
    EXPECT_EQ(fires, 1);
    EXPECT_FALSE(a.armed() || b.armed() || far.armed());
  }
}

// ---- books

TEST_P(TimerWheel, CountsFired) {
  timer_wheel wheel{with(8)};
  std::deque<timer> timers;
  for (tick due = 1; due <= 30; ++due) wheel.arm(timers.emplace_back([] {}), due);
  timers[7].cancel();
  pump(wheel, 10);
  EXPECT_EQ(wheel.counts().fired, 9u);
  wheel.advance(40, plenty);
  EXPECT_EQ(wheel.counts().fired, 29u);
}

TEST_P(TimerWheel, SizeCountsTheArmed) {
  timer_wheel wheel{with(8)};
  std::deque<timer> timers;
  for (std::size_t n = 1; n <= 20; ++n) {
    wheel.arm(timers.emplace_back([] {}), 5 * n);
    wheel.arm(timers.back(), 5 * n);
    EXPECT_EQ(wheel.size(), n);
  }
  wheel.advance(10);
  EXPECT_EQ(wheel.size(), 18u);
  wheel.advance(100, 0);
  EXPECT_EQ(wheel.size(), 18u) << "set aside is still armed";
  wheel.advance(100);
  EXPECT_EQ(wheel.size(), 0u);
}

TEST_P(TimerWheel, AllocatesNothingAfterConstruction) {
  timer_wheel wheel{with(64)};
  struct holder {
    timer t{[] {}};
  };
  const auto timers = std::make_unique<holder[]>(1000);
  std::mt19937_64 rng{1};
  const std::size_t before = allocations;
  for (int round = 0; round < 30; ++round) {
    for (std::size_t i = 0; i < 1000; ++i) wheel.arm(timers[i].t, wheel.now() + rng() % 500);
    for (std::size_t i = 0; i < 1000; i += 2) wheel.refresh(timers[i].t, wheel.now() + rng() % 900);
    for (std::size_t i = 0; i < 1000; i += 3) wheel.cancel(timers[i].t);
    wheel.advance(wheel.now() + rng() % 40, 100);
    wheel.advance(wheel.now() + rng() % 400);
    wheel.next_visit();
    wheel.check_invariants();
  }
  wheel.cancel_all();
  EXPECT_EQ(allocations, before);
  EXPECT_GT(before, 0u);
  EXPECT_GT(wheel.counts().fired, 1000u);
}

INSTANTIATE_TEST_SUITE_P(Modes, TimerWheel, both_modes, name_of_mode);

}  // namespace
}  // namespace idlewheel
