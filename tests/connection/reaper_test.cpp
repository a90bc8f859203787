// reaper_test.cpp - what is done to all connections at once: eviction, pressure, draining, dry runs,
// and closes that are limited and spread.
#include <algorithm>
#include <limits>
#include <memory>
#include <set>

#include "tests/connection/support.hpp"

namespace idlewheel::connection_tests {
namespace {

// Connections of one reaper, each with its peer.
struct crowd {
  struct member final : timeout_handler {
    member(crowd& c, const timeout_policy& policy, phase first)
        : of{c}, socket{c.time.open_socket()}, timeouts{c.reaper, policy, socket, *this, first} {}
    verdict on_timeout(const expiry& e) noexcept override {
      reasons.push_back(e.reason);
      when.push_back(of.time.now());
      of.order.push_back(this);
      return of.answer ? of.answer(*this) : verdict::close();
    }
    void on_would_close(const expiry& e) noexcept override { would.push_back(e.reason); }
    bool closed() const { return !reasons.empty(); }
    void say() {
      of.time.poll();
      timeouts.on_read(1);
      of.time.turn();
    }
    socket_look& look() { return of.time.look_at(socket); }

    crowd& of;
    socket_view socket;
    std::vector<expiry_reason> reasons, would;
    std::vector<instant> when;
    connection_timeouts timeouts;
  };

  explicit crowd(manual_wheel& host, const reaper_options& options = {})
      : time{host}, reaper{host, options} {}
  member& add(const timeout_policy& policy, phase first = phase::upgraded) {
    return *members.emplace_back(std::make_unique<member>(*this, policy, first));
  }
  std::size_t closed() const {
    return static_cast<std::size_t>(
        std::count_if(members.begin(), members.end(), [](auto& m) { return m->closed(); }));
  }

