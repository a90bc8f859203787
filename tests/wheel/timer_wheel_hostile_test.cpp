// timer_wheel_hostile_test.cpp - callbacks that do to the wheel what they please.
//
// Each scenario runs as an ordinary tick, as a jump of more than a lap (the timers then wait in the
// queue that sorts them), and both with a budget of one. Which of several timers of one tick runs
// first is not promised, so each does the same thing to its neighbours, and what has to hold is
// said without an order. To be run under AddressSanitizer.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "idlewheel/wheel/timer_wheel.hpp"
#include "tests/wheel/fixtures.hpp"

namespace idlewheel {
namespace {

enum class way { tick_by_tick, tick_budget_of_one, jump, jump_budget_of_one };
const char* to_string(way w) {
  switch (w) {
    case way::tick_by_tick:
      return "TickByTick";
    case way::tick_budget_of_one:
      return "TickByTickBudgetOfOne";
    case way::jump:
      return "Jump";
    case way::jump_budget_of_one:
      return "JumpBudgetOfOne";
  }
  return "";
}
void PrintTo(way w, std::ostream* out) { *out << to_string(w); }

class HostileCallbacks : public ::testing::TestWithParam<std::tuple<refresh_mode, way>> {
 public:
  static constexpr std::size_t slots = 8;
  static constexpr tick due = 20;  // a jump to here is more than two laps

  // A timer that may be destroyed at any time, with what it does when it fires.
  struct victim {
    explicit victim(HostileCallbacks& owner, std::size_t index) : test{&owner}, id{index} {}
    HostileCallbacks* test;
    std::size_t id;
    timer t{[this] { test->fire(id); }};
  };

  HostileCallbacks() { wheel.emplace(options()); }

  wheel_options options() const {
    return {.slots = slots, .refresh = std::get<0>(GetParam()), .start = 0};
  }
  bool small_budget() const {
    return std::get<1>(GetParam()) == way::tick_budget_of_one ||
           std::get<1>(GetParam()) == way::jump_budget_of_one;
  }
  bool jumps() const {
    return std::get<1>(GetParam()) == way::jump ||
           std::get<1>(GetParam()) == way::jump_budget_of_one;
  }

