// loop_wheel_lifetime_test.cpp - who may die when, and what is an error. AddressSanitizer is the
// judge of most of these.
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>

#include "tests/uv/support.hpp"

namespace idlewheel::uv_tests {
namespace {

class LoopWheelDies : public ByMode {
 protected:
  loop on;
  sleeper alive{on};
  std::unique_ptr<loop_wheel> make(std::size_t budget = 256) {
    return std::make_unique<loop_wheel>(
        on, loop_wheel_options{.tick = 1ms, .refresh = GetParam(), .budget = budget});
  }
};

TEST_P(LoopWheelDies, BeforeItsTimers) {
  firing waiting, due;
  {
    auto wheel = make();
    wheel->arm(waiting.t, 1h);
    wheel->arm(due.t, 0ns);
    block_for(5ms);
  }
  EXPECT_FALSE(waiting.t.armed());
  EXPECT_FALSE(due.t.armed());
  EXPECT_FALSE(due.t.cancel());
  on.run_for(10ms);
  EXPECT_EQ(waiting.count + due.count, 0);
}

TEST_P(LoopWheelDies, AfterItsTimers) {
  auto wheel = make();
  {
    firing waiting, due;
    wheel->arm(waiting.t, 1h);
    wheel->arm(due.t, 0ns);
    due.then = [] { ADD_FAILURE(); };
  }
  EXPECT_EQ(wheel->wheel().size(), 0u);
  on.run_for(10ms);
}

TEST_P(LoopWheelDies, ByCloseInACallback) {
  auto wheel = make();
  firing first, second, far;
  first.then = [&] { wheel->close(); };
  second.then = first.then;  // whichever fires, the other does not
  wheel->arm_at(first.t, instant{});
  wheel->arm_at(second.t, instant{});
  wheel->arm(far.t, 10ms);
  ASSERT_TRUE(on.run_until([&] { return first.count + second.count != 0; }));
  on.run_for(20ms);
  EXPECT_EQ(first.count + second.count, 1);
  EXPECT_EQ(far.count, 0);
  EXPECT_TRUE(wheel->closed());
  EXPECT_EQ(wheel->wheel().size(), 0u);
}

TEST_P(LoopWheelDies, ByDestructionInACallback) {
  for (const std::size_t budget : {std::size_t{256}, std::size_t{1}}) {
    auto wheel = make(budget);
    firing first, second, far;
    first.then = [&] { wheel.reset(); };
    second.then = first.then;
    wheel->arm_at(first.t, instant{});
    wheel->arm_at(second.t, instant{});
    wheel->arm(far.t, 10ms);
    ASSERT_TRUE(on.run_until([&] { return wheel == nullptr; }));
    on.run_for(20ms);
    EXPECT_EQ(first.count + second.count, 1);
    EXPECT_EQ(far.count, 0);
    EXPECT_FALSE(far.t.armed());
  }
}

TEST_P(LoopWheelDies, TogetherWithTheTimerInItsCallback) {
  struct owner {
    explicit owner(std::unique_ptr<loop_wheel> w) : wheel{std::move(w)} {}
    std::unique_ptr<loop_wheel> wheel;
    firing self;
  };
  auto* both = new owner{make()};
  bool died = false;
  both->self.then = [&, both] {
    // The callable that runs is a member of what dies: out of it first.
    auto* doomed = both;
    died = true;
    delete doomed;
  };
  both->wheel->arm(both->self.t, 1ms);
  ASSERT_TRUE(on.run_until([&] { return died; }));
  on.run_for(5ms);
}

TEST_P(LoopWheelDies, AndAnotherTakesItsTimersFromACallback) {
  auto wheel = make();
  auto next = make();
  firing f, other;
  f.then = [&] {
    if (wheel == nullptr) return;
    next->arm(other.t, 5ms);
    wheel.reset();
    next->arm(f.t, 5ms);
  };
  wheel->arm(other.t, 1h);
  wheel->arm(f.t, 1ms);
  ASSERT_TRUE(on.run_until([&] { return f.count == 2 && other.count == 1; }));
}

TEST_P(LoopWheelDies, ClosedTwiceAndThenDestroyed) {
  auto wheel = make();
  firing f;
  wheel->arm(f.t, 1h);
  wheel->close();
  EXPECT_FALSE(f.t.armed());
  wheel->close();
  on.run_for(1ms);
  wheel->close();
  wheel->ref();
  wheel->unref();
  EXPECT_FALSE(wheel->refresh(f.t));
  EXPECT_FALSE(wheel->cancel(f.t));
  EXPECT_EQ(wheel->stats().visits, 0u);
  wheel.reset();
  on.run_for(1ms);
  EXPECT_EQ(f.count, 0);
}

TEST_P(LoopWheelDies, InEachPhaseOfTheLoop) {
  // Its own handles are being walked, or are about to be.
  const auto dies_in = [&](auto make_phase) {
    auto wheel = make();
    firing due;
    due.then = [] {};
    wheel->arm(due.t, 3ms);
    auto phase = make_phase([&] {
      if (wheel == nullptr) return;
      block_for(5ms);
      wheel.reset();
    });
    ASSERT_TRUE(on.run_until([&] { return wheel == nullptr; }));
    on.run_for(10ms);
    EXPECT_FALSE(due.t.armed());
  };
  dies_in([&](auto f) { return std::make_unique<each_prepare>(on, f); });
  dies_in([&](auto f) { return std::make_unique<each_check>(on, f); });
  dies_in([&](auto f) { return std::make_unique<each_idle>(on, f); });
  dies_in([&](auto f) { return std::make_unique<loop_timer>(on, 1ms, f); });
}

TEST_P(LoopWheelDies, OnTheStackOfARunningLoop) {
  firing f;
  {
    loop_wheel local{on, {.tick = 1ms, .refresh = GetParam()}};
    local.arm(f.t, 2ms);
    ASSERT_TRUE(on.run_until([&] { return f.count == 1; }));
    local.arm(f.t, 1h);
  }
  EXPECT_FALSE(f.t.armed());
  uv_run(on, UV_RUN_NOWAIT);
  uv_run(on, UV_RUN_NOWAIT);
}

TEST_P(LoopWheelDies, AndIsNeverMissedByOneThatWasNeverArmed) {
  auto wheel = make();
  wheel.reset();
  on.run_for(1ms);
}

IDLEWHEEL_IN_BOTH_MODES(LoopWheelDies);

TEST(LoopWheelCloses, TheLoopAfterOneMoreTurnAndNotBefore) {
  for (const bool has_run : {false, true})
    for (const bool armed : {false, true}) {
      uv_loop_t on;
      ASSERT_EQ(uv_loop_init(&on), 0);
      firing f;
      {
        loop_wheel wheel{&on, {.tick = 1ms}};
        if (armed) wheel.arm(f.t, 1h);
        if (has_run) uv_run(&on, UV_RUN_NOWAIT);
        EXPECT_EQ(uv_loop_close(&on), UV_EBUSY);
      }
      EXPECT_EQ(uv_loop_close(&on), UV_EBUSY);
      uv_run(&on, UV_RUN_NOWAIT);
      EXPECT_EQ(uv_loop_close(&on), 0);
    }
}

TEST(LoopWheelCloses, WithoutLeavingAHandleActive) {
  loop on;
  firing f;
  std::optional<loop_wheel> wheel;
  wheel.emplace(on.get());
  EXPECT_EQ(uv_loop_alive(on), 0) << "unreferenced";
  wheel->ref();
  EXPECT_EQ(uv_loop_alive(on), 0) << "nothing armed";
  wheel->arm(f.t, 1h);
  EXPECT_NE(uv_loop_alive(on), 0);
  wheel.reset();
  uv_run(on, UV_RUN_NOWAIT);
  EXPECT_EQ(uv_loop_alive(on), 0);
}

// Errors -----------------------------------------------------------------------------------------

class LoopWheelMisuse : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};
using LoopWheelMisuseDeathTest = LoopWheelMisuse;

TEST_F(LoopWheelMisuseDeathTest, ArmingAfterClose) {
  loop on;
  loop_wheel wheel{on};
  firing f;
  wheel.close();
#ifdef NDEBUG
  EXPECT_FALSE(wheel.arm(f.t, 1s));
  EXPECT_FALSE(wheel.arm_at(f.t, wheel.now()));
  EXPECT_FALSE(f.t.armed());
  on.run_for(5ms);
  EXPECT_EQ(f.count, 0);
#else
  EXPECT_DEATH(wheel.arm(f.t, 1s), "armed after close");
  EXPECT_DEATH(wheel.arm_at(f.t, wheel.now()), "armed after close");
#endif
}

#ifndef NDEBUG
TEST_F(LoopWheelMisuseDeathTest, ArmingOnAnotherThread) {
  loop on;
  loop_wheel wheel{on, {.tick = 1ms}};
  firing f;
  wheel.arm(f.t, 1ms);
  ASSERT_TRUE(on.run_until([&] { return f.count == 1; }));  // now it knows its thread
  EXPECT_DEATH((std::thread{[&] { wheel.arm(f.t, 1s); }}.join()), "another thread");
  EXPECT_DEATH((std::thread{[&] { wheel.arm_at(f.t, instant{}); }}.join()), "another thread");
}

TEST_F(LoopWheelMisuseDeathTest, ClosingOnAnotherThread) {
  loop on;
  loop_wheel wheel{on, {.tick = 1ms}};
  firing f;
  wheel.arm(f.t, 1ms);
  ASSERT_TRUE(on.run_until([&] { return f.count == 1; }));
  EXPECT_DEATH((std::thread{[&] { wheel.close(); }}.join()), "another thread");
}
#endif

// Making it on one thread and running the loop on another is no misuse.
TEST(LoopWheelThreads, TheLoopMayRunOnAnotherThreadThanItWasMadeOn) {
  loop on;
  auto wheel = std::make_unique<loop_wheel>(on.get(), loop_wheel_options{.tick = 1ms});
  firing f;
  wheel->arm(f.t, 5ms);
  wheel->ref();
  std::thread{[&] {
    on.run();
    wheel->arm(f.t, 1ms);
    on.run();
    wheel.reset();
    uv_run(on, UV_RUN_NOWAIT);
  }}.join();
  EXPECT_EQ(f.count, 2);
}

[[noreturn]] void throw_from_a_callback() {
  uv_loop_t on;
  uv_loop_init(&on);
  loop_wheel wheel{&on, {.tick = 1ms}};
  timer t{[] { throw 1; }};
  wheel.ref();
  wheel.arm(t, 1ms);
  try {
    uv_run(&on, UV_RUN_DEFAULT);
  } catch (...) {
  }
  std::_Exit(0);  // it came through
}

TEST_F(LoopWheelMisuseDeathTest, Case213_ACallbackThatThrowsTerminates) {
  EXPECT_EXIT(throw_from_a_callback(), testing::KilledBySignal(SIGABRT), "terminate");
}

}  // namespace
}  // namespace idlewheel::uv_tests
