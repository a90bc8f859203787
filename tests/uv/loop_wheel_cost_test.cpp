// loop_wheel_cost_test.cpp - what the wheel costs the loop: no turn without a reason, and no turn
// that is too long.
//
// Turns are counted by a prepare handle, which runs once before each wait.
#include <deque>

#include "idlewheel/connection/connection_timeouts.hpp"
#include "tests/uv/support.hpp"

namespace idlewheel::uv_tests {
namespace {

class LoopWheelCosts : public ByMode {
 protected:
  loop on;
  sleeper alive{on};
  loop_wheel wheel{on, {.tick = 10ms, .refresh = GetParam()}};
  std::size_t turns = 0;
  each_prepare count{on, [this] { ++turns; }};

  // Turns taken in d. Beginning and ending a run take up to four of them.
  static constexpr std::size_t none = 4;
  std::size_t turns_in(std::chrono::milliseconds d) {
    const std::size_t before = turns;
    on.run_for(d);
    return turns - before;
  }
};

TEST_P(LoopWheelCosts, NothingArmedIsNoTurn) { EXPECT_LE(turns_in(600ms), none); }

TEST_P(LoopWheelCosts, NothingArmedAnyMoreIsNoTurn) {
  firing a, b;
  wheel.arm(a.t, 20ms);
  wheel.arm(b.t, 40ms);
  a.t.cancel();
  b.t.cancel();
  EXPECT_LE(turns_in(400ms), none);
  {
    firing c;
    wheel.arm(c.t, 20ms);
  }
  EXPECT_LE(turns_in(200ms), none);
  EXPECT_EQ(wheel.stats().visits, 0u);
}

TEST_P(LoopWheelCosts, NothingArmedSinceItFiredIsNoTurn) {
  firing f;
  wheel.arm(f.t, 1ms);
  ASSERT_TRUE(on.run_until([&] { return f.count == 1; }));
  EXPECT_LE(turns_in(400ms), none);
  EXPECT_EQ(wheel.stats().visits, 1u);
}

TEST_P(LoopWheelCosts, AThousandTimersInAMinuteAreNoTurnNow) {
  std::deque<firing> all(1'000);
  for (firing& f : all) wheel.arm(f.t, 60s);
  EXPECT_LE(turns_in(10s), none);
  EXPECT_EQ(wheel.stats().visits, 0u);
}

TEST_P(LoopWheelCosts, ATimerManyLapsAheadIsNoTurnNow) {
  // A lap is 5.12 s; the slots near now are passed in sleep, and so is the timer's own.
  firing next_lap, far, never;
  loop_wheel small{on, {.tick = 10ms, .slots = 8, .refresh = GetParam()}};
  small.arm(next_lap.t, 60s);
  small.arm(far.t, 24h);
  small.arm(never.t, timespan::max());
  EXPECT_LE(turns_in(600ms), none);
  EXPECT_EQ(small.stats().visits, 0u);
}

TEST_P(LoopWheelCosts, OneTimerIsOneVisitHoweverManyTicksItWaits) {
  firing f;
  wheel.arm(f.t, 300ms);
  ASSERT_TRUE(on.run_until([&] { return f.count == 1; }));
  EXPECT_EQ(wheel.stats().visits, 1u);
  EXPECT_EQ(wheel.stats().turns, 1u);
}

TEST_P(LoopWheelCosts, ARefreshedConnectionIsOneVisitATimeoutAtMost) {
  constexpr auto limit = 120ms;
  firing f;
  const instant begun = clock_now();
  wheel.arm(f.t, limit);
  int rounds = 0;
  loop_timer reads{on, 10ms, 10ms, [&] {
                     wheel.refresh(f.t);
                     if (++rounds == 60) uv_stop(on);
                   }};
  on.run();
  reads.stop();
  const auto passed = clock_now() - begun;
  EXPECT_LE(wheel.stats().visits, static_cast<std::uint64_t>(passed / limit) + 1);
}

TEST_P(LoopWheelCosts, AnIdleConnectionWithAllItsLimitsIsOneVisitALimit) {
  struct closer final : timeout_handler {
    verdict on_timeout(const expiry&) noexcept override {
      ++asked;
      return verdict::close();
    }
    int asked = 0;
  } handler;
  const timeout_policy policy{.idle = 100ms, .read_idle = 1h};
  connection_reaper reaper{wheel};
  connection_timeouts timeouts{reaper, policy, {}, handler};
  EXPECT_LE(turns_in(500ms), none + 4);
  EXPECT_EQ(handler.asked, 1);
  EXPECT_LE(wheel.stats().visits, 2u);
}

TEST_P(LoopWheelCosts, ATickOfAFractionOfAMillisecondIsOneVisitToo) {
  for (const std::chrono::nanoseconds tick : {1'500'001ns, 2'333'333ns, 1'000'001ns}) {
    loop_wheel odd{on, {.tick = tick, .refresh = GetParam()}};
    for (int i = 0; i != 10; ++i) {
      firing f;
      const std::uint64_t before = odd.stats().visits;
      const instant armed = clock_now();
      odd.arm(f.t, 7ms);
      ASSERT_TRUE(on.run_until([&] { return f.count == 1; }));
      EXPECT_EQ(odd.stats().visits - before, 1u);
      EXPECT_GE(f.at - armed, 7ms);
    }
  }
}

TEST_P(LoopWheelCosts, WithNothingArmedNoHandleIsActive) {
  const auto active = [this] {
    std::size_t n = 0;
    uv_walk(
        on,
        [](uv_handle_t* h, void* seen) {
          if (uv_is_active(h) && !uv_is_closing(h) && !uv_has_ref(h))
            ++*static_cast<std::size_t*>(seen);
        },
        &n);
    return n;
  };
  const std::size_t ours = active();  // the prepare that counts
  firing f;
  wheel.arm(f.t, 1h);
  EXPECT_GT(active(), ours);
  f.t.cancel();
  EXPECT_EQ(active(), ours);
  wheel.arm(f.t, 1ms);
  ASSERT_TRUE(on.run_until([&] { return f.count == 1; }));
  on.run_for(1ms);
  EXPECT_EQ(active(), ours);
}

TEST_P(LoopWheelCosts, AReferenceOfAnEmptyWheelIsNoTurn) {
  wheel.ref();
  EXPECT_LE(turns_in(300ms), none);
}

IDLEWHEEL_IN_BOTH_MODES(LoopWheelCosts);

// The budget -------------------------------------------------------------------------------------

class LoopWheelBudget : public ByMode {
 protected:
  loop on;
  std::size_t turn = 0;
  each_prepare count{on, [this] { ++turn; }};

  struct storm {
    std::size_t fired = 0, in_this_turn = 0, most = 0, in_turn = 0, turns_with_some = 0;
    std::size_t twice = 0;
  } storm;
  struct leaf {
    LoopWheelBudget* test;
    bool fired = false;
    timer t{[this] { test->note(*this); }};
    explicit leaf(LoopWheelBudget* owner) : test{owner} {}
  };

  void note(leaf& l) {
    storm.twice += l.fired;
    l.fired = true;
    if (storm.in_turn != turn) {
      storm.in_turn = turn;
      storm.in_this_turn = 0;
      ++storm.turns_with_some;
    }
    ++storm.fired;
    storm.most = std::max(storm.most, ++storm.in_this_turn);
  }

  void run(std::size_t n, std::size_t budget) {
    storm = {};
    loop_wheel wheel{on, {.tick = 1ms, .slots = 16'384, .refresh = GetParam(), .budget = budget}};
    // A socket that is readable before every poll: its peer speaks whenever it has been read.
    std::size_t served_between = 0, served_in = 0;
    endpoint* self = nullptr;
    endpoint busy{on, transport::poll, [&](std::size_t) {
                    if (served_in != turn && storm.fired != 0 && storm.fired != n) ++served_between;
                    served_in = turn;
                    if (storm.fired != n) self->say();
                  }};
    self = &busy;
    busy.say();
    std::deque<leaf> all;
    const instant when = later(wheel.now(), 5ms);
    for (std::size_t i = 0; i != n; ++i) {
      all.emplace_back(this);
      wheel.arm_at(all.back().t, when);
    }
    ASSERT_TRUE(on.run_until([&] { return storm.fired == n; }));
    EXPECT_EQ(storm.twice, 0u);
    EXPECT_LE(storm.most, budget);
    EXPECT_EQ(wheel.wheel().size(), 0u);
    const std::size_t batches = (n + budget - 1) / budget;
    EXPECT_GE(storm.turns_with_some, batches);
    EXPECT_LE(wheel.stats().turns, batches + 1);
    EXPECT_LE(wheel.stats().budget_hits, batches);
    EXPECT_GE(served_between + 1, batches - 1) << "the socket waited for more than one batch";
    for (const leaf& l : all) EXPECT_TRUE(l.fired);
  }
};

TEST_P(LoopWheelBudget, IsKeptInEachTurnWithIoBetween) {
  run(1'000, 10);
  run(1'001, 10);
  run(999, 1'000);
  run(64, 1);
}

TEST_P(LoopWheelBudget, TheDefaultIs256) {
  run(1, 256);
  loop_wheel wheel{on, {.tick = 1ms, .slots = 16'384, .refresh = GetParam()}};
  std::deque<leaf> all;
  storm = {};
  const instant when = later(wheel.now(), 20ms);
  for (std::size_t i = 0; i != 600; ++i) {
    all.emplace_back(this);
    wheel.arm_at(all.back().t, when);
  }
  ASSERT_TRUE(on.run_until([&] { return storm.fired == 600; }));
  EXPECT_EQ(storm.most, 256u);
}

// Six timers late together, one to be met a turn; what the tests below do, they do between two of
// these turns.
class LoopWheelLeftovers : public ByMode {
 protected:
  loop on;
  loop_wheel wheel{on, {.tick = 1ms, .refresh = GetParam(), .budget = 1}};
  std::deque<firing> all = std::deque<firing>(6);
  int fired = 0;

  void SetUp() override {
    for (firing& f : all) {
      f.then = [this] { ++fired; };
      wheel.arm_at(f.t, instant{});
    }
  }
  void when_fired(int n, const std::function<void()>& act) {
    ASSERT_TRUE(on.run_until([&] {
      if (fired != n) return false;
      act();
      return true;
    }));
  }
  std::vector<firing*> left() {
    std::vector<firing*> armed;
    for (firing& f : all)
      if (f.t.armed()) armed.push_back(&f);
    return armed;
  }
};

TEST_P(LoopWheelLeftovers, AreCancelledOrMovedLikeAnyTimer) {
  firing* cancelled = nullptr;
  firing* moved = nullptr;
  instant since{};
  when_fired(2, [&] {
    ASSERT_EQ(left().size(), 4u);
    cancelled = left()[0];
    moved = left()[1];
    EXPECT_TRUE(cancelled->t.cancel());
    EXPECT_FALSE(cancelled->t.cancel());
    since = wheel.now();
    EXPECT_TRUE(wheel.arm(moved->t, 30ms));
  });
  ASSERT_TRUE(on.run_until([&] { return fired == 5; }));
  EXPECT_EQ(cancelled->count, 0);
  EXPECT_EQ(moved->count, 1);
  EXPECT_GE(moved->at - since, 30ms);
}

TEST_P(LoopWheelLeftovers, DoNotHideWhatIsArmedMeanwhile) {
  firing extra;
  instant since{};
  when_fired(2, [&] {
    since = clock_now();
    wheel.arm(extra.t, 10ms);
  });
  ASSERT_TRUE(on.run_until([&] { return extra.count == 1 && fired == 6; }));
  EXPECT_GE(extra.at - since, 10ms);
}

TEST_P(LoopWheelLeftovers, AreDestroyedWithTheirOwners) {
  when_fired(2, [&] { all.clear(); });
  on.run_for(20ms);
  EXPECT_EQ(fired, 2);
  EXPECT_EQ(wheel.wheel().size(), 0u);
}

TEST_P(LoopWheelLeftovers, NeverFireOnceTheWheelIsClosed) {
  when_fired(2, [&] { wheel.close(); });
  on.run_for(20ms);
  EXPECT_EQ(fired, 2);
  EXPECT_TRUE(left().empty());
}

TEST_P(LoopWheelLeftovers, AllCancelledLeaveTheLoopAsleep) {
  sleeper alive{on};
  when_fired(2, [&] {
    for (firing& f : all) f.t.cancel();
  });
  std::size_t turns = 0;
  each_prepare count{on, [&turns] { ++turns; }};
  on.run_for(300ms);
  EXPECT_LE(turns, 4u);
  EXPECT_EQ(fired, 2);
  // And it wakes up again for what comes next.
  firing next;
  wheel.arm(next.t, 5ms);
  ASSERT_TRUE(on.run_until([&] { return next.count == 1; }));
}

TEST_P(LoopWheelLeftovers, AllCancelledDoNotKeepAReferencedLoop) {
  wheel.ref();
  when_fired(2, [&] {
    for (firing& f : all) f.t.cancel();
  });
  on.run();
  EXPECT_EQ(fired, 2);
}

IDLEWHEEL_IN_BOTH_MODES(LoopWheelLeftovers);

IDLEWHEEL_IN_BOTH_MODES(LoopWheelBudget);

}  // namespace
}  // namespace idlewheel::uv_tests
