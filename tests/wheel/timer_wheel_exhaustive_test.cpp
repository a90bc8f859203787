// timer_wheel_exhaustive_test.cpp - small rings, every case there is.
//
// Every now and delay over two laps of rings of 1 to 16 slots, pumped tick by tick, by every stride
// and in one jump; every refresh at every moment; every pair and triple of deadlines. What has to
// happen is known by formula: the first call at or after the deadline fires.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "idlewheel/wheel/timer_wheel.hpp"
#include "tests/wheel/fixtures.hpp"

namespace idlewheel {
namespace {

class SmallRings : public ::testing::TestWithParam<std::tuple<std::size_t, refresh_mode>> {
 protected:
  const std::size_t slots = std::get<0>(GetParam());
  const tick lap = slots;
  const refresh_mode mode = std::get<1>(GetParam());

  wheel_options at(tick start) const { return {.slots = slots, .refresh = mode, .start = start}; }

  // The first now of a pump of this stride that has reached the deadline.
  static tick first_reaching(tick start, tick deadline, tick stride) {
    return start + (deadline - start + stride - 1) / stride * stride;
  }
};

// More cases a size, so fewer sizes.
class SmallerRings : public SmallRings {};
class SmallestRings : public SmallRings {};

TEST_P(SmallRings, EveryNowAndDelayByEveryStride) {
  std::size_t cases = 0;
  for (tick now = 0; now <= 2 * lap; ++now)
    for (tick delay = 0; delay <= 2 * lap + 1; ++delay)
      for (tick stride = 1; stride <= 2 * lap + 1; ++stride) {
        const tick deadline = now + std::max<tick>(delay, 1);
        timer_wheel wheel{at(now)};
        int fires = 0;
        timer t{[&fires] { ++fires; }};
        wheel.arm(t, now + delay);
        const tick expected = first_reaching(now, deadline, stride);
        for (tick pumped = now + stride; pumped <= expected + 2 * lap; pumped += stride) {
          const progress done = wheel.advance(pumped, plenty);
          ASSERT_FALSE(done.more);
          ASSERT_EQ(fires, pumped >= expected)
              << "now " << now << ", delay " << delay << ", stride " << stride << ", at " << pumped;
        }
        ASSERT_TRUE(wheel.check_invariants());
        ++cases;
      }
  EXPECT_EQ(cases, (2 * lap + 1) * (2 * lap + 2) * (2 * lap + 1));
}

TEST_P(SmallRings, EveryNowAndDelayWhenTheWheelHasTurnedToThere) {
  // As above, but `now` is reached by turning, and the visits are those that the wheel asks for.
  for (tick now = 0; now <= 2 * lap; ++now)
    for (tick delay = 1; delay <= 2 * lap + 1; ++delay) {
      timer_wheel wheel{at(0)};
      timer other{[] {}};
      wheel.arm(other, now + 1);
      wheel.advance(now, plenty);
      other.cancel();
      int fires = 0;
      timer t{[&fires] { ++fires; }};
      wheel.arm(t, now + delay);
      ASSERT_EQ(visit(wheel, now + delay - 1), 0u) << now << ' ' << delay;
      ASSERT_EQ(fires, 0);
      ASSERT_EQ(visit(wheel, now + delay), 1u);
      ASSERT_EQ(fires, 1);
    }
}

TEST_P(SmallRings, EveryDeadlineInOneJump) {
  for (tick now = 0; now <= lap; ++now)
    for (tick deadline = now + 1; deadline <= now + 4 * lap + 1; ++deadline)
      for (tick to = now; to <= now + 5 * lap + 1; ++to) {
        timer_wheel wheel{at(now)};
        int fires = 0;
        timer t{[&fires] { ++fires; }};
        wheel.arm(t, deadline);
        const progress done = wheel.advance(to, plenty);
        ASSERT_FALSE(done.more);
        ASSERT_EQ(fires, to >= deadline) << now << ' ' << deadline << ' ' << to;
        ASSERT_EQ(wheel.next_visit(),
                  to >= deadline ? std::nullopt : std::optional<tick>{deadline});
        ASSERT_TRUE(slots > 8 || wheel.check_invariants());
        wheel.advance(deadline, plenty);
        ASSERT_EQ(fires, 1);
      }
}

TEST_P(SmallerRings, EveryRefreshAtEveryMoment) {
  for (tick deadline = 1; deadline <= 2 * lap + 1; ++deadline)
    for (tick when = 0; when < deadline; ++when)
      for (tick to = 0; to <= deadline + 2 * lap + 1; ++to)
        for (const bool tick_by_tick : {true, false}) {
          timer_wheel wheel{at(0)};
          int fires = 0;
          timer t{[&fires] { ++fires; }};
          wheel.arm(t, deadline);
          wheel.advance(when, plenty);
          ASSERT_TRUE(wheel.refresh(t, to));
          const tick due = std::max(to, when + 1);
          ASSERT_EQ(t.deadline(), due);
          ASSERT_TRUE(wheel.check_invariants());
          ASSERT_LE(*wheel.next_visit(), due);
          if (tick_by_tick) {
            for (tick now = when + 1; now < due; ++now) wheel.advance(now, plenty);
          } else {
            wheel.advance(due - 1, plenty);
          }
          ASSERT_EQ(fires, 0) << deadline << " at " << when << " to " << to;
          wheel.advance(due, plenty);
          ASSERT_EQ(fires, 1) << deadline << " at " << when << " to " << to;
          ASSERT_EQ(wheel.size(), 0u);
        }
}

TEST_P(SmallerRings, EveryRefreshOfOneSetAside) {
  for (tick deadline = 1; deadline <= 2 * lap + 1; ++deadline)
    for (tick now = deadline; now <= 3 * lap + 2; ++now)
      for (tick to = 0; to <= now + 2 * lap + 1; ++to)
        for (std::size_t budget = 0; budget <= 3; ++budget) {
          timer_wheel wheel{at(0)};
          int fires = 0, other_fires = 0;
          timer first{[&other_fires] { ++other_fires; }}, t{[&fires] { ++fires; }};
          wheel.arm(first, deadline);
          wheel.arm(t, deadline);
          wheel.advance(now, budget);
          if (!t.armed()) continue;
          ASSERT_TRUE(wheel.refresh(t, to));
          const tick due = std::max(to, now + 1);
          ASSERT_TRUE(wheel.check_invariants());
          ASSERT_FALSE(wheel.advance(now, plenty).more);
          ASSERT_EQ(other_fires, 1);
          wheel.advance(due - 1, plenty);
          ASSERT_EQ(fires, 0) << deadline << " at " << now << " to " << to;
          wheel.advance(due, plenty);
          ASSERT_EQ(fires, 1) << deadline << " at " << now << " to " << to;
        }
}

TEST_P(SmallRings, EveryPairInEveryJump) {
  const tick most = std::min<tick>(3 * lap + 1, 26);
  for (tick first = 1; first <= most; ++first)
    for (tick second = 1; second <= most; ++second)
      for (tick to = 1; to <= most; ++to) {
        timer_wheel wheel{at(0)};
        std::vector<tick> fired;
        dated a{fired, first}, b{fired, second};
        wheel.arm(a.t, first);
        wheel.arm(b.t, second);
        wheel.advance(to, plenty);
        ASSERT_EQ(fired.size(), (first <= to ? 1u : 0u) + (second <= to ? 1u : 0u));
        wheel.advance(most, plenty);
        ASSERT_EQ(fired, (std::vector{std::min(first, second), std::max(first, second)})) << to;
      }
}

TEST_P(SmallestRings, EveryTripleInOneJumpByEveryBudget) {
  const tick most = 10;
  for (tick first = 1; first <= most; ++first)
    for (tick second = 1; second <= most; ++second)
      for (tick third = 1; third <= most; ++third)
        for (std::size_t budget = 1; budget <= 3; ++budget) {
          timer_wheel wheel{at(0)};
          std::vector<tick> fired;
          dated timers[] = {{fired, first}, {fired, second}, {fired, third}};
          for (dated& d : timers) wheel.arm(d.t, d.due);
          int calls = 1;
          while (wheel.advance(most, budget).more) ASSERT_LT(++calls, 50);
          std::vector<tick> sorted{first, second, third};
          std::ranges::sort(sorted);
          ASSERT_EQ(fired, sorted) << "budget " << budget;
        }
}

std::string name_of(
    const ::testing::TestParamInfo<std::tuple<std::size_t, refresh_mode>>& instance) {
  return std::to_string(std::get<0>(instance.param)) + "Slots_" +
         to_string(std::get<1>(instance.param));
}
INSTANTIATE_TEST_SUITE_P(Sizes, SmallRings,
                         ::testing::Combine(::testing::Values(1u, 2u, 4u, 8u, 16u), both_modes),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Sizes, SmallerRings,
                         ::testing::Combine(::testing::Values(1u, 2u, 4u, 8u), both_modes),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Sizes, SmallestRings,
                         ::testing::Combine(::testing::Values(1u, 2u, 4u), both_modes), name_of);

}  // namespace
}  // namespace idlewheel
