// timer_host_random_test.cpp - a host on which everything happens at random: handlers that block, polls
// without a judgement, callbacks that arm, refresh, cancel and destroy whatever they meet. Nothing
// may fire before its limit, and nothing may be forgotten.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "idlewheel/testing/manual_wheel.hpp"
#include "tests/wheel/fixtures.hpp"

namespace idlewheel {
namespace {

using namespace std::chrono_literals;
using testing::manual_wheel;

class world {
 public:
  world(unsigned seed, refresh_mode mode)
      : rng_{seed},
        time_{{.tick = std::chrono::milliseconds{1 + upto(120)},
               .slots = std::size_t{1} << (2 * upto(4)),
               .refresh = mode,
               .budget = 1 + upto(20)}} {
    for (int i = 0; i < 250; ++i) all_.push_back(std::make_unique<subject>(*this));
  }

  void step() {
    switch (upto(3)) {
      case 0:
        time_.poll();
        acts(300);
        time_.turn();
        break;
      case 1:
        time_.block(std::chrono::milliseconds{upto(300)});
        time_.poll();
        acts(40);
        if (upto(1) != 0) time_.turn();
        break;
      case 2:
        time_.advance(std::chrono::milliseconds{upto(upto(9) == 0 ? 20'000 : 200)});
        break;
      default:
        acts(20);
    }
    EXPECT_TRUE(time_.wheel().check_invariants());
  }

  // Until nothing can be left.
  void finish() {
    most_acts_ = 0;
    time_.advance(300s);
    for (const auto& s : all_) EXPECT_FALSE(s->t.armed()) << "forgotten";
  }

  std::size_t fires = 0;
  std::size_t early = 0;
  std::size_t unasked = 0;

 private:
  struct subject {
    explicit subject(world& in) : w{&in} {}
    world* w;
    std::optional<instant> limit;
    timer t{[this] { w->fired(*this); }};
  };

  std::uint64_t upto(std::uint64_t n) { return rng_() % (n + 1); }

  void acts(std::uint64_t most) {
    for (auto n = upto(most); n != 0; --n) act();
  }

  void act() {
    std::unique_ptr<subject>& place = all_[upto(all_.size() - 1)];
    subject& s = *place;
    const instant now = time_.now();
    const std::chrono::milliseconds timeout{upto(upto(5) == 0 ? 30'000 : 1500)};
    switch (upto(10)) {
      case 0:
        place = std::make_unique<subject>(*this);
        break;
      case 1:
        EXPECT_EQ(s.t.cancel(), s.limit.has_value());
        s.limit.reset();
        break;
      case 2:
        time_.arm(s.t, timeout);
        s.limit = later(now, timeout);
        break;
      case 3:
        time_.arm_at(s.t, later(now, timeout));
        s.limit = later(now, timeout);
        break;
      case 4:
        EXPECT_EQ(time_.refresh(s.t, timeout), s.limit.has_value());
        if (s.limit) s.limit = later(now, timeout);
        break;
      case 5:
        EXPECT_EQ(time_.refresh_at(s.t, later(now, timeout)), s.limit.has_value());
        if (s.limit) s.limit = later(now, timeout);
        break;
      case 6:
        other_.arm(s.t, 1h);
        s.t.cancel();
        s.limit.reset();
        break;
      case 7:
        if (upto(3) == 0) time_.block(std::chrono::milliseconds{upto(upto(3) == 0 ? 3000 : 40)});
        break;
      default:
        EXPECT_EQ(time_.refresh(s.t), s.limit.has_value());
        if (s.limit) s.limit = later(now, s.t.timeout());
    }
  }

  void fired(subject& s) {
    ++fires;
    if (!s.limit)
      ++unasked;
    else if (time_.now() < *s.limit || time_.judged_at() < *s.limit)
      ++early;
    s.limit.reset();
    acts(most_acts_);
  }

  std::mt19937_64 rng_;
  std::uint64_t most_acts_ = 3;
  manual_wheel time_, other_;
  std::vector<std::unique_ptr<subject>> all_;
};

class TimerHostAtRandom : public EachMode {};

TEST_P(TimerHostAtRandom, NothingIsEarlyAndNothingIsForgotten) {
  for (unsigned seed = 1; seed <= 12 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    world all{seed, GetParam()};
    for (int step = 0; step < 300; ++step) all.step();
    all.finish();
    EXPECT_GT(all.fires, 500u);
    EXPECT_EQ(all.early, 0u);
    EXPECT_EQ(all.unasked, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, TimerHostAtRandom, both_modes, name_of_mode);

}  // namespace
}  // namespace idlewheel
