// loop_wheel_test.cpp - the driver's contract on a real loop: options, never early, ref and unref,
// the ways to run a loop. Times are bounded from below only.
#include "idlewheel/uv/loop_wheel.hpp"

#include <deque>
#include <memory>
#include <stdexcept>

#include "tests/uv/support.hpp"

namespace idlewheel::uv_tests {
namespace {

// Options ----------------------------------------------------------------------------------------

struct Refused {
  const char* name;
  loop_wheel_options options;
  const char* in_text;
};

class LoopWheelRefuses : public testing::TestWithParam<Refused> {};

TEST_P(LoopWheelRefuses, AWrongOptionAndPrintsItsValue) {
  loop on;  // closes without complaint: no handle was left behind
  try {
    loop_wheel wheel{on, GetParam().options};
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(GetParam().in_text), std::string::npos) << text;
    EXPECT_EQ(text.rfind("idlewheel: ", 0), 0u) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options, LoopWheelRefuses,
    testing::Values(
        Refused{"TickZero", {.tick = 0ns}, "not 0 ns"},
        Refused{"TickNegative", {.tick = -5ms}, "not -5000000 ns"},
        Refused{"TickBelowOneMillisecond", {.tick = 999'999ns}, "not 999999 ns"},
        Refused{"SlotsZero", {.slots = 0}, "slots, not 0"},
        Refused{"SlotsAboveTheMost", {.slots = timer_wheel::max_slots + 1}, "slots, not 16777217"},
        Refused{"BudgetZero", {.budget = 0}, "budget is 1 or more, not 0"}),
    [](const auto& i) { return std::string{i.param.name}; });

TEST(LoopWheelOptions, ANullLoopIsRefused) {
  EXPECT_THROW(loop_wheel{nullptr}, std::invalid_argument);
  try {
    loop_wheel wheel{nullptr};
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string{error.what()}.find("null"), std::string::npos) << error.what();
  }
}

TEST(LoopWheelOptions, AreThoseThatTheWheelRunsOn) {
  loop on;
  loop_wheel wheel{on, {.tick = 7ms, .slots = 100, .refresh = refresh_mode::deferred}};
  EXPECT_EQ(wheel.scale().length(), timespan{7ms});
  EXPECT_EQ(wheel.wheel().slots(), 128u);
  EXPECT_EQ(wheel.wheel().refresh_by(), refresh_mode::deferred);
  EXPECT_EQ(wheel.loop(), on.get());
}

TEST(LoopWheelOptions, DefaultsAreTheDocumentedOnes) {
  loop on;
  loop_wheel wheel{on};
  EXPECT_EQ(wheel.scale().length(), timespan{100ms});
  EXPECT_EQ(wheel.wheel().slots(), 512u);
  EXPECT_EQ(wheel.wheel().refresh_by(), refresh_mode::relink);
}

TEST(LoopWheelOptions, TheSmallestTickIsOneMillisecondExactly) {
  loop on;
  EXPECT_NO_THROW((loop_wheel{on, {.tick = 1ms}}));
}

// Never early ------------------------------------------------------------------------------------

class LoopWheelNeverEarly : public ByMode {
 protected:
  loop on;
  loop_wheel_options with(timespan tick) const { return {.tick = tick, .refresh = GetParam()}; }
};

TEST_P(LoopWheelNeverEarly, WhateverTheTickAndTheTimeout) {
  struct shot {
    std::chrono::nanoseconds tick, timeout;
    instant armed;
    std::unique_ptr<firing> fired;
  };
  std::vector<shot> shots;
  loop_wheel fine{on, with(1ms)}, middling{on, with(10ms)}, coarse{on, with(100ms)};
  std::size_t left = 0;
  for (loop_wheel* wheel : {&fine, &middling, &coarse})
    for (const std::chrono::nanoseconds timeout :
         {std::chrono::nanoseconds{1ns}, std::chrono::nanoseconds{999'999ns},
          std::chrono::nanoseconds{1ms}, std::chrono::nanoseconds{1'000'001ns},
          std::chrono::nanoseconds{9'999'999ns}, std::chrono::nanoseconds{10ms},
          std::chrono::nanoseconds{33ms}, std::chrono::nanoseconds{99'999'999ns},
          std::chrono::nanoseconds{100ms}, std::chrono::nanoseconds{100'000'001ns},
          std::chrono::nanoseconds{123'456'789ns}}) {
      auto fired = std::make_unique<firing>();
      fired->then = [&left] { --left; };
      const instant before = clock_now();
      ASSERT_TRUE(wheel->arm(fired->t, timeout));
      ++left;
      EXPECT_EQ(fired->t.timeout(), timespan{timeout});
      shots.push_back(
          {std::chrono::nanoseconds{wheel->scale().length()}, timeout, before, std::move(fired)});
    }
  ASSERT_TRUE(on.run_until([&] { return left == 0; }));
  for (const shot& s : shots) {
    SCOPED_TRACE(testing::Message()
                 << "tick " << s.tick.count() << " ns, timeout " << s.timeout.count() << " ns");
    EXPECT_EQ(s.fired->count, 1);
    EXPECT_GE((s.fired->at - s.armed).count(), s.timeout.count());
  }
}

TEST_P(LoopWheelNeverEarly, ArmedAtManyPhasesOfATick) {
  loop_wheel wheel{on, with(10ms)};
  std::deque<firing> all(60);
  std::vector<instant> armed(all.size());
  std::size_t left = all.size();
  for (std::size_t i = 0; i != all.size(); ++i) {
    all[i].then = [&left] { --left; };
    block_for(700us);  // the loop's own time stands still meanwhile
    armed[i] = clock_now();
    wheel.arm(all[i].t, 20ms);
  }
  ASSERT_TRUE(on.run_until([&] { return left == 0; }));
  for (std::size_t i = 0; i != all.size(); ++i) EXPECT_GE(all[i].at - armed[i], 20ms) << i;
}

TEST_P(LoopWheelNeverEarly, ZeroAndNegativeFireInALaterTurnAndNotInsideArm) {
  loop_wheel wheel{on, with(1ms)};
  firing zero, negative, very_negative;
  int left = 3;
  for (firing* f : {&zero, &negative, &very_negative}) f->then = [&left] { --left; };
  wheel.arm(zero.t, 0ns);
  wheel.arm(negative.t, -5s);
  wheel.arm(very_negative.t, std::chrono::hours::min());
  EXPECT_EQ(left, 3);
  EXPECT_TRUE(zero.t.armed());
  EXPECT_EQ(negative.t.timeout(), timespan{});
  ASSERT_TRUE(on.run_until([&] { return left == 0; }));
  EXPECT_EQ(zero.count + negative.count + very_negative.count, 3);
}

TEST_P(LoopWheelNeverEarly, AZeroTimeoutArmedByItsOwnCallbackIsNotMetTwiceInOneTurn) {
  loop_wheel wheel{on, with(1ms)};
  std::uint64_t turn = 0;
  each_check count{on, [&turn] { ++turn; }};
  firing again;
  std::vector<std::uint64_t> in_turn;
  again.then = [&] {
    in_turn.push_back(turn);
    if (in_turn.size() < 5) wheel.arm(again.t, 0ns);
  };
  wheel.arm(again.t, 0ns);
  ASSERT_TRUE(on.run_until([&] { return in_turn.size() == 5; }));
  EXPECT_EQ(std::adjacent_find(in_turn.begin(), in_turn.end()), in_turn.end());
}

TEST_P(LoopWheelNeverEarly, TooLongIsCutAndNeverAtOnce) {
  loop_wheel wheel{on, with(1ms)};
  std::deque<firing> all(4);
  wheel.arm(all[0].t, timespan::max());
  wheel.arm(all[1].t, std::chrono::hours::max());
  wheel.arm(all[2].t, std::chrono::duration<double>{1e300});
  wheel.arm(all[3].t, std::chrono::milliseconds{10'000'000'000});
  firing soon;
  wheel.arm(soon.t, 20ms);
  ASSERT_TRUE(on.run_until([&] { return soon.count == 1; }));
  on.run_for(20ms);
  for (firing& f : all) {
    EXPECT_EQ(f.count, 0);
    EXPECT_TRUE(f.t.armed());
    EXPECT_TRUE(wheel.refresh(f.t));
    EXPECT_GT(f.t.remaining(wheel.wheel().now()), 9'000'000'000u);
    EXPECT_TRUE(f.t.cancel());
  }
}

TEST_P(LoopWheelNeverEarly, ArmAtIsExactAndAPastPointIsTheNextTick) {
  loop_wheel wheel{on, with(1ms)};
  firing ahead, past;
  const instant point = later(wheel.now(), 30ms);
  wheel.arm_at(ahead.t, point);
  wheel.arm_at(past.t, instant{});
  EXPECT_EQ(past.count, 0);
  EXPECT_LE(ahead.t.timeout(), timespan{30ms});
  ASSERT_TRUE(on.run_until([&] { return ahead.count + past.count == 2; }));
  EXPECT_GE(ahead.at, point);
  EXPECT_LE(past.at, ahead.at);
}

TEST_P(LoopWheelNeverEarly, AnEarlierTimerIsNotHeldBackByALaterOne) {
  loop_wheel wheel{on, with(1ms)};
  firing late, soon;
  wheel.arm(late.t, 1h);
  wheel.arm(soon.t, 20ms);
  ASSERT_TRUE(on.run_until([&] { return soon.count == 1; }));
  // And when a refresh, not an arm, brings it forward.
  EXPECT_TRUE(wheel.refresh(late.t, 20ms));
  EXPECT_EQ(late.t.timeout(), timespan{20ms});
  ASSERT_TRUE(on.run_until([&] { return late.count == 1; }));
}

TEST_P(LoopWheelNeverEarly, RefreshedByTheReadsOfRealSockets) {
  for (const transport kind : {transport::poll, transport::pipe, transport::tcp}) {
    SCOPED_TRACE(name_of_transport(kind));
    constexpr auto limit = 60ms;
    loop_wheel wheel{on, with(1ms)};
    firing silent;
    instant said{};
    endpoint end{on, kind, [&](std::size_t) { wheel.refresh(silent.t); }};
    int rounds = 0;
    loop_timer speaker{on, 15ms, 15ms, [&] {
                         if (++rounds > 12) return;
                         said = end.say();
                       }};
    said = clock_now();
    wheel.arm(silent.t, limit);
    instant said_before_it_fired{};
    silent.then = [&] { said_before_it_fired = said; };
    ASSERT_TRUE(on.run_until([&] { return silent.count == 1; }));
    // Had it fired in spite of the reads, the last word would be less than the limit ago.
    EXPECT_GE(silent.at - said_before_it_fired, limit);
  }
}

TEST_P(LoopWheelNeverEarly, ARefreshIsWorthNothingWhenNotArmedHere) {
  loop_wheel wheel{on, with(1ms)}, other{on, with(1ms)};
  firing f;
  EXPECT_FALSE(wheel.refresh(f.t));
  EXPECT_FALSE(wheel.refresh(f.t, 1s));
  EXPECT_FALSE(wheel.refresh_at(f.t, wheel.now()));
  EXPECT_FALSE(wheel.cancel(f.t));
  wheel.arm(f.t, 1s);
  EXPECT_FALSE(other.refresh(f.t));
  EXPECT_FALSE(other.cancel(f.t));
  EXPECT_TRUE(f.t.armed());
  EXPECT_TRUE(wheel.cancel(f.t));
  EXPECT_FALSE(wheel.refresh(f.t));
}

TEST_P(LoopWheelNeverEarly, TwoWheelsOnOneLoopKeepTheirTimersApart) {
  loop_wheel fine{on, with(1ms)}, coarse{on, with(25ms)};
  firing a, b, moved;
  const instant before = clock_now();
  fine.arm(a.t, 30ms);
  coarse.arm(b.t, 30ms);
  fine.arm(moved.t, 1ms);
  coarse.arm(moved.t, 40ms);  // moves it: it never fires on the first
  EXPECT_EQ(fine.wheel().size(), 1u);
  EXPECT_EQ(coarse.wheel().size(), 2u);
  ASSERT_TRUE(on.run_until([&] { return a.count + b.count + moved.count == 3; }));
  EXPECT_GE(a.at - before, 30ms);
  EXPECT_GE(b.at - before, 30ms);
  EXPECT_GE(moved.at - before, 40ms);
  EXPECT_EQ(fine.stats().fired, 1u);
  EXPECT_EQ(coarse.stats().fired, 2u);
}

TEST_P(LoopWheelNeverEarly, TheTimeOfAVerdictIsNotAheadOfTheClockNorBehindTheDeadline) {
  loop_wheel wheel{on, with(1ms)};
  firing f;
  const instant armed = clock_now();
  f.then = [&] {
    EXPECT_LE(wheel.judged_at(), clock_now());
    EXPECT_GE(wheel.judged_at() - armed, 10ms);
  };
  wheel.arm(f.t, 10ms);
  ASSERT_TRUE(on.run_until([&] { return f.count == 1; }));
}

IDLEWHEEL_IN_BOTH_MODES(LoopWheelNeverEarly);

// Running the loop -------------------------------------------------------------------------------

class LoopWheelRuns : public ByMode {
 protected:
  loop on;
  loop_wheel wheel{on, {.tick = 1ms, .refresh = GetParam()}};
};

TEST_P(LoopWheelRuns, UnreferencedTimersDoNotKeepTheLoop) {
  firing f;
  wheel.arm(f.t, 1h);
  on.run();
  EXPECT_EQ(f.count, 0);
  EXPECT_TRUE(f.t.armed());
}

TEST_P(LoopWheelRuns, ReferencedTimersKeepItUntilTheyHaveFired) {
  firing first, second;
  wheel.ref();
  const instant before = clock_now();
  wheel.arm(first.t, 10ms);
  wheel.arm(second.t, 40ms);
  on.run();
  EXPECT_EQ(first.count, 1);
  EXPECT_EQ(second.count, 1);
  EXPECT_GE(second.at - before, 40ms);
}

TEST_P(LoopWheelRuns, AReferenceCountsFromWhenItIsTaken) {
  firing f;
  wheel.arm(f.t, 10ms);
  wheel.ref();
  wheel.ref();  // not counted
  on.run();
  EXPECT_EQ(f.count, 1);
  wheel.arm(f.t, 1h);
  wheel.unref();
  on.run();
  EXPECT_EQ(f.count, 1);
}

TEST_P(LoopWheelRuns, ReferencedWithNothingArmedTheLoopEndsAtOnce) {
  wheel.ref();
  on.run();
  SUCCEED() << "or it never ends";
}

TEST_P(LoopWheelRuns, ReferencedTheLoopEndsWhenTheLastTimerIsCancelledByAnyWay) {
  wheel.ref();
  firing a, b;
  wheel.arm(a.t, 1h);
  wheel.arm(b.t, 2h);
  EXPECT_TRUE(wheel.cancel(a.t));
  EXPECT_TRUE(b.t.cancel());
  on.run();
  {
    firing gone;
    wheel.arm(gone.t, 1h);
  }
  on.run();
  loop_wheel other{on, {.tick = 1ms}};
  wheel.arm(a.t, 1h);
  other.arm(a.t, 1h);  // moved to one that is not referenced
  on.run();
  wheel.arm(b.t, 1h);
  loop_timer later{on, 5ms, [&] { b.t.cancel(); }};
  on.run();
  wheel.arm(b.t, 1h);
  loop_timer closing{on, 5ms, [&] { wheel.close(); }};
  on.run();
  EXPECT_EQ(a.count + b.count, 0);
}

TEST_P(LoopWheelRuns, ReferencedTheLoopEndsWhenACallbackCancelsTheRest) {
  wheel.ref();
  firing first, rest;
  first.then = [&] { EXPECT_TRUE(rest.t.cancel()); };
  wheel.arm(rest.t, 1h);
  wheel.arm(first.t, 2ms);
  on.run();
  EXPECT_EQ(first.count, 1);
  EXPECT_EQ(rest.count, 0);
}

TEST_P(LoopWheelRuns, ReferencedItRunsOnWhatTheBudgetLeft) {
  loop_wheel narrow{on, {.tick = 1ms, .refresh = GetParam(), .budget = 1}};
  narrow.ref();
  std::deque<firing> all(10);
  for (firing& f : all) narrow.arm_at(f.t, instant{});
  on.run();
  for (firing& f : all) EXPECT_EQ(f.count, 1);
}

TEST_P(LoopWheelRuns, ByTurnsThatDoNotWait) {
  firing f;
  sleeper alive{on};
  const instant before = clock_now();
  wheel.arm(f.t, 20ms);
  while (f.count == 0 && clock_now() - before < 20s) uv_run(on, UV_RUN_NOWAIT);
  EXPECT_EQ(f.count, 1);
  EXPECT_GE(f.at - before, 20ms);
}

TEST_P(LoopWheelRuns, ByTurnsThatWaitOnce) {
  firing f;
  wheel.ref();
  const instant before = clock_now();
  wheel.arm(f.t, 20ms);
  int turns = 0;
  while (f.count == 0 && turns < 20) {
    uv_run(on, UV_RUN_ONCE);
    ++turns;
  }
  EXPECT_EQ(f.count, 1);
  EXPECT_GE(f.at - before, 20ms);
}

TEST_P(LoopWheelRuns, ASecondRunOfTheLoopGoesOnWithTheSameTimers) {
  firing f;
  wheel.ref();
  wheel.arm(f.t, 10ms);
  loop_timer stopper{on, 1ms, [&] { uv_stop(on); }};
  on.run();
  ASSERT_EQ(f.count, 0);
  on.run();
  EXPECT_EQ(f.count, 1);
}

TEST_P(LoopWheelRuns, StatsCountWhatHappened) {
  wheel.ref();
  EXPECT_EQ(wheel.stats().visits, 0u);
  EXPECT_EQ(wheel.stats().turns, 0u);
  firing a, b;
  wheel.arm(a.t, 1ms);
  on.run();
  wheel.arm(b.t, 1ms);
  on.run();
  const wheel_stats stats = wheel.stats();
  EXPECT_EQ(stats.fired, 2u);
  EXPECT_EQ(stats.visits, 2u);
  EXPECT_EQ(stats.turns, 2u);
  EXPECT_EQ(stats.budget_hits, 0u);
  EXPECT_EQ(stats.relinked, 0u);
  EXPECT_EQ(stats.stalls, 0u);
  EXPECT_EQ(stats.longest_stall, timespan{});
}

TEST_P(LoopWheelRuns, StatsCountStallsAfterARefresh) {
  firing f;
  wheel.arm(f.t, 1h);
  loop_timer slow{on, 1ms, [&] {
                    wheel.refresh(f.t);
                    block_for(60ms);
                  }};
  on.run();
  EXPECT_EQ(wheel.stats().stalls, 1u);
  EXPECT_GE(wheel.stats().longest_stall, timespan{50ms});
}

TEST_P(LoopWheelRuns, SleepingWithNothingArmedIsNoStall) {
  // The stamp of the last refresh was in use in its own turn only, though the wheel has no turn of
  // its own after the cancel.
  firing f;
  wheel.arm(f.t, 1h);
  loop_timer first{on, 1ms, [&] {
                     wheel.refresh(f.t);
                     f.t.cancel();
                   }};
  loop_timer second{on, 1500ms, [&] {
                      wheel.arm(f.t, 1h);
                      wheel.refresh(f.t);
                    }};
  on.run();
  EXPECT_LT(wheel.stats().longest_stall, timespan{1s});
}

TEST_P(LoopWheelRuns, AskingForThePollsTimeWithNothingArmedIsNoStallLater) {
  firing f;
  loop_timer first{on, 1ms, [&] { EXPECT_GT(wheel.poll_time(), instant{}); }};
  loop_timer second{on, 1500ms, [&] {
                      wheel.arm(f.t, 1h);
                      wheel.refresh(f.t);
                    }};
  on.run();
  EXPECT_LT(wheel.stats().longest_stall, timespan{1s});
}

TEST_P(LoopWheelRuns, ARefreshOutsideOfThePollIsNoStallHoweverLongTheLoopSleepsThen) {
  firing f, from_callback;
  from_callback.then = [&] { wheel.refresh(f.t); };
  wheel.arm(f.t, 1h);
  wheel.arm(from_callback.t, 20ms);
  loop_timer from_timer{on, 1ms, [&] { wheel.refresh(f.t); }};
  loop_timer later{on, 1500ms, [] {}};
  on.run();
  EXPECT_EQ(from_callback.count, 1);
  EXPECT_LT(wheel.stats().longest_stall, timespan{1s});
}

TEST_P(LoopWheelRuns, AQuickTurnIsNoStall) {
  firing f;
  wheel.arm(f.t, 1h);
  int turns = 0;
  loop_timer reads{on, 1ms, 1ms, [&] {
                     wheel.refresh(f.t);
                     if (++turns == 100) uv_stop(on);
                   }};
  on.run();
  EXPECT_LE(wheel.stats().stalls, 50u) << "a busy machine may stall some, not most";
}

TEST_P(LoopWheelRuns, SleepingAfterACallbackLeftNothingArmedIsNoStall) {
  firing f, last;
  last.then = [&] {
    wheel.arm(f.t, 1h);
    wheel.refresh(f.t);
    f.t.cancel();
  };
  wheel.arm(last.t, 1ms);
  loop_timer second{on, 1500ms, [&] {
                      wheel.arm(f.t, 1h);
                      wheel.refresh(f.t);
                    }};
  on.run();
  EXPECT_EQ(last.count, 1);
  EXPECT_LT(wheel.stats().longest_stall, timespan{1s});
}

IDLEWHEEL_IN_BOTH_MODES(LoopWheelRuns);

}  // namespace
}  // namespace idlewheel::uv_tests
