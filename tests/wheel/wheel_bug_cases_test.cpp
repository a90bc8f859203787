// wheel_bug_cases_test.cpp - faults that other wheels, loops and servers had, replayed on ours.
//
// Each test carries the number of its case in our list of public bug reports and covers the kind,
// not the one number: other sizes, the neighbours of the boundary, every call that reaches the same
// code, both refresh modes. Durations become ticks by tick_scale, as a host makes them. A table at
// the end says where every case of these categories is tested.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "idlewheel/wheel/tick_scale.hpp"
#include "idlewheel/wheel/timer_wheel.hpp"
#include "idlewheel/wheel/timespan.hpp"
#include "tests/wheel/fixtures.hpp"

namespace idlewheel {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

class WheelBugCases : public EachMode {
 protected:
  // A wheel with the scale that a host would use: deadlines up, now down.
  struct bench {
    tick_scale scale;
    timer_wheel wheel;
    journal log;

    bench(timespan length, std::size_t slots, instant start = instant{})
        : scale{length},
          wheel{{.slots = slots, .refresh = GetParam(), .start = scale.floor(start)}} {}

    tick due(instant t) const { return scale.ceil(t); }
    void arm(timer& t, instant deadline) { wheel.arm(t, due(deadline)); }
    bool refresh(timer& t, instant deadline) { return wheel.refresh(t, due(deadline)); }
    std::size_t pump(instant now) {
      const progress done = wheel.advance(scale.floor(now), plenty);
      EXPECT_FALSE(done.more);
      EXPECT_TRUE(wheel.check_invariants());
      return done.fired;
    }
  };

  static instant ms(std::int64_t n) { return instant{milliseconds{n}}; }