  // Lets time pass to `to`, in the way of this instance.
  void go(tick to) {
    while (wheel && wheel->now() < to) {
      const tick now = jumps() ? to : wheel->now() + 1;
      for (int calls = 0;; ++calls) {
        ASSERT_LT(calls, 100'000) << "a pass does not end";
        const progress done = wheel->advance(now, small_budget() ? 1 : plenty);
        if (!wheel) return;
        ASSERT_TRUE(wheel->check_invariants());
        ASSERT_EQ(wheel->now(), now);
        if (!done.more) break;
        ASSERT_TRUE(small_budget());
      }
    }
  }

  // n victims due at the given tick; `act` is told which one fired.
  void arm(std::size_t n, tick deadline = due) {
    for (std::size_t i = 0; i < n; ++i) {
      victims.push_back(std::make_unique<victim>(*this, victims.size()));
      runs.push_back(0);
      wheel->arm(victims.back()->t, deadline);
    }
  }

  void fire(std::size_t id) {
    ++runs[id];
    ASSERT_FALSE(armed(id));
    if (act) act(id);
    ASSERT_TRUE(!wheel || wheel->check_invariants());
  }

  timer& of(std::size_t id) { return victims[id]->t; }
  bool armed(std::size_t id) { return victims[id] && victims[id]->t.armed(); }
  std::size_t total_runs() const {
    std::size_t sum = 0;
    for (const auto n : runs) sum += n;
    return sum;
  }

  std::optional<timer_wheel> wheel;
  std::vector<std::unique_ptr<victim>> victims;
  std::vector<std::size_t> runs;
  std::function<void(std::size_t)> act;
};

// ---- to itself

TEST_P(HostileCallbacks, CancelsItself) {
  arm(3);
  act = [&](std::size_t id) {
    EXPECT_FALSE(of(id).cancel());
    EXPECT_FALSE(wheel->cancel(of(id)));
  };
  go(due + 40);
  EXPECT_EQ(runs, (std::vector<std::size_t>{1, 1, 1}));
  EXPECT_EQ(wheel->size(), 0u);
}

TEST_P(HostileCallbacks, RefreshesItself) {
  arm(3);
  act = [&](std::size_t id) {
    EXPECT_FALSE(wheel->refresh(of(id), wheel->now()));
    EXPECT_FALSE(wheel->refresh(of(id), due + 5));
  };
  go(due + 40);
  EXPECT_EQ(total_runs(), 3u);
}

TEST_P(HostileCallbacks, RearmsItselfAtZero) {
  arm(3);
  std::vector<tick> when;
  act = [&](std::size_t id) {
    when.push_back(wheel->now());
    if (runs[id] == 5) return;
    wheel->arm(of(id), 0);
    EXPECT_EQ(of(id).deadline(), wheel->now() + 1);
  };
  go(due);
  EXPECT_EQ(total_runs(), 3u) << "once in a pass";
  for (tick now = due + 1; now <= due + 10; ++now) go(now);
  EXPECT_EQ(runs, (std::vector<std::size_t>{5, 5, 5}));
  for (std::size_t i = 0; i < when.size(); ++i) EXPECT_EQ(when[i], due + i / 3);
}

TEST_P(HostileCallbacks, RearmsItselfAtEachDistance) {
  for (const tick distance : {1u, 7u, 8u, 9u, 16u, 17u, 100u}) {
    wheel.emplace(options());
    victims.clear();
    runs.clear();
    arm(2);
    act = [&](std::size_t id) { wheel->arm(of(id), wheel->now() + distance); };
    go(due);
    ASSERT_EQ(total_runs(), 2u) << distance;
    for (tick lap = 1; lap <= 3; ++lap) {
      for (tick now = due + (lap - 1) * distance + 1; now < due + lap * distance; ++now) go(now);
      ASSERT_EQ(total_runs(), 2 * lap) << distance;
      go(due + lap * distance);
      ASSERT_EQ(total_runs(), 2 * (lap + 1)) << distance;
    }
  }
}

TEST_P(HostileCallbacks, DestroysItself) {
  arm(4);
  act = [&](std::size_t id) { victims[id].reset(); };
  go(due + 40);
  EXPECT_EQ(total_runs(), 4u);
  EXPECT_EQ(wheel->size(), 0u);
}

TEST_P(HostileCallbacks, UsesWhatItCapturedAfterDestroyingItself) {
  // The callback lives in the timer that it destroys: it has to run from elsewhere.
  struct {
    std::unique_ptr<timer> self;
    std::vector<int> after;
  } s;
  s.self = std::make_unique<timer>([&s] {
    s.self.reset();
    s.after.push_back(7);
  });
  wheel->arm(*s.self, due);
  go(due);
  EXPECT_EQ(s.after, std::vector{7});
}

TEST_P(HostileCallbacks, DestroysItselfAndIsBornAgainInTheSamePlace) {
  struct reborn {
    HostileCallbacks* test;
    std::optional<timer> place;
    int fires = 0;
    void birth(tick deadline) {
      place.emplace([this] {
        if (++fires < 3) birth(test->wheel->now() + 1);
      });
      test->wheel->arm(*place, deadline);
    }
  } one{this, {}}, two{this, {}};
  one.birth(due);
  two.birth(due);
  for (tick now : {due, due + 1, due + 2, due + 3, due + 30}) go(now);
  EXPECT_EQ(one.fires, 3);
  EXPECT_EQ(two.fires, 3);
}

// ---- to its neighbours

enum class deed {
  cancel,
  destroy,
  refresh_later,
  refresh_a_lap,
  refresh_to_zero,
  arm_again,
  arm_at_zero,
  arm_elsewhere
};
struct named_deed {
  deed what;
  const char* name;
} const deeds[] = {{deed::cancel, "cancel"},
                   {deed::destroy, "destroy"},
                   {deed::refresh_later, "refresh later"},
                   {deed::refresh_a_lap, "refresh by a lap"},
                   {deed::refresh_to_zero, "refresh to zero"},
                   {deed::arm_again, "arm again"},
                   {deed::arm_at_zero, "arm at zero"},
                   {deed::arm_elsewhere, "arm on another wheel"}};

// What is done to a neighbour that waits beside the one that runs, is done: it does not run in this
// pass, and runs when its new deadline comes, if it has one.
TEST_P(HostileCallbacks, DoesEachThingToEachNeighbour) {
  constexpr std::size_t count = 5;
  for (const auto& deed_done : deeds)
    for (const std::size_t offset : {1u, 2u, 4u})  // next, further, previous
      for (const bool others_too : {false, true}) {
        SCOPED_TRACE(::testing::Message() << deed_done.name << " of neighbour " << offset
                                          << (others_too ? " and all others" : ""));
        timer_wheel other{{.slots = 4}};
        wheel.emplace(options());
        victims.clear();
        runs.clear();
        arm(count);
        std::vector<bool> touched(count, false);
        std::size_t changed = 0;  // timers that were armed when the deed was done
        const auto do_to = [&](std::size_t id) {
          if (!victims[id]) return;
          const bool was_armed = of(id).armed();
          if (!was_armed || touched[id]) return;
          touched[id] = true;
          ++changed;
          switch (deed_done.what) {
            case deed::cancel:
              EXPECT_TRUE(of(id).cancel());
              break;
            case deed::destroy:
              victims[id].reset();
              break;
            case deed::refresh_later:
              EXPECT_TRUE(wheel->refresh(of(id), due + 3));
              break;
            case deed::refresh_a_lap:
              EXPECT_TRUE(wheel->refresh(of(id), due + slots));
              break;
            case deed::refresh_to_zero:
              EXPECT_TRUE(wheel->refresh(of(id), 0));
              break;
            case deed::arm_again:
              wheel->arm(of(id), due + 2 * slots);
              break;
            case deed::arm_at_zero:
              wheel->arm(of(id), 0);
              break;
            case deed::arm_elsewhere:
              other.arm(of(id), due);
              break;
          }
        };
        act = [&](std::size_t id) {
          if (wheel->now() != due) return;
          for (std::size_t i = 0; i < (others_too ? count : 1); ++i)
            do_to((id + offset + i) % count);
        };
        go(due);
        ASSERT_GT(changed, 0u);
        for (std::size_t id = 0; id < count; ++id) ASSERT_EQ(runs[id], touched[id] ? 0u : 1u) << id;
        const bool lives_here = deed_done.what != deed::cancel && deed_done.what != deed::destroy &&
                                deed_done.what != deed::arm_elsewhere;
        ASSERT_EQ(wheel->size(), lives_here ? changed : 0u);
        ASSERT_EQ(other.size(), deed_done.what == deed::arm_elsewhere ? changed : 0u);

        const tick wakes = deed_done.what == deed::refresh_later   ? due + 3
                           : deed_done.what == deed::refresh_a_lap ? due + slots
                           : deed_done.what == deed::arm_again     ? due + 2 * slots
                                                                   : due + 1;
        if (wakes > due + 1) go(wakes - 1);
        ASSERT_EQ(total_runs(), count - changed);
        go(wakes);
        ASSERT_EQ(total_runs(), lives_here ? count : count - changed);
        other.advance(due, plenty);
        ASSERT_EQ(total_runs(),
                  lives_here || deed_done.what == deed::arm_elsewhere ? count : count - changed);
        go(due + 100);
        for (std::size_t id = 0; id < count; ++id) ASSERT_LE(runs[id], 1u);
      }
}

TEST_P(HostileCallbacks, StopsANeighbourTwiceRearmsItAndStopsItAgain) {
  arm(3);
  std::optional<std::size_t> stopped;
  act = [&](std::size_t id) {
    if (stopped) return;
    const std::size_t other = (id + 1) % 3;
    stopped = other;
    EXPECT_TRUE(of(other).cancel());
    EXPECT_FALSE(of(other).cancel());
    wheel->arm(of(other), wheel->now() + 100);
    EXPECT_TRUE(of(other).cancel());
    EXPECT_FALSE(of(other).cancel());
  };
  go(due + 200);
  EXPECT_EQ(total_runs(), 2u);
  EXPECT_EQ(runs[*stopped], 0u);
  EXPECT_EQ(wheel->size(), 0u);
}

TEST_P(HostileCallbacks, DestroysNeighboursThatAreNotDue) {
  arm(2);               // 0, 1
  arm(3, due + slots);  // 2..4: the same slot, a lap ahead
  arm(3, due + 1);      // 5..7: the next slot
  arm(1, due + 40);     // 8
  act = [&](std::size_t id) {
    if (id > 1) return;
    for (const std::size_t other : {2u, 4u, 5u, 7u}) victims[other].reset();
  };
  go(due + 100);
  EXPECT_EQ(runs, (std::vector<std::size_t>{1, 1, 0, 1, 0, 0, 1, 0, 1}));
  EXPECT_EQ(wheel->size(), 0u);
}

TEST_P(HostileCallbacks, DestroysOthersThatAreDueInOtherTicksOfTheJump) {
  arm(2);           // 0, 1
  arm(2, due + 1);  // 2, 3
  arm(2, due + 9);  // 4, 5
  act = [&](std::size_t id) {
    if (id == 0) victims[2].reset();
    if (id == 1) victims[4].reset();
  };
  go(due + 50);
  EXPECT_EQ(runs, (std::vector<std::size_t>{1, 1, 0, 1, 0, 1}));
}

TEST_P(HostileCallbacks, CancelsAllFromWithin) {
  arm(5);
  arm(3, due + 8);
  arm(3, 1000);
  act = [&](std::size_t) {
    wheel->cancel_all();
    EXPECT_EQ(wheel->size(), 0u);
    EXPECT_EQ(wheel->next_visit(), std::nullopt);
    for (std::size_t i = 0; i < victims.size(); ++i) EXPECT_FALSE(armed(i));
  };
  go(due + 50);
  EXPECT_EQ(total_runs(), 1u);
  for (std::size_t i = 0; i < victims.size(); ++i) wheel->arm(of(i), due + 60);
  act = nullptr;
  go(due + 60);
  EXPECT_EQ(total_runs(), 1u + victims.size());
}

TEST_P(HostileCallbacks, CancelsAllAndArmsAllAgainAtZero) {
  arm(6);
  act = [&](std::size_t) {
    if (wheel->now() != due) return;
    wheel->cancel_all();
    for (std::size_t i = 0; i < victims.size(); ++i) wheel->arm(of(i), 0);
  };
  go(due);
  EXPECT_EQ(total_runs(), 1u);
  EXPECT_EQ(wheel->size(), 6u);
  go(due + 1);
  EXPECT_EQ(total_runs(), 7u);
}

TEST_P(HostileCallbacks, ArmsOthersInTheSameSlot) {
  arm(2);
  arm(20, 5000);
  std::size_t next = 2;
  act = [&](std::size_t id) {
    if (id > 1) return;
    for (tick lap = 1; lap <= 10; ++lap) wheel->arm(of(next++), due + lap * slots);
  };
  go(due);
  EXPECT_EQ(total_runs(), 2u);
  for (tick lap = 1; lap <= 10; ++lap) {
    go(due + lap * slots - 1);
    EXPECT_EQ(total_runs(), 2 * lap);
    go(due + lap * slots);
    EXPECT_EQ(total_runs(), 2 * lap + 2);
  }
}

TEST_P(HostileCallbacks, NestedAdvanceIsRefused) {
  arm(3);
  arm(1, due + 5);
  std::size_t nested = 0;
  act = [&](std::size_t id) {
    if (id > 2) return;
    for (const tick now : {tick{0}, due, due + 5, due + 1000, never}) {
      const progress done = wheel->advance(now);
      EXPECT_EQ(done.fired, 0u);
      EXPECT_TRUE(done.more);
      EXPECT_EQ(wheel->now(), due);
      ++nested;
    }
  };
  go(due);
  EXPECT_EQ(nested, 15u);
  EXPECT_EQ(runs, (std::vector<std::size_t>{1, 1, 1, 0}));
  go(due + 5);
  EXPECT_EQ(total_runs(), 4u);
}

TEST_P(HostileCallbacks, CancelsAnotherAroundARefusedAdvance) {
  arm(3);
  bool first = true;
  act = [&](std::size_t id) {
    if (!first) return;
    first = false;
    wheel->advance(due);
    EXPECT_TRUE(of((id + 2) % 3).cancel());
  };
  go(due + 10);
  EXPECT_EQ(total_runs(), 2u);
}

TEST_P(HostileCallbacks, AsksForTheNextVisitAndTheSize) {
  arm(4);
  std::size_t left = 4;
  act = [&](std::size_t) {
    EXPECT_EQ(wheel->size(), --left);
    EXPECT_EQ(wheel->next_visit(), left == 0 ? std::nullopt : std::optional{due});
  };
  go(due);
  EXPECT_EQ(left, 0u);
}

// ---- to the wheel

TEST_P(HostileCallbacks, DestroysTheWheel) {
  arm(4);
  arm(2, due + 8);
  arm(2, due + 1);
  act = [&](std::size_t) { wheel.reset(); };
  go(due + 50);
  EXPECT_FALSE(wheel);
  EXPECT_EQ(total_runs(), 1u);
  for (std::size_t i = 0; i < victims.size(); ++i) EXPECT_FALSE(armed(i));
}

TEST_P(HostileCallbacks, DestroysTheWheelAndEveryTimer) {
  arm(4);
  arm(2, due + 8);
  act = [&](std::size_t id) {
    for (auto& v : victims)
      if (id % 2 == 0) v.reset();  // before the wheel, or after it
    wheel.reset();
    for (auto& v : victims) v.reset();
  };
  go(due + 50);
  EXPECT_EQ(total_runs(), 1u);
}

TEST_P(HostileCallbacks, ReplacesTheWheelByANewOneInTheSamePlace) {
  arm(4);
  act = [&](std::size_t id) {
    if (total_runs() > 1) return;
    wheel.emplace(options());
    wheel->arm(of(id), 3);
    wheel->arm(of((id + 1) % 4), 3);
  };
  if (!jumps()) wheel->advance(due - 1, plenty);
  while (total_runs() == 0) wheel->advance(due, small_budget() ? 1 : plenty);
  EXPECT_EQ(total_runs(), 1u);
  EXPECT_EQ(wheel->now(), 0u);
  EXPECT_EQ(wheel->size(), 2u);
  go(3);
  EXPECT_EQ(total_runs(), 3u);
}

TEST_P(HostileCallbacks, DestroysTheWheelFromAnotherWheelsCallback) {
  // The outer wheel's callback advances the inner one, whose callback destroys the outer one.
  timer_wheel inner{{.slots = 4}};
  timer destroyer{[this] { wheel.reset(); }};
  inner.arm(destroyer, 1);
  arm(3);
  act = [&](std::size_t) { EXPECT_EQ(inner.advance(1).fired, 1u); };
  go(due + 10);
  EXPECT_FALSE(wheel);
  EXPECT_EQ(total_runs(), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, HostileCallbacks,
    ::testing::Combine(both_modes, ::testing::Values(way::tick_by_tick, way::tick_budget_of_one,
                                                     way::jump, way::jump_budget_of_one)),
    [](const auto& instance) {
      return std::string{to_string(std::get<0>(instance.param))} + '_' +
             to_string(std::get<1>(instance.param));
    });

// ---- ten thousand timers that do random things to each other

struct Riot {
  const char* name;
  std::size_t slots;
  tick stride;
  std::size_t budget;
  tick longest;
};
void PrintTo(const Riot& riot, std::ostream* out) { *out << riot.name; }

class HostileCrowd : public ::testing::TestWithParam<std::tuple<refresh_mode, Riot>> {
 protected:
  struct member {
    HostileCrowd* crowd;
    std::optional<timer> t;
    tick due = 0;  // what the wheel has been told
    bool armed = false;
    void birth() {
      t.emplace([this] { crowd->fired(*this); });
      armed = false;
    }
  };

  static constexpr std::size_t people = 10'000;
  const Riot riot = std::get<1>(GetParam());
  std::mt19937_64 rng{42};
  std::optional<timer_wheel> wheel;
  std::deque<member> members;  // which do not move
  std::size_t fires = 0, wrong = 0, deeds_done = 0;
  tick last_fired = 0;
  bool inside = false;  // a callback

  tick upto(tick n) { return rng() % (n + 1); }
  member& anyone() { return members[upto(members.size() - 1)]; }
  void want(bool held) { wrong += !held; }

  void fired(member& me) {
    ++fires;
    want(me.armed && me.due <= wheel->now() && me.due >= last_fired && !me.t->armed());
    last_fired = me.due;
    me.armed = false;
    inside = true;
    for (auto n = upto(4); n != 0; --n) do_something(upto(5) == 0 ? me : anyone());
    inside = false;
  }

  void arm(member& m) {
    const tick deadline = wheel->now() + upto(riot.longest);
    wheel->arm(*m.t, deadline);
    m.due = std::max(deadline, wheel->now() + 1);
    m.armed = true;
  }

  void do_something(member& m) {
    ++deeds_done;
    switch (upto(9)) {
      case 0:
      case 1:
        want(m.t->cancel() == std::exchange(m.armed, false));
        return;
      case 2:
        m.birth();
        return;
      case 3:
      case 4: {
        const tick deadline = wheel->now() + upto(riot.longest);
        want(wheel->refresh(*m.t, deadline) == m.armed);
        if (m.armed) m.due = std::max(deadline, wheel->now() + 1);
        return;
      }
      case 5:
        if (upto(20'000) == 0) {
          wheel->cancel_all();
          for (member& each : members) each.armed = false;
        }
        return;
      case 6:
        if (inside) want(wheel->advance(wheel->now() + 5).more);
        return;
      default:
        arm(m);
    }
  }
};

TEST_P(HostileCrowd, LosesNothingAndFiresNothingTwice) {
  wheel.emplace(wheel_options{.slots = riot.slots, .refresh = std::get<0>(GetParam())});
  members.resize(people);
  for (member& m : members) {
    m.crowd = this;
    m.birth();
    arm(m);
  }
  tick real = 0;
  for (int turn = 0; turn < 150; ++turn) {
    SCOPED_TRACE(turn);
    real += 1 + upto(riot.stride);
    bool more = wheel->advance(real, riot.budget).more;
    // From outside, between two calls of one pass, too.
    for (int i = 0; i < 50; ++i) do_something(anyone());
    if (turn % 10 == 9)
      while (more) more = wheel->advance(real, riot.budget).more;
    ASSERT_TRUE(wheel->check_invariants());
    ASSERT_EQ(wrong, 0u);
    if (more) continue;
    more = wheel->advance(real, plenty).more;
    ASSERT_FALSE(more);
    for (member& m : members) {
      ASSERT_EQ(m.t->armed(), m.armed);
      ASSERT_EQ(m.t->deadline(), m.armed ? std::optional{m.due} : std::nullopt);
      ASSERT_TRUE(!m.armed || m.due > wheel->now());
    }
  }
  EXPECT_GT(fires, 5000u);
  EXPECT_GT(deeds_done, 10'000u);

  // A last callback takes the wheel down with everything on it.
  timer end{[this] { wheel.reset(); }};
  wheel->arm(end, 0);
  members.resize(people / 2);  // the others die, armed or not
  while (wheel && wheel->advance(wheel->now() + 1, riot.budget).more) {
  }
  EXPECT_FALSE(wheel);
  for (member& m : members) ASSERT_FALSE(m.t->armed());
}

INSTANTIATE_TEST_SUITE_P(
    Riots, HostileCrowd,
    ::testing::Combine(both_modes,
                       ::testing::Values(Riot{"SmallSteps", 64, 2, plenty, 200},
                                         Riot{"Jumps", 16, 200, plenty, 600},
                                         Riot{"SmallBudgets", 64, 3, 200, 300},
                                         Riot{"JumpsInSmallBudgets", 16, 100, 500, 400})),
    [](const auto& instance) {
      return std::string{std::get<1>(instance.param).name} + '_' +
             to_string(std::get<0>(instance.param));
    });

}  // namespace
}  // namespace idlewheel
