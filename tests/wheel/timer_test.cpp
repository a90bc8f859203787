// timer_test.cpp - one timer: what it may call, what it says about itself, how it is cancelled.
#include "idlewheel/wheel/timer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <type_traits>

#include "idlewheel/testing/manual_wheel.hpp"
#include "tests/wheel/fixtures.hpp"

namespace idlewheel {
namespace {

using namespace std::chrono_literals;

int plain_calls = 0;
timer* called_with = nullptr;
void plain() { ++plain_calls; }
void with_timer(timer& t) { called_with = &t; }

class Timer : public EachMode {};

TEST(TimerType, IsOneCacheLineAndStaysWhereItIs) {
  static_assert(sizeof(timer) <= 64);
  static_assert(!std::is_copy_constructible_v<timer> && !std::is_move_constructible_v<timer>);
  static_assert(!std::is_copy_assignable_v<timer> && !std::is_move_assignable_v<timer>);
  static_assert(!std::is_default_constructible_v<timer>);
  static_assert(std::is_nothrow_destructible_v<timer>);
  SUCCEED();
}

TEST(TimerType, TakesOnlyWhatItCanCall) {
  static_assert(std::is_constructible_v<timer, void (*)()>);
  static_assert(std::is_constructible_v<timer, void (*)(timer&)>);
  static_assert(!std::is_constructible_v<timer, void (*)(int)>);
  static_assert(!std::is_constructible_v<timer, int>);
  static_assert(!std::is_convertible_v<void (*)(), timer>);  // explicit
  SUCCEED();
}

TEST_P(Timer, CallsEachFormOfCallback) {
  timer_wheel wheel{with(8)};
  int captured = 0;
  timer* seen = nullptr;
  // The generic one can be called both ways, and gets the timer.
  static int generic_arguments;
  generic_arguments = -1;
  plain_calls = 0;
  called_with = nullptr;
  static int captureless;
  captureless = 0;

  timer by_capture{[&captured] { ++captured; }};
  timer by_reference{[&seen](timer& t) { seen = &t; }};
  timer generic{[](auto&&... a) { generic_arguments = static_cast<int>(sizeof...(a)); }};
  timer function{plain};
  timer function_with_timer{with_timer};
  timer without_capture{[] { ++captureless; }};
  timer returns_something{[&captured] { return ++captured; }};

  for (timer* t : {&by_capture, &by_reference, &generic, &function, &function_with_timer,
                   &without_capture, &returns_something})
    wheel.arm(*t, 1);
  EXPECT_EQ(wheel.advance(1).fired, 7u);
  EXPECT_EQ(captured, 2);
  EXPECT_EQ(seen, &by_reference);
  EXPECT_EQ(generic_arguments, 1);
  EXPECT_EQ(plain_calls, 1);
  EXPECT_EQ(called_with, &function_with_timer);
  EXPECT_EQ(captureless, 1);
}

TEST_P(Timer, IsDisarmedWhenItsCallbackRuns) {
  timer_wheel wheel{with(8)};
  struct {
    timer_wheel* wheel;
    bool ran = false;
  } seen{&wheel};
  timer t{[&seen](timer& self) {
    seen.ran = true;
    EXPECT_FALSE(self.armed());
    EXPECT_FALSE(self.cancel());
    EXPECT_EQ(self.deadline(), std::nullopt);
    EXPECT_EQ(self.remaining(0), std::nullopt);
    EXPECT_EQ(seen.wheel->size(), 0u);
    EXPECT_FALSE(seen.wheel->refresh(self, 9));
  }};
  wheel.arm(t, 4);
  wheel.advance(4);
  EXPECT_TRUE(seen.ran);
  EXPECT_FALSE(t.armed());
}

TEST_P(Timer, SaysWhenItFiresAndHowLongThatIs) {
  timer_wheel wheel{with(8)};
  timer t{[] {}};
  EXPECT_FALSE(t.armed());
  EXPECT_EQ(t.deadline(), std::nullopt);
  EXPECT_EQ(t.remaining(0), std::nullopt);

  wheel.arm(t, 20);
  EXPECT_TRUE(t.armed());
  EXPECT_EQ(t.deadline(), 20u);
  EXPECT_EQ(t.remaining(0), 20u);
  EXPECT_EQ(t.remaining(19), 1u);
  EXPECT_EQ(t.remaining(20), 0u);
  EXPECT_EQ(t.remaining(21), 0u);
  EXPECT_EQ(t.remaining(never), 0u);

  wheel.refresh(t, 28);  // same slot: one store
  EXPECT_EQ(t.deadline(), 28u);
  wheel.refresh(t, 31);
  EXPECT_EQ(t.deadline(), 31u);
  wheel.refresh(t, 5);
  EXPECT_EQ(t.deadline(), 5u);
  EXPECT_EQ(t.remaining(2), 3u);

  wheel.arm(t, never);
  EXPECT_EQ(t.deadline(), never);
  EXPECT_EQ(t.remaining(1), never - 1);
}

TEST_P(Timer, SetAsideStillCountsAsArmed) {
  timer_wheel wheel{with(8)};
  timer a{[] {}}, b{[] {}};
  for (const tick jump : {tick{3}, tick{30}}) {  // within a lap, and beyond
    wheel.arm(a, wheel.now() + 3);
    wheel.arm(b, wheel.now() + 3);
    const tick due = *b.deadline();
    const tick now = wheel.now() + jump;
    EXPECT_TRUE(wheel.advance(now, 0).more);
    EXPECT_TRUE(a.armed() && b.armed());
    EXPECT_EQ(a.deadline(), due);
    EXPECT_EQ(a.remaining(now), 0u);
    EXPECT_TRUE(a.cancel());
    EXPECT_TRUE(b.cancel());
    EXPECT_FALSE(wheel.advance(now).more);
    EXPECT_EQ(wheel.counts().fired, 0u);
  }
}

TEST_P(Timer, CancelIsIdempotent) {
  timer_wheel wheel{with(8)};
  int fires = 0;
  timer t{[&fires] { ++fires; }};
  EXPECT_FALSE(t.cancel());
  wheel.arm(t, 3);
  EXPECT_TRUE(t.cancel());
  EXPECT_FALSE(t.cancel());
  EXPECT_FALSE(wheel.cancel(t));
  EXPECT_FALSE(t.armed());
  EXPECT_EQ(wheel.size(), 0u);
  wheel.advance(10);
  EXPECT_EQ(fires, 0);

  wheel.arm(t, 12);
  EXPECT_TRUE(wheel.cancel(t));
  EXPECT_FALSE(wheel.cancel(t));
  EXPECT_FALSE(t.cancel());

  wheel.arm(t, 14);
  wheel.advance(14);
  EXPECT_EQ(fires, 1);
  EXPECT_FALSE(t.cancel());
  EXPECT_TRUE(wheel.check_invariants());
}

TEST_P(Timer, CancelLooksOnlyOnItsOwnWheel) {
  timer_wheel mine{with(8)}, other{with(8)};
  timer t{[] {}};
  mine.arm(t, 3);
  EXPECT_FALSE(other.cancel(t));
  EXPECT_TRUE(t.armed());
  EXPECT_EQ(mine.size(), 1u);
  EXPECT_EQ(other.size(), 0u);
}

TEST_P(Timer, DyingCancelsAndFiresNothing) {
  timer_wheel wheel{with(8)};
  int fires = 0;
  auto a = std::make_unique<timer>([&fires] { ++fires; });
  auto b = std::make_unique<timer>([&fires] { ++fires; });
  auto c = std::make_unique<timer>([&fires] { ++fires; });
  for (timer* t : {a.get(), b.get(), c.get()}) wheel.arm(*t, 3);
  b.reset();
  EXPECT_EQ(wheel.size(), 2u);
  EXPECT_EQ(fires, 0);
  EXPECT_TRUE(wheel.check_invariants());
  wheel.advance(3, 0);  // set aside
  a.reset();
  EXPECT_EQ(wheel.size(), 1u);
  EXPECT_TRUE(wheel.check_invariants());
  wheel.advance(3);
  EXPECT_EQ(fires, 1);
}

TEST_P(Timer, MayBeBuiltAgainInTheSamePlace) {
  timer_wheel wheel{with(8)};
  int first = 0, second = 0;
  std::optional<timer> place;
  place.emplace([&first] { ++first; });
  wheel.arm(*place, 3);
  place.emplace([&second] { ++second; });
  EXPECT_FALSE(place->armed());
  EXPECT_EQ(wheel.size(), 0u);
  wheel.arm(*place, 3);
  wheel.advance(3);
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
}

// timeout() is what a host armed it with; a bare wheel deals in deadlines and leaves it alone.
TEST_P(Timer, RemembersTheTimeoutThatAHostGaveIt) {
  testing::manual_wheel time{{.tick = 100ms, .refresh = GetParam()}};
  timer t{[] {}};
  EXPECT_EQ(t.timeout(), timespan{});
  time.arm(t, 5s);
  EXPECT_EQ(t.timeout(), timespan{5s});
  EXPECT_TRUE(time.refresh(t));
  EXPECT_EQ(t.timeout(), timespan{5s});
  EXPECT_TRUE(time.refresh(t, 7s));
  EXPECT_EQ(t.timeout(), timespan{7s});
  EXPECT_TRUE(time.refresh_at(t, instant{1h}));
  EXPECT_EQ(t.timeout(), timespan{1h});
  EXPECT_TRUE(t.cancel());
  EXPECT_EQ(t.timeout(), timespan{1h});
  EXPECT_FALSE(time.refresh(t, 9s));
  EXPECT_EQ(t.timeout(), timespan{1h});

  time.arm(t, -1s);
  EXPECT_EQ(t.timeout(), timespan{});
  time.arm(t, timer::max_timeout);
  EXPECT_EQ(t.timeout(), timer::max_timeout);
  time.arm(t, timespan::max());
  EXPECT_EQ(t.timeout(), timer::max_timeout) << "cut";
  time.arm(t, std::chrono::hours::min());
  EXPECT_EQ(t.timeout(), timespan{});
  time.arm(t, 0s);
  EXPECT_EQ(t.timeout(), timespan{});
  time.arm(t, 1ns);
  EXPECT_EQ(t.timeout(), timespan{1ns});
  time.advance(1s);
  time.arm_at(t, instant{3s});
  EXPECT_EQ(t.timeout(), timespan{2s});
}

TEST_P(Timer, ABareWheelLeavesTheTimeoutAlone) {
  timer_wheel wheel{with(8)};
  timer t{[] {}};
  wheel.arm(t, 5);
  wheel.refresh(t, 50);
  EXPECT_EQ(t.timeout(), timespan{});
}

INSTANTIATE_TEST_SUITE_P(Modes, Timer, both_modes, name_of_mode);

}  // namespace
}  // namespace idlewheel