  // What a test of order within a tick may want: each of these once, in any order.
  static std::string sorted_words(std::string text) {
    std::vector<std::string> words;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      words.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    std::ranges::sort(words);
    std::string out;
    for (const auto& w : words) out += (out.empty() ? "" : " ") + w;
    return out;
  }
};

// ---- A: rounding, off by one

TEST_P(WheelBugCases, Case001_DistanceCountsFromTheCurrentTickAfterManyLaps) {
  for (const std::size_t slots : {1u, 8u, 64u, 512u}) {
    bench b{100ms, slots};
    std::vector<tick> gaps;
    tick last = 0;
    actor a{b.log, b.wheel, "A", [&] {
              gaps.push_back(b.wheel.now() - last);
              last = b.wheel.now();
              b.wheel.arm(a, b.wheel.now() + 100);
            }};
    b.arm(a, ms(10'000));
    pump(b.wheel, b.scale.floor(ms(123'000)));
    EXPECT_EQ(gaps, std::vector<tick>(12, 100)) << slots << " slots";
  }
  for (const std::size_t slots : {1u, 2u, 8u, 16u})
    for (const tick interval : {1u, 7u, 8u, 9u, 15u, 16u, 17u, 31u, 32u, 33u}) {
      timer_wheel wheel{with(slots)};
      int fires = 0;
      struct {
        timer_wheel* wheel;
        int* fires;
        tick interval;
      } what{&wheel, &fires, interval};
      timer a{[&what](timer& self) {
        ++*what.fires;
        EXPECT_EQ(what.wheel->now() % what.interval, 0u);
        what.wheel->arm(self, what.wheel->now() + what.interval);
      }};
      wheel.arm(a, interval);
      pump(wheel, 20 * interval);
      EXPECT_EQ(fires, 20) << slots << " slots, interval " << interval;
    }
}

TEST_P(WheelBugCases, Case003_ALaterLapInFrontHidesNothingBehindIt) {
  bench b{100ms, 512};
  actor a{b.log, b.wheel, "A"}, later{b.log, b.wheel, "B"};
  b.arm(a, ms(51'300));
  b.arm(later, ms(100));
  b.pump(ms(100));
  EXPECT_EQ(b.log.take(), "B@1");
  pump(b.wheel, 513);
  EXPECT_EQ(b.log.take(), "A@513");

  // Every order of three laps in one slot; made by arming, by refreshing, and both with neighbours.
  std::vector<tick> laps{0, 1, 2};
  do {
    for (const bool by_refresh : {false, true}) {
      timer_wheel wheel{with(8)};
      journal log;
      std::deque<actor> actors;
      for (const tick lap : laps) {
        actor& one = actors.emplace_back(log, wheel, std::to_string(lap));
        wheel.arm(one, by_refresh ? 2 : 3 + lap * 8);
        EXPECT_TRUE(wheel.refresh(one, 3 + lap * 8));
      }
      pump(wheel, 30);
      EXPECT_EQ(log.take(), "0@3 1@11 2@19");
    }
  } while (std::ranges::next_permutation(laps).found);
}

TEST_P(WheelBugCases, Case005_TheClockTurnsTheWheelNotTheNumberOfCalls) {
  for (const std::size_t slots : {1u, 4u, 8u, 16u})
    for (std::int64_t period = 50; period <= 20'000; period += 50) {
      bench b{2000ms, slots};
      actor a{b.log, b.wheel, "A"};
      b.arm(a, ms(11'000));
      std::int64_t now = 0;
      while (a.fires == 0 && now < 60'000) b.pump(ms(now += period));
      // The first pump that has reached 11,000 rounded up to a tick.
      EXPECT_EQ(now, (12'000 + period - 1) / period * period);
      EXPECT_TRUE(period != 1800 || now == 12'600);
      EXPECT_TRUE(period != 7000 || now == 14'000);
    }
}

TEST_P(WheelBugCases, Case006_OnePumpCatchesUp) {
  for (const std::size_t slots : {1u, 8u, 64u, 128u}) {
    bench b{10ms, slots};
    actor a{b.log, b.wheel, "A"}, c{b.log, b.wheel, "B"}, d{b.log, b.wheel, "C"};
    b.arm(d, ms(1000));
    b.arm(c, ms(500));
    b.arm(a, ms(10));
    EXPECT_EQ(b.pump(ms(1000)), 3u);
    EXPECT_EQ(b.log.take(), "A@100 B@100 C@100");

    // Or it says that there is more work.
    b.arm(d, ms(3000));
    b.arm(c, ms(2500));
    b.arm(a, ms(2010));
    int calls = 1;
    while (b.wheel.advance(300, 1).more) ASSERT_LT(++calls, 100);
    EXPECT_EQ(b.log.take(), "A@300 B@300 C@300");
  }
}

TEST_P(WheelBugCases, Case008_OneTickShortOfALapDoesNotWrapIntoASlotStillToBeDrained) {
  bench b{10ms, 256};
  actor a{b.log, b.wheel, "A"}, wraps{b.log, b.wheel, "B"};
  b.arm(a, ms(20));
  b.arm(wraps, ms(15 + 2550));  // the wheel has not been pumped since 0
  EXPECT_EQ(b.pump(ms(20)), 1u);
  EXPECT_EQ(b.log.take(), "A@2");
  pump(b.wheel, 300);
  EXPECT_EQ(b.log.take(), "B@257");
}

// The kind of 8 and 10: the real time is `lag` ticks ahead of the wheel when a delay near a lap is
// armed; a late drain must not take it along.
TEST_P(WheelBugCases, Case010_PendingDrainPlusDelayMayExceedTheRing) {
  for (const std::size_t slots : {1u, 8u, 64u, 91u, 128u})
    for (tick lag = 0; lag <= 10; ++lag)
      for (tick near = 0; near <= 4; ++near)
        for (const bool by_refresh : {false, true}) {
          const tick start = 100;
          timer_wheel wheel{with(slots, start)};
          journal log;
          actor x{log, wheel, "X"}, pending{log, wheel, "P"};
          wheel.arm(pending, start + 1);
          const tick deadline = start + lag + wheel.slots() + near - std::min<tick>(2, slots);
          if (deadline <= start + lag) continue;
          wheel.arm(x, by_refresh ? start + 1 : deadline);
          if (by_refresh) wheel.refresh(x, deadline);
          wheel.advance(start + std::max<tick>(lag, 1), plenty);  // the late drain
          EXPECT_TRUE(x->armed() || deadline <= wheel.now());
          EXPECT_EQ(pending.fires, 1);
          log.take();
          if (deadline <= wheel.now()) continue;
          pump(wheel, deadline - 1);
          EXPECT_EQ(x.fires, 0);
          pump(wheel, deadline);
          EXPECT_EQ(x.fires, 1);
        }
  // As reported: 91 slots, the last check at 100, X armed at 101 for 90 s.
  bench b{1s, 91, instant{100s}};
  actor x{b.log, b.wheel, "X"};
  b.arm(x, instant{191s});
  b.pump(instant{101s});
  EXPECT_EQ(b.log.take(), "");
  pump(b.wheel, 200);
  EXPECT_EQ(b.log.take(), "X@191");
}

TEST_P(WheelBugCases, Case011_TruncatedStampsMakeNoGapLonger) {
  bench b{1s, 64};
  actor a{b.log, b.wheel, "A"};
  b.arm(a, ms(999 + 3000));
  b.pump(ms(3001));
  EXPECT_EQ(b.log.take(), "");
  // Every phase of the activity and of the check within a tick: fired means that the whole limit
  // has passed; the limit and a tick having passed means fired.
  for (std::int64_t activity = 0; activity < 1000; activity += 37)
    for (std::int64_t check = activity; check <= activity + 5000; check += 53) {
      timer_wheel wheel{with(8)};
      timer idle{[] {}};
      wheel.arm(idle, 1);
      wheel.refresh(idle, b.due(ms(activity + 3000)));
      const bool fired = wheel.advance(b.scale.floor(ms(check)), plenty).fired == 1;
      ASSERT_TRUE(!fired || check - activity >= 3000) << "early";
      ASSERT_TRUE(fired || check - activity < 4000) << "late";
    }
}

TEST_P(WheelBugCases, Case013_LessThanATickIsOneTickAndNotNone) {
  for (const std::int64_t armed_at : {0, 1, 1999, 3999, 4000, 4001}) {
    bench b{4s, 64};
    b.pump(ms(armed_at));
    for (const std::int64_t delay : {1, 1000, 3000, 3999, 4000, 4001, 5000, 8000}) {
      actor a{b.log, b.wheel, "A"};
      const instant deadline = ms(armed_at + delay);
      b.arm(a, deadline);
      const tick due = b.due(deadline);
      EXPECT_EQ(a->deadline(), due);
      EXPECT_GE(b.scale.begins(due), deadline) << "early";
      EXPECT_LT(b.scale.begins(due), later(deadline, 4s)) << "late by a tick";
    }
  }
  bench b{4s, 64};
  actor a{b.log, b.wheel, "A"}, second{b.log, b.wheel, "B"}, c{b.log, b.wheel, "C"},
      d{b.log, b.wheel, "D"};
  b.arm(a, ms(1000));
  b.arm(second, ms(3000));
  b.arm(c, ms(4000));
  b.arm(d, ms(5000));
  EXPECT_EQ(b.pump(ms(3999)), 0u);
  EXPECT_EQ(b.pump(ms(4000)), 3u);
  EXPECT_EQ(b.pump(ms(7999)), 0u);
  EXPECT_EQ(b.pump(ms(8000)), 1u);
}

TEST_P(WheelBugCases, Case015_NeverEarlyNotEvenByTheClocksResolution) {
  for (const auto length : {1ms, 3ms, 7ms, 10ms, 100ms}) {
    bench b{length, 64};
    actor a{b.log, b.wheel, "A"};
    b.arm(a, instant{100ms});
    b.pump(instant{99'400us});
    b.pump(instant{100ms - 1ns});
    EXPECT_EQ(a.fires, 0);
    const instant begins = b.scale.begins(b.due(instant{100ms}));
    b.pump(later(begins, -1ns));
    EXPECT_EQ(a.fires, 0) << length.count();
    b.pump(begins);
    EXPECT_EQ(a.fires, 1);
  }
}

// ---- B: overflow and extreme delays

TEST_P(WheelBugCases, Case016_AVeryLargeDelayDoesNotFireAtOnce) {
  constexpr tick int64_max = std::numeric_limits<std::int64_t>::max();
  for (const tick huge : {int64_max, int64_max - 500, int64_max + 1, never - 1, never})
    for (const bool by_refresh : {false, true}) {
      timer_wheel wheel{with(512, 1000)};
      timer t{[] {}};
      const tick deadline = saturated_sum(wheel.now(), huge);
      wheel.arm(t, by_refresh ? 1001 : deadline);
      EXPECT_TRUE(wheel.refresh(t, deadline));
      EXPECT_EQ(t.deadline(), deadline);
      EXPECT_EQ(pump(wheel, 1000 + 10 * 512), 0u);
      EXPECT_GT(*wheel.next_visit(), wheel.now());
      EXPECT_TRUE(t.cancel());
      EXPECT_EQ(wheel.next_visit(), std::nullopt);
    }
  // By durations.
  for (const auto length : {nanoseconds{1}, nanoseconds{100ms}, nanoseconds{1h}}) {
    bench b{length, 64, instant{1000ms}};
    timer t{[] {}};
    b.arm(t, later(instant{1000ms}, nanoseconds::max()));
    EXPECT_EQ(pump(b.wheel, b.wheel.now() + 640), 0u);
    EXPECT_TRUE(t.cancel());
  }
}

TEST_P(WheelBugCases, Case018_NegativeTimeoutsLeaveTheNextVisitSane) {
  for (const auto negative : {timespan{-1ms}, timespan{-1h}, timespan{nanoseconds::min()}})
    for (const std::int64_t start : {0, 1, 1000}) {
      bench b{1ms, 64, ms(start)};
      actor a{b.log, b.wheel, "A"}, second{b.log, b.wheel, "B"};
      b.arm(a, later(ms(start), negative));
      b.arm(second, ms(start + 100));
      const tick now = b.wheel.now();
      ASSERT_TRUE(b.wheel.next_visit());
      EXPECT_GE(*b.wheel.next_visit(), now);
      EXPECT_LE(*b.wheel.next_visit(), now + 100);
      visit(b.wheel, now + 100);
      EXPECT_EQ(b.log.take(), "A@" + std::to_string(now + 1) + " B@" + std::to_string(now + 100));
      EXPECT_TRUE(b.wheel.check_invariants());
    }
}

TEST_P(WheelBugCases, Case020_MoreThan31BitsOfMillisecondsStayWhatTheyAre) {
  for (const std::int64_t delay : std::initializer_list<std::int64_t>{
           2'147'483'647, 2'147'483'648, 4'294'967'295, 4'294'967'296, 10'000'000'000}) {
    bench b{1ms, 512};
    actor a{b.log, b.wheel, "A"};
    b.arm(a, ms(delay));
    for (const std::int64_t now : {std::int64_t{1}, std::int64_t{100'000}, delay - 1})
      b.pump(ms(now));
    EXPECT_EQ(a.fires, 0);
    b.pump(ms(delay));
    EXPECT_EQ(a.fires, 1);
  }
}

TEST_P(WheelBugCases, Case021_HugeSecondsSaturateAndNanIsRefused) {
  using useconds = std::chrono::duration<std::uint64_t>;
  using fseconds = std::chrono::duration<double>;
  for (const timespan huge :
       {timespan{useconds{18'446'744'073'709'552u}}, timespan{seconds::max()},
        timespan{fseconds{1e300}}, timespan{fseconds{std::numeric_limits<double>::infinity()}}})
    for (const std::int64_t now : {0LL, 1000LL, 1'700'000'000'000LL}) {
      bench b{1ms, 64, ms(now)};
      actor a{b.log, b.wheel, "A"};
      b.arm(a, later(ms(now), huge));
      b.pump(ms(now + 1'000'000));
      EXPECT_EQ(a.fires, 0);
    }
  EXPECT_THROW(timespan{fseconds{std::numeric_limits<double>::quiet_NaN()}}, std::invalid_argument);
}

TEST_P(WheelBugCases, Case023_ForEverIsNotANumberOfMilliseconds) {
  bench b{1ms, 64};
  actor never_armed{b.log, b.wheel, "off"}, forever{b.log, b.wheel, "forever"};
  b.arm(forever, later(instant{}, timespan::max()));
  for (const std::int64_t now : {2'147'483'647LL, 2'147'483'648LL, 4'294'967'296LL}) {
    b.pump(ms(now));
    EXPECT_FALSE(b.refresh(never_armed, ms(now))) << "off is a state: activity does not arm it";
  }
  EXPECT_EQ(b.log.take(), "");
  EXPECT_EQ(never_armed->deadline(), std::nullopt);
}

TEST_P(WheelBugCases, Case025_APurgeAcrossTheWrapOf32BitsSkipsNothing) {
  for (const tick end : {tick{1} << 31, tick{1} << 32, tick{1} << 63, never - 1000})
    for (const std::size_t slots : {16u, 1024u})
      for (const bool refreshed : {true, false}) {  // else armed anew when it fires
        timer_wheel wheel{with(slots, end - 1000)};
        journal log;
        std::deque<actor> entries;
        for (tick i = 1; i <= 10; ++i) {
          wheel.arm(entries.emplace_back(log, wheel, std::to_string(i)), end - 1000 + 99 * i);
        }
        if (refreshed) {
          EXPECT_TRUE(wheel.refresh(entries[0], end + 500));
        } else {
          entries[0].then = [&] { wheel.arm(entries[0], end + 500); };
        }
        EXPECT_EQ(wheel.advance(end - 5, plenty).fired, refreshed ? 9u : 10u);
        for (std::size_t i = 1; i < 10; ++i) EXPECT_EQ(entries[i].fires, 1);
        EXPECT_TRUE(entries[0]->armed());
        log.take();
        pump(wheel, end + 500);
        EXPECT_EQ(log.take(), "1@" + std::to_string(end + 500));
      }
}

TEST_P(WheelBugCases, Case026_ADeadlineOfZeroInAnyWidthIsStillADeadline) {
  // The clock's zero, and deadlines whose low 8, 16, 32 and 63 bits are all zero.
  for (const unsigned bits : {8u, 16u, 31u, 32u, 63u})
    for (const bool by_refresh : {false, true}) {
      const tick zero = tick{1} << bits;
      timer_wheel wheel{with(8, zero - 5)};
      journal log;
      actor a{log, wheel, "A"};
      wheel.arm(a, by_refresh ? zero - 2 : zero);
      EXPECT_TRUE(wheel.refresh(a, zero));
      EXPECT_TRUE(a->armed());
      visit(wheel, zero + 20);
      EXPECT_EQ(log.take(), "A@" + std::to_string(zero));
    }
  timer_wheel wheel{with(8, 0)};
  journal log;
  actor a{log, wheel, "A"};
  wheel.arm(a, 0);
  EXPECT_TRUE(a->armed());
  EXPECT_EQ(a->remaining(1), 0u);
  EXPECT_TRUE(a->armed()) << "nothing remaining is not the same as no timer";
  wheel.advance(0);
  EXPECT_EQ(a.fires, 0);
  wheel.advance(1);
  EXPECT_EQ(a.fires, 1);
}

TEST_P(WheelBugCases, Case028_UnitsNeitherOverflowNorVanish) {
  const tick_scale scale{1ms};
  const auto delay = [&](timespan t) { return scale.ceil(later(instant{}, t)); };
  EXPECT_EQ(delay(std::chrono::days{25}), 2'160'000'000u);
  EXPECT_EQ(delay(2'147'483'647ms), 2'147'483'647u);
  EXPECT_EQ(delay(2'147'483'648ms), 2'147'483'648u);
  EXPECT_EQ(delay(1us), 1u);
  EXPECT_EQ(delay(1ns), 1u);
  EXPECT_EQ(delay(std::chrono::duration<double, std::nano>{0.001}), 1u);
  EXPECT_EQ(delay(999us), 1u);
  EXPECT_EQ(delay(1001us), 2u);
  EXPECT_EQ(delay(0s), 0u);
  timer_wheel wheel{with(8)};
  timer t{[] {}};
  wheel.arm(t, delay(0s));
  EXPECT_EQ(t.deadline(), 1u) << "zero means the next tick";
}

TEST_P(WheelBugCases, Case030_TheSumSaturatesAndNotOnlyTheFactor) {
  const instant now = ms(1'700'000'000'000);
  for (const std::int64_t s : {9'223'372'036'854'775LL, 9'223'372'036LL, 9'223'372'035LL,
                               7'523'372'037LL, 7'523'372'036LL}) {
    const instant deadline = later(now, seconds{s});
    EXPECT_GT(deadline, now) << s;
    bench b{1ms, 64, now};
    timer t{[] {}};
    b.arm(t, deadline);
    EXPECT_GT(*t.deadline(), b.wheel.now());
    EXPECT_EQ(pump(b.wheel, b.wheel.now() + 200), 0u);
  }
}

TEST_P(WheelBugCases, Case031_RemainingOfAPastDeadlineIsZero) {
  for (const tick late : {tick{100}, tick{101}, tick{150}, tick{1} << 40, never}) {
    timer_wheel wheel{with(64)};
    journal log;
    actor request{log, wheel, "R"}, child{log, wheel, "C"};
    wheel.arm(request, 100);
    const tick now = std::min(late, never - 3);
    EXPECT_EQ(request->remaining(late), 0u);
    EXPECT_TRUE(wheel.advance(now, 0).more);
    EXPECT_EQ(request->remaining(now), 0u) << "set aside, too";
    wheel.arm(child, now + *request->remaining(now));
    EXPECT_EQ(child->deadline(), now + 1);
    wheel.advance(now + 1, plenty);
    EXPECT_EQ(request.fires, 1);
    EXPECT_EQ(child.fires, 1);
  }
}

TEST_P(WheelBugCases, Case033_AFarTimerHidesNoNearOneAtAnyBoundary) {
  for (const tick far : {never, never - 1, tick{1} << 36, (tick{1} << 36) - 1})
    for (unsigned bit = 6; bit <= 36; ++bit)
      for (const tick before : {1u, 100u, 333u, 334u}) {
        const tick boundary = tick{1} << bit;
        if (boundary <= before) continue;
        timer_wheel wheel{with(64)};
        journal log;
        actor f{log, wheel, "F"}, s{log, wheel, "S"};
        wheel.arm(f, far);
        wheel.advance(boundary - before, plenty);
        if (!f->armed()) continue;  // that far away only
        const tick due = boundary - before + 333;
        wheel.arm(s, due);
        ASSERT_LE(*wheel.next_visit(), due);
        visit(wheel, std::min(due, far) - 1);
        ASSERT_EQ(s.fires, 0);
        visit(wheel, due);
        ASSERT_EQ(s.fires, 1) << bit << ' ' << before;
        ASSERT_EQ(f->armed(), far > due);
      }
}

TEST_P(WheelBugCases, Case035_LongerThanALapIsKeptExactly) {
  bench b{100ms, 4096};
  actor a{b.log, b.wheel, "A"};
  b.arm(a, ms(3'900'000));
  pump(b.wheel, 38'999);
  EXPECT_EQ(a.fires, 0);
  pump(b.wheel, 39'000);
  EXPECT_EQ(a.fires, 1);
  for (const std::size_t slots : {1u, 2u, 64u})
    for (const tick delay : {63u, 64u, 65u, 127u, 128u, 129u, 1000u, 4097u}) {
      timer_wheel wheel{with(slots)};
      timer t{[] {}};
      wheel.arm(t, delay);
      ASSERT_EQ(pump(wheel, delay - 1), 0u);
      ASSERT_EQ(pump(wheel, delay), 1u);
    }
}

// ---- C: the clock, as far as a bare wheel sees it

// 36, 38: the deadline comes from a fresh clock read, the wheel's own time may be long ago.
TEST_P(WheelBugCases, Case036_Case038_ArmedAfterASilenceWaitsItsFullDelay) {
  for (const std::int64_t busy : {5'000, 20'000, 3'600'000})
    for (const std::int64_t delay : {10, 5'000, 20'000}) {
      bench b{10ms, 512};
      actor a{b.log, b.wheel, "A"};
      b.arm(a, ms(busy + delay));  // the wheel still stands at 0
      b.pump(ms(busy));
      b.pump(ms(busy + delay - 1));
      EXPECT_EQ(a.fires, 0) << busy << ' ' << delay;
      b.pump(ms(busy + delay));
      EXPECT_EQ(a.fires, 1);
    }
}

// 40, 41: armed by a callback that took long: counted from then, not from the tick being processed,
// and fired neither in the catch-up nor later than due.
TEST_P(WheelBugCases, Case040_Case041_ArmedInASlowCallbackCountsFromTheRealTime) {
  for (const std::int64_t works : {0, 90, 500, 10'000})
    for (const std::int64_t delay : {10, 50, 200, 5'120}) {
      bench b{10ms, 64};
      actor second{b.log, b.wheel, "B"};
      std::int64_t now = 10;
      actor a{b.log, b.wheel, "A", [&] { b.arm(second, ms((now += works) + delay)); }};
      b.arm(a, ms(10));
      b.pump(ms(10));
      b.pump(ms(now));
      b.pump(ms(now + delay - 1));
      EXPECT_EQ(second.fires, 0) << works << ' ' << delay;
      b.pump(ms(now + delay));
      EXPECT_EQ(second.fires, 1);
    }
}

TEST_P(WheelBugCases, Case043_TimeMovesThoughNothingIsArmed) {
  bench b{1ms, 64};
  for (std::int64_t now = 0; now <= 1000; now += 7) {
    b.pump(ms(now));
    EXPECT_EQ(b.wheel.now(), b.scale.floor(ms(now)));
  }
  timer t{[] {}};
  b.wheel.arm(t, 0);
  EXPECT_EQ(t.deadline(), b.wheel.now() + 1);
}

TEST_P(WheelBugCases, Case048_AJumpRunsAPeriodicTimerOnce) {
  for (const std::size_t slots : {1u, 64u, 512u}) {
    bench b{100ms, slots};
    std::deque<actor> beats;
    for (int i = 0; i < 64; ++i) {
      actor& beat = beats.emplace_back(b.log, b.wheel, "b");
      beat.then = [&] { b.wheel.arm(beat, b.wheel.now() + 10); };
      b.arm(beat, ms(1000));
    }
    EXPECT_EQ(b.pump(ms(3'601'000)), 64u);
    for (actor& beat : beats) EXPECT_EQ(beat->deadline(), 36'020u);
    EXPECT_EQ(b.pump(ms(3'601'999)), 0u);
    EXPECT_EQ(b.pump(ms(3'602'000)), 64u);
  }
}

// 50, 51: back by one unit, and by 30 s with timers armed.
TEST_P(WheelBugCases, Case050_Case051_TimeThatStepsBackIsNoTime) {
  for (const tick back : {tick{1}, tick{2}, tick{30'000}, tick{67'137'025}}) {
    timer_wheel wheel{with(64)};
    journal log;
    wheel.advance(67'137'025, plenty);
    actor a{log, wheel, "A"}, second{log, wheel, "B"}, c{log, wheel, "C"};
    wheel.arm(a, 67'137'026);
    wheel.arm(second, 67'137'027);
    wheel.arm(c, 67'137'025 + 64);
    for (int i = 0; i < 3; ++i) {
      const progress done = wheel.advance(67'137'025 - back, plenty);
      EXPECT_EQ(done.fired, 0u);
      EXPECT_FALSE(done.more);
    }
    EXPECT_EQ(wheel.now(), 67'137'025u);
    EXPECT_TRUE(wheel.check_invariants());
    wheel.advance(67'137'026, plenty);
    EXPECT_EQ(log.take(), "A@67137026");
    wheel.advance(67'137'026 - back, plenty);
    pump(wheel, 67'137'200);
    EXPECT_EQ(log.take(), "B@67137027 C@67137089");
  }
}

TEST_P(WheelBugCases, Case053_AfterAJumpANewShortTimerIsNoticed) {
  bench b{10ms, 64};
  actor l{b.log, b.wheel, "L"}, s{b.log, b.wheel, "S"};
  b.arm(l, ms(60'000));
  EXPECT_EQ(b.wheel.next_visit(), 6000u);
  b.arm(s, ms(120'000 + 10));  // from another event, before the wheel was told of the jump
  b.pump(ms(120'000));
  EXPECT_EQ(b.log.take(), "L@12000");
  EXPECT_EQ(b.wheel.next_visit(), 12'001u);
  b.pump(ms(120'010));
  EXPECT_EQ(b.log.take(), "S@12001");
}

// ---- D: re-entrancy. Every kind of callback is in timer_wheel_hostile_test.cpp as well.

TEST_P(WheelBugCases, Case056_ArmedInACallbackRunsInALaterPass) {
  for (const std::size_t slots : {1u, 8u, 256u}) {
    bench b{10ms, slots};
    actor zero{b.log, b.wheel, "B"}, lap{b.log, b.wheel, "D"};
    actor a{b.log, b.wheel, "A", [&] {
              b.wheel.arm(zero, b.wheel.now());
              b.wheel.arm(lap, b.wheel.now() + b.wheel.slots());
            }};
    b.arm(a, ms(10));
    EXPECT_EQ(b.pump(ms(10)), 1u);
    EXPECT_EQ(b.log.take(), "A@1");
    EXPECT_EQ(b.pump(ms(10)), 0u);
    pump(b.wheel, 1 + 2 * slots);
    EXPECT_EQ(sorted_words(b.log.take()), "B@2 D@" + std::to_string(1 + slots));
  }
}

TEST_P(WheelBugCases, Case058_OneSetAsideMayBeStoppedTwiceRearmedAndFreed) {
  for (const tick jump : {tick{5}, tick{500}})
    for (const bool freed : {false, true}) {
      timer_wheel wheel{with(8)};
      journal log;
      std::vector<std::unique_ptr<actor>> actors;
      bool first = true;
      std::size_t hit = 3;
      for (std::size_t i = 0; i < 3; ++i)
        actors.push_back(std::make_unique<actor>(log, wheel, "x", [&, i] {
          if (!std::exchange(first, false)) return;
          hit = (i + 1) % 3;
          actor& other = *actors[hit];
          EXPECT_TRUE(other->cancel());
          EXPECT_FALSE(other->cancel());
          if (freed) {
            actors[hit].reset();
          } else {
            wheel.arm(other, wheel.now() + 100);
            EXPECT_TRUE(wheel.cancel(other));
            EXPECT_FALSE(wheel.cancel(other));
          }
          EXPECT_EQ(wheel.size(), 1u);
          EXPECT_TRUE(wheel.check_invariants());
        }));
      for (auto& a : actors) wheel.arm(*a, 5);
      EXPECT_EQ(wheel.advance(jump, plenty).fired, 2u);
      EXPECT_EQ(wheel.size(), 0u);
      EXPECT_EQ(wheel.advance(jump + 200, plenty).fired, 0u);
    }
}

TEST_P(WheelBugCases, Case060_CancelAllLeavesNothingToCount) {
  {
    timer a{[] {}}, b{[] {}}, c{[] {}};
    timer_wheel wheel{with(8)};
    for (timer* t : {&a, &b, &c}) wheel.arm(*t, 3);
    wheel.cancel_all();
    EXPECT_EQ(wheel.size(), 0u);
  }
  for (const tick jump : {tick{3}, tick{90}}) {  // from inside a callback, and destroyed there
    std::optional<timer_wheel> wheel{std::in_place, with(8)};
    timer b{[] {}}, c{[] {}}, far{[] {}};
    timer a{[&wheel] {
      wheel->cancel_all();
      EXPECT_EQ(wheel->size(), 0u);
      wheel.reset();
    }};
    wheel->arm(a, 2);
    wheel->arm(b, 3);
    wheel->arm(c, 3);
    wheel->arm(far, 1000);
    EXPECT_EQ(wheel->advance(jump, plenty).fired, 1u);
    EXPECT_FALSE(wheel);
    for (timer* t : {&a, &b, &c, &far}) EXPECT_FALSE(t->armed());
  }
}

TEST_P(WheelBugCases, Case061_TheCountIsRightDuringACatchUp) {
  for (const std::int64_t pumped : {10, 500, 50'000}) {
    bench b{10ms, 64};
    std::size_t in_a = 99, in_b = 99;
    actor second{b.log, b.wheel, "B", [&] { in_b = b.wheel.size(); }};
    actor a{b.log, b.wheel, "A", [&] {
              b.arm(second, ms(pumped + 20));
              in_a = b.wheel.size();
            }};
    b.arm(a, ms(10));
    EXPECT_EQ(b.pump(ms(pumped)), 1u);
    EXPECT_EQ(in_a, 1u);
    EXPECT_EQ(second.fires, 0);
    b.pump(ms(pumped + 19));
    EXPECT_EQ(second.fires, 0);
    b.pump(ms(pumped + 20));
    EXPECT_EQ(second.fires, 1);
    EXPECT_EQ(in_b, 0u);
  }
}

// 63, 65: cancelled by an earlier callback of the same batch: does not run.
TEST_P(WheelBugCases, Case063_Case065_CancelLooksIntoTheBatch) {
  for (const std::size_t count : {2u, 10u, 100u})
    for (const tick jump : {tick{5}, tick{5000}}) {
      timer_wheel wheel{with(8)};
      journal log;
      std::deque<actor> actors;
      std::size_t cancelled = 0;
      for (std::size_t i = 0; i < count; ++i) {
        wheel.arm(actors.emplace_back(log, wheel, "x",
                                      [&] {
                                        for (actor& other : actors) cancelled += other->cancel();
                                        EXPECT_EQ(wheel.size(), 0u);
                                      }),
                  5);
      }
      EXPECT_EQ(wheel.advance(jump, plenty).fired, 1u);
      EXPECT_EQ(cancelled, count - 1);
      EXPECT_EQ(wheel.size(), 0u);
    }
}

TEST_P(WheelBugCases, Case066_ANestedPumpLosesNothing) {
  for (const tick jump : {tick{5}, tick{500}})
    for (const std::size_t budget : {std::size_t{1}, plenty}) {
      timer_wheel wheel{with(8)};
      journal log;
      std::deque<actor> actors;
      bool first = true;
      for (std::size_t i = 0; i < 3; ++i)
        wheel.arm(actors.emplace_back(log, wheel, "x",
                                      [&, i] {
                                        if (!std::exchange(first, false)) return;
                                        const progress nested = wheel.advance(jump);
                                        EXPECT_EQ(nested.fired, 0u);
                                        EXPECT_TRUE(nested.more);
                                        EXPECT_TRUE(actors[(i + 2) % 3]->cancel());
                                      }),
                  5);
      std::size_t fired = 0;
      for (bool more = true; more;) {
        const progress done = wheel.advance(jump, budget);
        fired += done.fired;
        more = done.more;
      }
      EXPECT_EQ(fired, 2u);
    }
}

TEST_P(WheelBugCases, Case068_CancelledGroupsLeaveNoEmptyVisits) {
  for (const std::size_t slots : {64u, 512u, 4096u}) {
    bench b{1ms, slots};
    std::deque<actor> group, kept;
    for (const std::int64_t d : {100, 200, 300, 400, 500})
      b.arm(group.emplace_back(b.log, b.wheel, "x"), ms(d));
    for (const std::int64_t d : {200, 1000, 1500})
      b.arm(kept.emplace_back(b.log, b.wheel, "k"), ms(d));
    for (actor& a : group) EXPECT_TRUE(a->cancel());
    EXPECT_EQ(b.wheel.next_visit(), 200u);
    EXPECT_EQ(visit(b.wheel, 2000), 3u);
    EXPECT_EQ(b.log.take(), "k@200 k@1000 k@1500");
  }
}

TEST_P(WheelBugCases, Case070_NothingButArmMakesAFiringTimerRunAgain) {
  for (const tick jump : {tick{10}, tick{1000}}) {
    timer_wheel wheel{with(8)}, other{with(8)};
    journal log;
    actor a{log, wheel, "A", [&] {
              EXPECT_FALSE(wheel.refresh(a, wheel.now()));
              EXPECT_FALSE(wheel.refresh(a, wheel.now() + 5));
              EXPECT_FALSE(other.refresh(a, 5));
              EXPECT_FALSE(a->cancel());
              EXPECT_FALSE(wheel.cancel(a));
              EXPECT_FALSE(other.cancel(a));
              EXPECT_EQ(a->deadline(), std::nullopt);
              EXPECT_EQ(a->remaining(0), std::nullopt);
              wheel.advance(jump + 1);
            }};
    wheel.arm(a, 10);
    wheel.advance(jump, plenty);
    wheel.advance(jump + 100, plenty);
    other.advance(100, plenty);
    EXPECT_EQ(a.fires, 1);
  }
}

TEST_P(WheelBugCases, Case071_OneSetAsideMayBeRefreshedTwiceAndCancelled) {
  for (const tick due : {tick{4096}, tick{1}, tick{63}, tick{64}})
    for (const tick late : {tick{0}, tick{7}, tick{10'000}}) {
      timer_wheel wheel{with(64, due - 1)};
      journal log;
      std::deque<actor> two;
      bool first = true;
      for (std::size_t i = 0; i < 2; ++i)
        wheel.arm(two.emplace_back(log, wheel, "x",
                                   [&, i] {
                                     if (!std::exchange(first, false)) return;
                                     actor& other = two[1 - i];
                                     const tick now = wheel.now();
                                     EXPECT_TRUE(wheel.refresh(other, now + 100));
                                     EXPECT_TRUE(wheel.refresh(other, now + 50));
                                     EXPECT_TRUE(wheel.check_invariants());
                                     EXPECT_TRUE(other->cancel());
                                     EXPECT_FALSE(wheel.refresh(other, now + 70));
                                   }),
                  due);
      EXPECT_EQ(wheel.advance(due + late, plenty).fired, 1u);
      EXPECT_EQ(wheel.size(), 0u);
      EXPECT_EQ(wheel.next_visit(), std::nullopt);
      // Both places can be used again.
      for (actor& a : two) wheel.arm(a, due + late + 64);
      EXPECT_EQ(wheel.advance(due + late + 64, plenty).fired, 2u);
    }
}

TEST_P(WheelBugCases, Case073_RefreshDoesNotBringBackADisabledTimer) {
  bench b{100ms, 64};
  actor idle{b.log, b.wheel, "I"};
  b.arm(idle, ms(1000));
  EXPECT_TRUE(b.refresh(idle, ms(1200)));
  EXPECT_TRUE(idle->cancel());
  for (std::int64_t now = 300; now < 5000; now += 300) {
    EXPECT_FALSE(b.refresh(idle, ms(now + 1000)));
    b.pump(ms(now));
  }
  EXPECT_EQ(idle.fires, 0);
  EXPECT_EQ(b.wheel.next_visit(), std::nullopt);
}

// ---- E: lifetime of what is on the wheel; handles of a loop are tested in tests/uv

TEST_P(WheelBugCases, Case081_OwnersThatDieLeaveNoTimerBehind) {
  struct connection {
    timer idle{[] {}}, heartbeat{[] {}}, deadline{[] {}};
  };
  timer_wheel wheel{with(64)};
  {
    std::deque<connection> connections(100);
    for (connection& c : connections) {
      wheel.arm(c.idle, 200);
      wheel.arm(c.heartbeat, 600);
      wheel.arm(c.deadline, 2'147'483'647);
    }
    EXPECT_EQ(wheel.size(), 300u);
    wheel.advance(200, 50);
  }
  EXPECT_EQ(wheel.size(), 0u);
  EXPECT_EQ(wheel.next_visit(), std::nullopt);
  EXPECT_TRUE(wheel.check_invariants());
}

TEST_P(WheelBugCases, Case083_AnOwnerGoneBetweenExpiryAndDeliveryIsNotDelivered) {
  for (const tick jump : {tick{5}, tick{500}})
    for (std::size_t budget = 0; budget <= 4; ++budget) {
      timer_wheel wheel{with(8)};
      journal log;
      auto a = std::make_unique<actor>(log, wheel, "A");
      auto second = std::make_unique<actor>(log, wheel, "B");
      wheel.arm(*a, 5);
      wheel.arm(*second, 5);
      wheel.advance(jump, budget);  // expired; some of it delivered
      log.take();
      a.reset();
      second.reset();
      EXPECT_EQ(wheel.size(), 0u);
      EXPECT_FALSE(wheel.advance(jump, plenty).more);
      EXPECT_EQ(log.take(), "");
    }
}

// 85, 86: there are no ids; a timer is its place. What was there before is gone for good.
TEST_P(WheelBugCases, Case085_Case086_CancellingTheOldOneDoesNotHitTheNew) {
  timer_wheel wheel{with(8)};
  journal log;
  actor a{log, wheel, "A"}, second{log, wheel, "B"};
  wheel.arm(a, 3);
  EXPECT_TRUE(a->cancel());
  wheel.arm(second, 3);  // the same slot
  EXPECT_FALSE(a->cancel());
  EXPECT_FALSE(wheel.cancel(a));
  wheel.advance(3);
  EXPECT_EQ(log.take(), "B@3");

  std::optional<actor> place;
  place.emplace(log, wheel, "old");
  wheel.arm(*place, 5);
  wheel.advance(5);
  timer* const address = &place->t;
  place.emplace(log, wheel, "new");
  ASSERT_EQ(&place->t, address);
  EXPECT_FALSE(wheel.cancel(*place));
  EXPECT_FALSE(wheel.refresh(*place, 9));
  wheel.arm(*place, 9);
  wheel.advance(9);
  EXPECT_EQ(log.take(), "old@5 new@9");
}

TEST_P(WheelBugCases, Case088_AReusedTimerStartsWithItsFullTime) {
  bench b{100ms, 64};
  actor idle{b.log, b.wheel, "I"};
  for (int reuse = 0; reuse < 5; ++reuse) {
    const auto start = b.wheel.now();
    b.wheel.arm(idle, start + 50);
    if (reuse % 2 == 1) {  // once it was cut off in the middle
      pump(b.wheel, start + 20);
      idle->cancel();
      b.wheel.arm(idle, b.wheel.now() + 50);
    }
    const tick due = *idle->deadline();
    EXPECT_EQ(due, b.wheel.now() + 50);
    pump(b.wheel, due - 1);
    EXPECT_EQ(b.log.take(), "");
    pump(b.wheel, due);
    EXPECT_EQ(b.log.take(), "I@" + std::to_string(due));
  }
}

TEST_P(WheelBugCases, Case090_AttachedTwiceIsAttachedOnce) {
  for (const std::int64_t second : {0, 1, 300, 999}) {
    bench b{1ms, 64};
    actor idle{b.log, b.wheel, "I"};
    b.arm(idle, ms(1000));
    b.pump(ms(second));
    b.arm(idle, ms(second + 1000));
    EXPECT_EQ(b.wheel.size(), 1u);
    visit(b.wheel, 5000);
    EXPECT_EQ(b.log.take(), "I@" + std::to_string(second + 1000));
  }
}

// ---- F: cancelled timers

TEST_P(WheelBugCases, Case091_CancelledTimersAreGoneAtOnce) {
  timer_wheel wheel{with(64)};
  timer t{[] {}};
  for (tick i = 0; i < 1'000'000; ++i) {
    wheel.arm(t, 3'600'000 + i % 128);
    t.cancel();
  }
  EXPECT_EQ(wheel.size(), 0u);
  EXPECT_EQ(wheel.next_visit(), std::nullopt);
  EXPECT_TRUE(wheel.check_invariants());
  wheel.advance(10'000'000, plenty);
  EXPECT_EQ(wheel.counts().fired + wheel.counts().kept + wheel.counts().relinked, 0u)
      << "the sweep still met one of them";
}

TEST_P(WheelBugCases, Case093_CompletedRequestsTakeTheirDeadlinesAlong) {
  // 20 requests each millisecond, each done a millisecond later; the deadline is 15 s.
  bench b{100ms, 256};
  struct request {
    timer deadline{[] {}};
  };
  auto now = std::make_unique<request[]>(20), before = std::make_unique<request[]>(20);
  std::size_t most = 0;
  for (std::int64_t t = 0; t < 20'000; ++t) {
    for (std::size_t i = 0; i < 20; ++i) {
      before[i].deadline.cancel();
      b.arm(now[i].deadline, ms(t + 15'000));
    }
    most = std::max(most, b.wheel.size());
    if (t % 100 == 0) b.pump(ms(t));
    std::swap(now, before);
  }
  EXPECT_EQ(most, 20u);
  EXPECT_EQ(b.wheel.counts().fired, 0u);
}

// 95, 201: a limit on pending timers rests on size() being exact, whatever happens.
TEST_P(WheelBugCases, Case095_TheCountOfPendingIsExact) {
  constexpr std::size_t max_pending = 1000;
  timer_wheel wheel{with(64)};
  std::deque<timer> timers;
  const auto try_to_arm = [&](timer& t) {
    if (wheel.size() >= max_pending) return false;
    wheel.arm(t, wheel.now() + 50);
    return true;
  };
  for (std::size_t i = 0; i < max_pending; ++i) ASSERT_TRUE(try_to_arm(timers.emplace_back([] {})));
  timer& extra = timers.emplace_back([] {});
  EXPECT_FALSE(try_to_arm(extra));
  EXPECT_TRUE(timers[7].cancel());
  EXPECT_FALSE(timers[7].cancel());
  EXPECT_TRUE(try_to_arm(extra));
  EXPECT_EQ(wheel.size(), max_pending);
  wheel.advance(50, 10);
  EXPECT_EQ(wheel.size(), max_pending - 10);
}

// ---- G: starvation, storms, turns in vain

TEST_P(WheelBugCases, Case098_AnIdleWheelAsksForNoVisit) {
  for (const std::int64_t length : {1, 10, 100}) {
    bench b{milliseconds{length}, 64};
    EXPECT_EQ(b.wheel.next_visit(), std::nullopt);
    EXPECT_EQ(visit(b.wheel, b.scale.floor(ms(10'000))), 0u);
    timer t{[] {}};
    b.arm(t, ms(20'000));
    EXPECT_EQ(visit(b.wheel, b.scale.floor(ms(20'000))), 1u) << "laps in between are slept through";
    EXPECT_EQ(b.wheel.counts().fired, 1u);
    EXPECT_EQ(b.wheel.next_visit(), std::nullopt);
  }
}

TEST_P(WheelBugCases, Case100_ADeadlineWithinATickTakesOneWakeup) {
  for (const auto ahead : {99'400us, 99'000us, 1us, 100'000us}) {
    bench b{1ms, 64};
    actor a{b.log, b.wheel, "A"};
    b.arm(a, instant{ahead});
    instant now{};
    int wakeups = 0;
    while (a.fires == 0 && wakeups < 10) {
      now = b.scale.begins(*b.wheel.next_visit());  // where a host sleeps until
      b.pump(now);
      ++wakeups;
    }
    EXPECT_EQ(wakeups, 1);
    EXPECT_GE(now, instant{ahead});
  }
}

TEST_P(WheelBugCases, Case101_ASweepThatFindsNothingDueAsksForALaterVisit) {
  timer_wheel wheel{with(64)};
  timer t{[] {}}, past{[] {}};
  // Refreshed over and over: each sweep at an old place has to end with a visit that is ahead.
  wheel.arm(t, 10);
  for (tick now = 1; now < 500; ++now) {
    wheel.refresh(t, now + 10);
    EXPECT_FALSE(wheel.advance(now, plenty).more);
    ASSERT_GT(*wheel.next_visit(), now);
  }
  // A date in the past, even when one is set already: the next tick, once.
  wheel.arm(past, 3);
  wheel.arm(past, 2);
  EXPECT_TRUE(wheel.refresh(past, 1));
  EXPECT_EQ(wheel.next_visit(), 500u);
  EXPECT_EQ(wheel.advance(500, plenty).fired, 1u);
  EXPECT_EQ(wheel.advance(500, plenty).fired, 0u);
  EXPECT_GT(*wheel.next_visit(), 500u);
}

TEST_P(WheelBugCases, Case103_AStormIsServedInBatches) {
  constexpr std::size_t count = 200'000, budget = 1000;
  timer_wheel wheel{with(64)};
  struct one {
    timer t{[] {}};
  };
  const auto timers = std::make_unique<one[]>(count);
  for (std::size_t i = 0; i < count; ++i) wheel.arm(timers[i].t, 10);
  journal log;
  actor after{log, wheel, "after"};
  wheel.arm(after, 11);
  std::size_t fired = 0, pumps = 0;
  for (bool more = true; more; ++pumps) {
    const progress done = wheel.advance(10, budget);
    ASSERT_EQ(done.fired, budget);
    fired += done.fired;
    more = done.more;
    ASSERT_EQ(wheel.size(), count - fired + 1);
    ASSERT_EQ(wheel.next_visit(), more ? 10u : 11u);
  }
  EXPECT_EQ(pumps, count / budget);
  EXPECT_EQ(log.take(), "");
  wheel.advance(11, budget);
  EXPECT_EQ(log.take(), "after@11");
}

// The same storm met in a jump of many laps, over two ticks, with time going on meanwhile.
TEST_P(WheelBugCases, Case103_AStormInAJumpIsServedInBatchesAndInOrder) {
  constexpr std::size_t count = 20'000, budget = 500;
  timer_wheel wheel{with(8)};
  std::vector<tick> fired;
  std::deque<dated> timers;
  for (std::size_t i = 0; i < count; ++i) {
    const tick due = 10 + i % 97;
    wheel.arm(timers.emplace_back(fired, due).t, due);
  }
  tick now = 1000;
  std::size_t pumps = 0;
  while (wheel.size() != 0) {
    ASSERT_LT(++pumps, 12 * count / budget);
    ASSERT_LE(wheel.advance(now++, budget).fired, budget);
  }
  EXPECT_EQ(fired.size(), count);
  EXPECT_TRUE(std::ranges::is_sorted(fired));
}

TEST_P(WheelBugCases, Case105_OldTimersAreReachedThoughNewOnesComeAndGo) {
  timer_wheel wheel{with(64, 90)};
  std::deque<timer> old_ones, young;
  for (int i = 0; i < 1000; ++i) wheel.arm(old_ones.emplace_back([] {}), 100);
  for (int i = 0; i < 50; ++i) young.emplace_back([] {});
  tick now = 99;
  std::size_t turns = 0;
  while (std::ranges::any_of(old_ones, [](const timer& t) { return t.armed(); })) {
    ++now;
    for (timer& t : young) wheel.arm(t, now + 1);  // always due next
    wheel.advance(now, 50);
    for (timer& t : young) t.cancel();
    ASSERT_LE(++turns, 1000u / 50);
  }
}

TEST_P(WheelBugCases, Case106_ATimerRearmedAllTheTimeDelaysNoOther) {
  bench b{1ms, 64};
  actor finish{b.log, b.wheel, "FINISH"}, noop{b.log, b.wheel, "n"}, again{b.log, b.wheel, "r"};
  actor beat{b.log, b.wheel, "b", [&] {
               const tick now = b.wheel.now();
               b.wheel.arm(noop, now + 45);
               b.wheel.arm(beat, now + 50);
               again->cancel();
               b.wheel.arm(again, now + 95);
             }};
  b.arm(beat, ms(50));
  b.arm(finish, ms(110));
  visit(b.wheel, 400);
  EXPECT_EQ(finish.fires, 1);
  EXPECT_NE(b.log.take().find("FINISH@110"), std::string::npos);
  EXPECT_EQ(again.fires, 0);
}

// ---- H: refresh races, as far as a bare wheel sees them

TEST_P(WheelBugCases, Case111_RefreshedBeforeItsDeadlineIsDeliveredLives) {
  for (const tick at : {995u, 999u, 1000u, 1001u}) {
    timer_wheel wheel{with(64)};
    journal log;
    actor idle{log, wheel, "I"};
    wheel.arm(idle, 1000);
    wheel.advance(at - 1, plenty);
    const bool alive = at <= 1000;
    EXPECT_EQ(wheel.refresh(idle, at + 1000), alive);  // of a fired one: nothing
    EXPECT_EQ(idle->armed(), alive);
    wheel.advance(at, plenty);
    wheel.advance(1999, plenty);
    EXPECT_EQ(idle.fires, alive && at + 1000 > 1999 ? 0 : 1);
  }
}

TEST_P(WheelBugCases, Case113_RefreshedByAnEarlierHandlerOfTheSameBatch) {
  for (const tick jump : {tick{1000}, tick{1063}, tick{90'000}})
    for (const std::size_t slots : {1u, 64u}) {
      timer_wheel wheel{with(slots)};
      journal log;
      std::deque<actor> two;
      for (std::size_t i = 0; i < 2; ++i)
        wheel.arm(two.emplace_back(log, wheel, "x",
                                   [&, i] { wheel.refresh(two[1 - i], wheel.now() + 1000); }),
                  1000);
      EXPECT_EQ(wheel.advance(jump, plenty).fired, 1u);
      EXPECT_EQ(wheel.size(), 1u);
      EXPECT_EQ(wheel.advance(jump + 999, plenty).fired, 0u);
      EXPECT_EQ(wheel.advance(jump + 1000, plenty).fired, 1u);
    }
}

TEST_P(WheelBugCases, Case115_RefreshedWithTrafficDoesNotFire) {
  for (const std::int64_t every : {1, 10, 100, 400, 990, 999})
    for (const std::size_t slots : {1u, 64u, 128u, 512u}) {
      bench b{10ms, slots};
      actor idle{b.log, b.wheel, "I"};
      b.arm(idle, ms(1000));
      std::int64_t now = 0;
      while (now + every <= 5000) {
        b.pump(ms(now += every));
        ASSERT_TRUE(b.refresh(idle, ms(now + 1000))) << every << ", at " << now;
      }
      EXPECT_EQ(idle.fires, 0);
      b.pump(ms(now + 999));
      EXPECT_EQ(idle.fires, 0);
      b.pump(ms(now + 1010));
      EXPECT_EQ(idle.fires, 1);
    }
}

TEST_P(WheelBugCases, Case121_ArmedTwiceIsOneTimer) {
  bench b{10ms, 64};
  actor keep_alive{b.log, b.wheel, "K"};
  b.arm(keep_alive, ms(1000));
  b.pump(ms(500));
  b.arm(keep_alive, ms(1500));  // a second "response complete"
  EXPECT_EQ(b.wheel.size(), 1u);
  EXPECT_TRUE(keep_alive->cancel());  // the next request
  b.pump(ms(4500));
  EXPECT_EQ(keep_alive.fires, 0);
}

// ---- S: equal deadlines. No order is promised within a tick; nothing is lost, doubled or moved.

TEST_P(WheelBugCases, Case198_EqualDeadlinesAllFireInTheirTick) {
  timer_wheel wheel{with(64)};
  journal log;
  actor a{log, wheel, "A"}, second{log, wheel, "B"}, c{log, wheel, "C"}, d{log, wheel, "D"};
  for (actor* x : {&a, &second, &c, &d}) wheel.arm(*x, 20);
  second->cancel();
  wheel.arm(second, 20);
  EXPECT_TRUE(wheel.refresh(a, 20));
  EXPECT_TRUE(wheel.refresh(c, 30));
  EXPECT_TRUE(wheel.refresh(c, 20));
  pump(wheel, 19);
  EXPECT_EQ(log.take(), "");
  pump(wheel, 20);
  EXPECT_EQ(sorted_words(log.take()), "A@20 B@20 C@20 D@20");
}

TEST_P(WheelBugCases, Case200_OverdueWhenArmedFiresInTheNextTick) {
  timer_wheel wheel{with(64, 500)};
  journal log;
  actor a{log, wheel, "A"}, second{log, wheel, "B"}, c{log, wheel, "C"};
  wheel.arm(a, 400);
  wheel.arm(second, 500);
  wheel.arm(c, 0);
  pump(wheel, 600);
  EXPECT_EQ(sorted_words(log.take()), "A@501 B@501 C@501");
}

// ---- T: counters

TEST_P(WheelBugCases, Case201_OneCancelledInItsBatchIsSubtractedOnce) {
  for (const tick jump : {tick{3}, tick{300}})
    for (const std::size_t budget : {std::size_t{1}, plenty}) {
      timer_wheel wheel{with(8)};
      journal log;
      std::deque<actor> eleven;
      for (int i = 0; i < 11; ++i)
        wheel.arm(eleven.emplace_back(log, wheel, "x",
                                      [&] {
                                        for (actor& each : eleven) each->cancel();
                                        EXPECT_EQ(wheel.size(), 0u);
                                        for (actor& each : eleven) each->cancel();
                                        EXPECT_EQ(wheel.size(), 0u);
                                      }),
                  3);
      while (wheel.advance(jump, budget).more) {
      }
      EXPECT_EQ(wheel.size(), 0u);
      EXPECT_EQ(wheel.counts().fired, 1u);
      std::size_t armed = 0;  // a limit of five, kept by size()
      for (actor& each : eleven)
        if (wheel.size() < 5) wheel.arm(each, 900), ++armed;
      EXPECT_EQ(armed, 5u);
    }
}

INSTANTIATE_TEST_SUITE_P(Modes, WheelBugCases, both_modes, name_of_mode);

// Where each case of these categories is tested. "wheel" is this file; several of them are met
// again by the exhaustive, the model and the hostile tests. tests/uv has those that need a loop or
// a socket, tests/testing those that need a host's clock, tests/connection those that need the
// state of a connection, task/ does not exist yet.
//
//   A    1 wheel             3 wheel             5 wheel             6 wheel             8 wheel
//       10 wheel            11 wheel            13 wheel            15 wheel
//   B   16 wheel            18 wheel            20 wheel            21 wheel, timespan_test
//       23 wheel (off is not armed), tests/connection (keepalive off)
//       25 wheel            26 wheel            28 wheel (units)    30 wheel            31 wheel
//       33 wheel            35 wheel
//   C   36 wheel, tests/uv  38 wheel, tests/uv  40 wheel, tests/uv  41 wheel, tests/uv
//       43 wheel, tests/uv  45 timer_host_test  46 timer_host_test         48 wheel            50 wheel
//       51 wheel            53 wheel, tests/uv  55 tests/connection
//   D   56 wheel            58 wheel            60 wheel            61 wheel            63 wheel
//       65 wheel            66 wheel            68 wheel            70 wheel, tests/uv (ref, unref)
//       71 wheel            73 wheel
//   E   75 tests/uv         76 tests/uv         78 tests/uv         80 tests/uv
//       81 wheel, tests/uv  83 wheel; delivery by a queue: task/    85 wheel            86 wheel
//       88 wheel, tests/connection              90 wheel, tests/connection
//   F   91 wheel            93 wheel            95 wheel; refusing at a limit: task/
//       96 tests/connection
//   G   98 wheel, tests/uv 100 wheel, tests/uv 101 wheel           103 wheel, tests/uv 105 wheel
//      106 wheel           108 tests/connection (Age)
//   H  110 tests/uv        111 wheel, tests/uv 113 wheel           115 wheel           116 tests/uv
//      118 tests/connection                    120 drain: not yet
//      121 wheel, tests/connection             123 tests/connection
//   S  198 wheel           200 wheel
//   T  201 wheel; refusing at a limit: task/
//   V  213 tests/uv; task/

}  // namespace
}  // namespace idlewheel
