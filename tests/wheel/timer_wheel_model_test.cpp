// timer_wheel_model_test.cpp - the wheel against the dullest timer queue there is.
//
// The model is a std::map from timer to deadline. Each step does one random thing to both and wants
// the same answer; then the wheel is asked for its invariants. Time is a number this file holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "idlewheel/wheel/timer_wheel.hpp"
#include "tests/wheel/fixtures.hpp"

namespace idlewheel {
namespace {

struct Mix {
  const char* name;
  std::size_t slots;
  std::size_t timers;
  tick start;
  tick longest;         // delay
  tick stride;          // of an advance
  std::size_t budgets;  // random budgets are below this; every third one is unlimited
  tick spread = 1;      // deadlines are multiples of this: pressure on few slots
  std::size_t must_fire = 150;
};

void PrintTo(const Mix& mix, std::ostream* out) { *out << mix.name; }

const Mix mixes[] = {
    {"WithinOneLap", 64, 64, 0, 40, 3, 8},
    {"ManyLaps", 64, 64, 1000, 2000, 90, 8},
    {"LongSilences", 128, 64, 7, 500, 40'000, 8},
    {"LongSilencesInSmallSteps", 8, 24, 0, 400, 600, 5},  // sorting, interrupted all the time
    {"SameSlotPressure", 16, 64, 0, 40, 20, 6, 16},
    {"SameTickPressure", 64, 64, 0, 1, 2, 4, 32},
    {"OneSlot", 1, 32, 0, 30, 4, 6},
    {"TwoSlots", 2, 32, 0, 30, 9, 6},
    {"OverTwoToThe32", 32, 48, (tick{1} << 32) - 30'000, 100, 20, 8},
    {"NearTheLargestTick", 32, 48, never - 9000, 5000, 200, 8},
    {"AtTheLargestTick", 8, 24, never - 60, 50, 6, 4},
    {"FewTimersLongJumps", 4, 6, 0, 3000, 2500, 4},
};

class WheelAgainstModel
    : public ::testing::TestWithParam<std::tuple<Mix, refresh_mode, std::uint64_t>> {
 protected:
  const Mix mix = std::get<0>(GetParam());
  const refresh_mode mode = std::get<1>(GetParam());
  std::mt19937_64 rng{std::get<2>(GetParam())};

  struct node {
    explicit node(WheelAgainstModel& owner) : test{&owner} {}
    WheelAgainstModel* test;
    timer t{[this] { test->fired.push_back(&t); }};
  };

  std::vector<std::unique_ptr<node>> nodes;
  std::optional<timer_wheel> wheel;
  std::map<const timer*, tick> model;
  std::vector<timer*> fired;
  std::size_t total = 0;
  tick last_fired = 0;  // deadlines never decrease from firing to firing, over all passes
  bool unfinished = false;

  tick upto(tick n) { return rng() % (n + 1); }

  void new_wheel() {
    wheel.emplace(wheel_options{.slots = mix.slots, .refresh = mode, .start = mix.start});
    for (const auto& n : nodes) ASSERT_FALSE(n->t.armed()) << "armed on a wheel that is gone";
    model.clear();
    last_fired = mix.start;
    unfinished = false;
  }

  // Mostly ahead and at times already reached, at a multiple of a lap, or never.
  tick some_deadline() {
    const tick now = wheel->now();
    switch (upto(15)) {
      case 0:
        return now - std::min(now, upto(3));
      case 1:
        return saturated_sum(now, wheel->slots() * upto(4) + upto(2));
      case 2:
        return upto(9) == 0 ? never : saturated_sum(now, mix.longest * 3);
      default: {
        const tick far = saturated_sum(now, 1 + upto(mix.longest));
        return mix.spread == 1 ? far : saturated_sum(far / mix.spread * mix.spread, mix.spread);
      }
    }
  }
  tick kept_as(tick deadline) const { return std::max(deadline, wheel->now() + 1); }

  std::size_t some_budget() { return upto(2) == 0 ? plenty : upto(mix.budgets - 1); }

  void arm(timer& t) {
    const tick deadline = some_deadline();
    wheel->arm(t, deadline);
    model[&t] = kept_as(deadline);
    ASSERT_EQ(t.deadline(), model[&t]);
  }

  void refresh(timer& t) {
    tick deadline = some_deadline();
    if (upto(3) == 0 && t.armed()) {  // earlier than it is
      const tick ahead = *t.deadline() - std::min(*t.deadline(), wheel->now());
      deadline = wheel->now() + upto(std::min(ahead, mix.longest));
    }
    const bool was_armed = model.contains(&t);
    ASSERT_EQ(wheel->refresh(t, deadline), was_armed);
    if (was_armed) model[&t] = kept_as(deadline);
    ASSERT_EQ(t.deadline(), was_armed ? std::optional{model[&t]} : std::nullopt);
  }

  void renew(std::unique_ptr<node>& n) {
    model.erase(&n->t);
    n.reset();
    n = std::make_unique<node>(*this);
    ASSERT_FALSE(n->t.armed());
  }

  void advance() {
    tick now = saturated_sum(wheel->now(), upto(mix.stride));
    if (upto(19) == 0) now -= std::min(now, upto(50));            // steps back
    if (upto(49) == 0) now = saturated_sum(now, mix.stride * 8);  // a silence
    const tick expected_now = std::min(std::max(now, wheel->now()), never - 1);
    advance_to(now, expected_now, some_budget());
    // "More" is exact: the next call meets at least one, and after "no more" none is left.
    if (!HasFatalFailure() && upto(3) == 0) {
      const bool was_unfinished = unfinished;
      const auto before = wheel->counts();
      const std::size_t fired_before = total;
      advance_to(expected_now, expected_now, was_unfinished ? plenty : 5);
      if (HasFatalFailure()) return;
      const auto after = wheel->counts();
      const bool did_something =
          total != fired_before || after.kept != before.kept || after.relinked != before.relinked;
      ASSERT_EQ(did_something, was_unfinished);
    }
  }

  void advance_to(tick now, tick expected_now, std::size_t budget) {
    fired.clear();
    const auto before = wheel->counts();
    const progress done = wheel->advance(now, budget);
    ASSERT_EQ(wheel->now(), expected_now);
    ASSERT_EQ(done.fired, fired.size());
    ASSERT_EQ(wheel->counts().fired - before.fired, fired.size());
    ASSERT_LE(fired.size() + (wheel->counts().kept - before.kept) +
                  (wheel->counts().relinked - before.relinked),
              budget);
    for (timer* t : fired) {
      const auto it = model.find(t);
      ASSERT_NE(it, model.end()) << "fired twice, or after a cancel";
      ASSERT_LE(it->second, expected_now) << "early";
      ASSERT_GE(it->second, last_fired) << "out of order";
      for (const auto& [other, deadline] : model) ASSERT_LE(it->second, deadline) << "overtaken";
      last_fired = it->second;
      model.erase(it);
      ASSERT_FALSE(t->armed());
    }
    total += fired.size();
    unfinished = done.more;
    ASSERT_FALSE(done.more && budget == plenty);
    if (done.more) return;
    for (const auto& [t, deadline] : model) ASSERT_GT(deadline, expected_now) << "late";
  }

  void check_books() {
    ASSERT_TRUE(wheel->check_invariants());
    ASSERT_EQ(wheel->size(), model.size());
    const auto next = wheel->next_visit();
    ASSERT_EQ(next.has_value(), !model.empty());
    if (!next) return;
    ASSERT_GE(*next, wheel->now());
    tick soonest = never;
    for (const auto& [t, deadline] : model) soonest = std::min(soonest, deadline);
    ASSERT_LE(*next, std::max(soonest, wheel->now())) << "the visit would be late";
  }

  void step() {
    auto& n = nodes[upto(nodes.size() - 1)];
    const auto what = upto(999);
    if (what < 300) return arm(n->t);
    if (what < 550) return refresh(n->t);
    if (what < 650) {
      const bool by_wheel = upto(1) == 0;
      ASSERT_EQ(by_wheel ? wheel->cancel(n->t) : n->t.cancel(), model.erase(&n->t) == 1);
      return;
    }
    if (what < 700) return renew(n);
    if (what < 705) {
      wheel->cancel_all();
      model.clear();
      return;
    }
    if (what < 715) {  // all of them, one by one: a pass may be left with nothing to meet
      for (auto& each : nodes) ASSERT_EQ(each->t.cancel(), model.erase(&each->t) == 1);
      return;
    }
    advance();
  }
};

TEST_P(WheelAgainstModel, AgreesAfterEveryStep) {
  while (nodes.size() < mix.timers) nodes.push_back(std::make_unique<node>(*this));
  new_wheel();
  for (int i = 0; i < 2500; ++i) {
    SCOPED_TRACE(::testing::Message() << mix.name << ", seed " << std::get<2>(GetParam())
                                      << ", step " << i << ", now " << wheel->now());
    step();
    if (HasFatalFailure()) return;
    check_books();
    if (HasFatalFailure()) return;
    if (wheel->now() == never - 1 || upto(999) == 0) new_wheel();
    if (HasFatalFailure()) return;
    for (const auto& n : nodes) ASSERT_EQ(n->t.armed(), model.contains(&n->t));
  }
  EXPECT_GT(total, mix.must_fire) << "a mix that fires nothing proves nothing";
}

INSTANTIATE_TEST_SUITE_P(Mixes, WheelAgainstModel,
                         ::testing::Combine(::testing::ValuesIn(mixes), both_modes,
                                            ::testing::Values(1u, 2u, 3u)),
                         [](const auto& instance) {
                           return std::string{std::get<0>(instance.param).name} + '_' +
                                  to_string(std::get<1>(instance.param)) + "_Seed" +
                                  std::to_string(std::get<2>(instance.param));
                         });

}  // namespace
}  // namespace idlewheel