  manual_wheel& time;
  connection_reaper reaper;
  std::function<verdict(member&)> answer;
  std::vector<member*> order;
  std::vector<std::unique_ptr<member>> members;
};

const timeout_policy none{};
const timeout_policy ten_seconds{.idle = 10s};

class ReaperOfMany : public ByMode {
 protected:
  crowd all{time};
};

// Eviction ----------------------------------------------------------------------------------------

TEST_P(ReaperOfMany, EvictsTheLongestIdleFirst) {
  std::vector<crowd::member*> m;
  for (int i = 0; i < 200; ++i) {
    m.push_back(&all.add(none));
    time.advance(10ms);
  }
  m[0]->say();  // now the least idle
  time.advance(10ms);
  EXPECT_EQ(all.reaper.evict(100), 100u);
  EXPECT_EQ(all.order, (std::vector<crowd::member*>{m.begin() + 1, m.begin() + 101}));
  EXPECT_EQ(all.reaper.closed(expiry_reason::evicted), 100u);
  EXPECT_EQ(all.reaper.size(), 100u);
  EXPECT_EQ(all.reaper.evict(1000), 100u);
  EXPECT_EQ(all.order.back(), m[0]);
  EXPECT_EQ(all.reaper.evict(1), 0u);
  EXPECT_EQ(all.reaper.evict(0), 0u);
}

TEST_P(ReaperOfMany, EvictsNobodyIdleForLessThanItIsTold) {
  crowd::member& early = all.add(none);
  time.advance(500ms);
  crowd::member& late = all.add(none);
  time.advance(500ms);
  EXPECT_EQ(all.reaper.evict(10, 1s), 1u);
  EXPECT_TRUE(early.closed());
  EXPECT_FALSE(late.closed());
}

TEST_P(ReaperOfMany, EvictsNobodyWithARequestInFlight) {
  crowd::member& body = all.add(none, phase::body);
  crowd::member& handling = all.add(none, phase::handling);
  crowd::member& writes = all.add(none);
  writes.timeouts.on_write(100);
  writes.look() = {.unsent = 100};
  crowd::member& paused = all.add(none);
  paused.timeouts.pause_reading(pause::ours);
  crowd::member& header = all.add(none, phase::header);
  header.say();
  crowd::member& unread = all.add(none);
  unread.look() = {.unread = 1};
  crowd::member& fresh = all.add(none, phase::header);  // never said a thing
  crowd::member& keep_alive = all.add(none, phase::keep_alive);
  keep_alive.timeouts.on_write(100);
  keep_alive.look() = {.unsent = 0};  // taken, which nobody has looked at yet
  time.advance(1min);
  EXPECT_EQ(all.reaper.evict(100), 2u);
  EXPECT_TRUE(fresh.closed());
  EXPECT_TRUE(keep_alive.closed());
  for (const crowd::member* busy : {&body, &handling, &writes, &paused, &header, &unread})
    EXPECT_FALSE(busy->closed());
}

TEST_P(ReaperOfMany, FindsTheIdleOnesBehindAnyNumberOfStuckOnes) {
  for (int i = 0; i < 300; ++i) {
    crowd::member& stuck = all.add(none);
    stuck.timeouts.on_write(100);
    stuck.look() = {.unsent = 100};
  }
  time.advance(1s);
  all.add(none);
  time.advance(1s);
  EXPECT_EQ(all.reaper.evict(1), 1u);
}

TEST_P(ReaperOfMany, AHandlerMayDoAnythingWhileItIsEvicted) {
  for (int i = 0; i < 10; ++i) all.add(none);
  time.advance(1s);
  all.answer = [&](crowd::member& m) {
    EXPECT_EQ(all.reaper.evict(5), 0u) << "no eviction within one";
    // Ends a neighbour, and lets another live in its place.
    for (auto& other : all.members)
      if (other.get() != &m && !other->closed() && !other->timeouts.stopped()) {
        other->timeouts.stop();
        break;
      }
    all.add(none);
    return verdict::close();
  };
  EXPECT_EQ(all.reaper.evict(10, 1ms), 5u);
  EXPECT_EQ(all.reaper.size(), 5u) << "those that came meanwhile";
}

TEST_P(ReaperOfMany, AHandlerMayDestroyAllWhileItIsEvicted) {
  auto doomed = std::make_unique<crowd>(time);
  for (int i = 0; i < 10; ++i) doomed->add(none);
  time.advance(1s);
  doomed->answer = [&](crowd::member&) {
    doomed.reset();
    return verdict::close();
  };
  EXPECT_EQ(doomed->reaper.evict(10), 1u);
  EXPECT_EQ(doomed, nullptr);
}

TEST_P(ReaperOfMany, WhoAsksForMoreTimeIsNotCounted) {
  all.add(none);
  time.advance(1s);
  all.answer = [](crowd::member&) { return verdict::extend(1s); };
  EXPECT_EQ(all.reaper.evict(1), 0u);
  EXPECT_EQ(all.reaper.closed(), 0u);
}

TEST_P(ReaperOfMany, APlaceIsUsedAgain) {
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<crowd::member>> others;
    for (int i = 0; i < 1200; ++i)
      others.push_back(std::make_unique<crowd::member>(all, none, phase::upgraded));
    EXPECT_EQ(all.reaper.size(), 1200u);
    time.advance(1s);
    EXPECT_EQ(all.reaper.evict(700), 700u);
    EXPECT_EQ(all.reaper.size(), 500u);
    all.order.clear();
  }
  EXPECT_EQ(all.reaper.size(), 0u);
}

// Pressure ----------------------------------------------------------------------------------------

const timeout_policy pressed{.idle = 100s, .idle_min = 20s};

TEST_P(ReaperOfMany, PressureShortensTheIdleLimitsOfThoseThatWaitAlready) {
  crowd::member& m = all.add(pressed);
  time.advance(10s);
  all.reaper.set_pressure(0.5);
  time.advance(49999ms);
  EXPECT_FALSE(m.closed());
  time.advance(1s);
  ASSERT_TRUE(m.closed());
  EXPECT_EQ(m.when[0], at(60s));
  EXPECT_EQ(m.reasons[0], expiry_reason::idle);
}

TEST_P(ReaperOfMany, WhoIsOverTheShorterLimitAlreadyGoesAtTheNextTick) {
  crowd::member& m = all.add(pressed);
  time.advance(70s);
  all.reaper.set_pressure(1);
  time.advance(5ms);
  EXPECT_TRUE(m.closed());
}

TEST_P(ReaperOfMany, PressureThatIsLoweredGivesTheTimeBack) {
  crowd::member& m = all.add(pressed);
  all.reaper.set_pressure(1);
  time.advance(10s);
  m.say();
  time.advance(10s);
  all.reaper.set_pressure(0);
  time.advance(89999ms);
  EXPECT_FALSE(m.closed());
  time.advance(2ms);
  ASSERT_TRUE(m.closed());
  EXPECT_EQ(m.when[0], at(110s));
}

TEST_P(ReaperOfMany, PressureHoldsForReadsAndForThoseWhoComeLater) {
  all.reaper.set_pressure(1);
  time.advance(1s);
  crowd::member& m = all.add(pressed);
  for (int i = 0; i < 10; ++i) {
    time.advance(15s);
    ASSERT_FALSE(m.closed());
    m.say();
  }
  const instant said = time.now();
  time.advance(1min);
  ASSERT_TRUE(m.closed());
  EXPECT_EQ(m.when[0], later(said, 20s));
}

TEST_P(ReaperOfMany, PressureMovesEachIdleLimitAndNothingElse) {
  struct limit {
    timeout_policy policy;
    phase in;
    timespan shortened;
  };
  for (const limit& l :
       {limit{{.read_idle = 100s, .idle_min = 20s}, phase::upgraded, 20s},
        limit{{.message_idle = 100s, .idle_min = 20s}, phase::upgraded, 20s},
        limit{{.keep_alive = 100s, .idle_min = 20s}, phase::keep_alive, 20s},
        limit{{.idle = 100s}, phase::upgraded, 100s},
        limit{{.idle = 10s, .idle_min = 20s}, phase::upgraded, 10s},
        limit{{.body = 100s, .idle_min = 20s}, phase::body, 100s},
        limit{{.idle_min = 20s, .max_age = 100s, .age_jitter = 0}, phase::upgraded, 100s},
        limit{{.idle_min = 20s, .ping_after = 50s, .ping_timeout = 50s}, phase::upgraded, 100s}}) {
    manual_wheel host{{.tick = 1ms, .refresh = GetParam()}};
    crowd c{host};
    crowd::member& m = c.add(l.policy, l.in);
    c.reaper.set_pressure(1);
    host.advance(1000s);
    ASSERT_TRUE(m.closed());
    EXPECT_EQ(m.when[0], later(at(0s), l.shortened));
  }
}

TEST_P(ReaperOfMany, PressureIsCutToItsRange) {
  for (const auto& [given, kept] :
       std::vector<std::pair<double, double>>{{-1, 0},
                                              {0.25, 0.25},
                                              {7, 1},
                                              {std::numeric_limits<double>::quiet_NaN(), 0},
                                              {std::numeric_limits<double>::infinity(), 1}}) {
    all.reaper.set_pressure(given);
    EXPECT_EQ(all.reaper.pressure(), kept);
  }
}

TEST_P(ReaperOfMany, ALargeCrowdIsWalkedInSteps) {
  constexpr int size = 10'000;
  for (int i = 0; i < size; ++i) all.add(pressed);
  time.advance(50s);
  all.reaper.set_pressure(1);
  time.poll();
  for (int turns = 0; turns < 40; ++turns) time.turn();
  EXPECT_LT(all.closed(), std::size_t{size}) << "all at once";
  time.advance(1s);
  EXPECT_EQ(all.closed(), std::size_t{size});
}

// Draining ----------------------------------------------------------------------------------------

constexpr drain_options slowly{.window = 10s, .grace = 20s, .hard = 5s};

TEST_P(ReaperOfMany, IdleOnesLeaveSpreadOverTheWindow) {
  for (int i = 0; i < 1000; ++i) all.add(i % 2 == 0 ? none : pressed);
  int done = 0;
  EXPECT_TRUE(all.reaper.begin_drain(slowly, [&] { ++done; }));
  EXPECT_FALSE(all.reaper.begin_drain(slowly, [&] { done += 100; }));
  for (int second = 1; second <= 10; ++second) {
    time.advance(1s);
    EXPECT_NEAR(static_cast<double>(all.closed()), 100.0 * second, 60) << second;
  }
  time.advance(10ms);
  EXPECT_EQ(all.closed(), 1000u);
  EXPECT_EQ(all.reaper.closed(expiry_reason::drain), 1000u);
  EXPECT_EQ(done, 1);
  time.advance(1h);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(time.wheel().size(), 0u);
}

TEST_P(ReaperOfMany, BusyOnesLeaveWhenTheyHaveFinished) {
  crowd::member& m = all.add(none, phase::handling);
  int done = 0;
  all.reaper.begin_drain(slowly, [&] { ++done; });
  time.advance(15s);
  EXPECT_FALSE(m.closed());
  m.timeouts.enter(phase::keep_alive);
  EXPECT_FALSE(m.closed()) << "not inside the call";
  time.advance(2ms);
  EXPECT_TRUE(m.closed());
  time.advance(2ms);
  EXPECT_EQ(done, 1);
}

TEST_P(ReaperOfMany, AReplyThatThePeerStillTakesIsNotCut) {
  crowd::member& m = all.add(none);
  m.timeouts.on_write(1000);
  all.reaper.begin_drain(slowly, {});
  for (int second = 0; second < 12; ++second) {
    m.look() = {.unsent = 1000u - 50u * static_cast<unsigned>(second)};
    time.advance(1s);
    ASSERT_FALSE(m.closed()) << second;
  }
  m.look() = {.unsent = 0};
  time.advance(200ms);
  EXPECT_TRUE(m.closed());
}

TEST_P(ReaperOfMany, WhatWasSentBeforeWeAskedIsRead) {
  crowd::member& m = all.add(none);
  all.reaper.begin_drain({.window = 0s, .grace = 20s}, {});
  m.look() = {.unread = 5};
  time.advance(100ms);
  EXPECT_FALSE(m.closed());
  m.look() = {};
  m.say();
  time.advance(5ms);
  EXPECT_TRUE(m.closed());
}

TEST_P(ReaperOfMany, WhoNeverStopsTalkingLeavesAllTheSame) {
  crowd::member& m = all.add(none);
  m.look() = {.unread = 5};  // whenever we look
  all.reaper.begin_drain(slowly, {});
  for (int i = 0; i < 120 && !m.closed(); ++i) {
    time.advance(100ms);
    if (!m.closed()) m.say();
  }
  EXPECT_TRUE(m.closed());
}

TEST_P(ReaperOfMany, TheGraceEndsTheRest) {
  crowd::member& handling = all.add(none, phase::handling);
  int done = 0;
  all.reaper.begin_drain(slowly, [&] { ++done; });
  time.advance(29999ms);
  EXPECT_EQ(all.closed(), 0u);
  time.advance(10ms);
  EXPECT_EQ(all.closed(), 1u);
  EXPECT_EQ(handling.when[0], at(30s));
  EXPECT_EQ(done, 1);
}

TEST_P(ReaperOfMany, WhoLingersIsAskedOnceMoreAtTheEnd) {
  crowd::member& m = all.add(none);
  int done = 0;
  all.answer = [](crowd::member&) { return verdict::linger(); };
  all.reaper.begin_drain(slowly, [&] { ++done; });
  time.advance(34999ms);
  EXPECT_EQ(m.reasons.size(), 1u);
  EXPECT_EQ(done, 0);
  time.advance(10ms);
  EXPECT_EQ(m.reasons.size(), 2u);
  EXPECT_EQ(m.when[1], at(35s));
  EXPECT_EQ(done, 1);
  EXPECT_EQ(all.reaper.closed(), 1u) << "counted once";
}

TEST_P(ReaperOfMany, NobodyStaysBeyondTheEndHoweverOftenItAsks) {
  crowd::member& m = all.add(none);
  int done = 0;
  all.answer = [](crowd::member&) { return verdict::extend(1s); };
  all.reaper.begin_drain(slowly, [&] { ++done; });
  time.advance(40s);
  EXPECT_TRUE(m.timeouts.stopped());
  EXPECT_EQ(done, 1);
}

TEST_P(ReaperOfMany, AnExtensionFromBeforeTheDrainIsNoLongerThanIt) {
  crowd::member& m = all.add(ten_seconds);
  all.answer = [](crowd::member&) { return verdict::extend(1h); };
  time.advance(10s);
  ASSERT_EQ(m.reasons.size(), 1u);
  int done = 0;
  all.reaper.begin_drain(slowly, [&] { ++done; });
  time.advance(40s);
  EXPECT_TRUE(m.timeouts.stopped());
  EXPECT_EQ(m.when.back(), at(45s));
  EXPECT_EQ(done, 1);
}

TEST_P(ReaperOfMany, WhoComesDuringADrainLeavesToo) {
  all.reaper.begin_drain(slowly, {});
  time.advance(12s);
  crowd::member& m = all.add(none);
  time.advance(5ms);
  EXPECT_TRUE(m.closed());
}

TEST_P(ReaperOfMany, WithNobodyThereADrainIsDoneAtOnceButNotInsideTheCall) {
  int done = 0;
  all.reaper.begin_drain(slowly, [&] { ++done; });
  EXPECT_EQ(done, 0);
  time.advance(5ms);
  EXPECT_EQ(done, 1);
}

TEST_P(ReaperOfMany, TheEndOfADrainMayDestroyTheReaper) {
  auto doomed = std::make_unique<crowd>(time);
  doomed->add(none);
  doomed->reaper.begin_drain(slowly, [&] { doomed.reset(); });
  time.advance(1min);
  EXPECT_EQ(doomed, nullptr);
}

TEST_P(ReaperOfMany, ADrainNamesWhatIsWrongWithIt) {
  for (const auto& [options, field] : std::vector<std::pair<drain_options, std::string>>{
           {{.window = -1s}, "window"}, {{.grace = -1s}, "grace"}, {{.hard = -1s}, "hard"}})
    try {
      all.reaper.begin_drain(options);
      FAIL() << field;
    } catch (const std::invalid_argument& wrong) {
      EXPECT_NE(std::string{wrong.what()}.find(field), std::string::npos) << wrong.what();
      EXPECT_NE(std::string{wrong.what()}.find("-1000000000"), std::string::npos) << wrong.what();
    }
  EXPECT_FALSE(all.reaper.draining());
}

// Dry runs ----------------------------------------------------------------------------------------

TEST_P(ReaperOfMany, ADryRunTellsEachOnceAndClosesNobody) {
  crowd::member& m = all.add(pressed);
  crowd::member& other = all.add(none);
  all.reaper.set_dry_run(true);
  time.advance(1h);
  EXPECT_EQ(m.would, std::vector{expiry_reason::idle});
  EXPECT_EQ(all.reaper.would_close(expiry_reason::idle), 1u);
  EXPECT_EQ(all.reaper.closed(), 0u);
  EXPECT_FALSE(m.timeouts.stopped());
  EXPECT_EQ(all.reaper.evict(10), 0u);
  EXPECT_EQ(other.would, std::vector{expiry_reason::evicted});
  EXPECT_EQ(all.closed(), 0u);
}

TEST_P(ReaperOfMany, AfterADryRunTheLimitsHoldAgain) {
  crowd::member& m = all.add(pressed);
  all.reaper.set_dry_run(true);
  time.advance(1h);
  m.say();
  all.reaper.set_dry_run(false);
  time.advance(99999ms);
  EXPECT_FALSE(m.closed());
  time.advance(2ms);
  EXPECT_TRUE(m.closed());
}

// Crowds ------------------------------------------------------------------------------------------

TEST_P(ReaperOfMany, ClosesAreLimitedPerSecond) {
  crowd limited{time, {.closes_per_second = 100}};
  for (int i = 0; i < 1000; ++i) limited.add(ten_seconds);
  time.advance(9999ms);
  for (int second = 1; second <= 10; ++second) {
    time.advance(1s);
    EXPECT_NEAR(static_cast<double>(limited.closed()), 100.0 * second, 1.5) << second;
  }
  time.advance(10ms);
  EXPECT_EQ(limited.closed(), 1000u);
  EXPECT_EQ(limited.reaper.held_back(), 999u);
}

TEST_P(ReaperOfMany, WhoSpeaksWhileItWaitsForItsTurnStays) {
  crowd limited{time, {.closes_per_second = 1}};
  for (int i = 0; i < 10; ++i) limited.add(ten_seconds);
  time.advance(10500ms);
  EXPECT_EQ(limited.closed(), 1u);
  std::vector<crowd::member*> waiting;
  for (auto& m : limited.members)
    if (!m->closed()) {
      m->say();
      waiting.push_back(m.get());
    }
  time.advance(9999ms);
  EXPECT_EQ(limited.closed(), 1u);
  time.advance(20s);
  EXPECT_EQ(limited.closed(), 10u);
  for (const auto* m : waiting) EXPECT_GE(m->when[0], at(20500ms));
}

TEST_P(ReaperOfMany, ACrowdThatCameTogetherLeavesApart) {
  crowd spread{time, {.jitter = 0.5}};
  for (int i = 0; i < 1000; ++i) spread.add(ten_seconds);
  time.advance(9999ms);
  EXPECT_EQ(spread.closed(), 0u) << "jitter only adds";
  time.advance(2501ms);
  EXPECT_NEAR(static_cast<double>(spread.closed()), 500, 100);
  time.advance(2501ms);
  EXPECT_EQ(spread.closed(), 1000u);
}

TEST(ReaperOptions, JitterIsAShare) {
  manual_wheel time;
  for (const double wrong : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW((connection_reaper{time, {.jitter = wrong}}), std::invalid_argument);
}

IDLEWHEEL_IN_BOTH_MODES(ReaperOfMany);

}  // namespace
}  // namespace idlewheel::connection_tests
