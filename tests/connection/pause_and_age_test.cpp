// pause_and_age_test.cpp - our own pause, the lifetime of a connection, and what the reaper counts.
#include <deque>
#include <set>

#include "tests/connection/support.hpp"

namespace idlewheel::connection_tests {
namespace {

class OurPause : public ByMode {};

TEST_P(OurPause, StopsEveryClockOfThePeer) {
  struct row {
    phase in;
    timeout_policy policy;
    expiry_reason reason;
  };
  const transfer_rate rate{.bytes_per_second = 100, .grace = 2s};
  for (const row& r : std::vector<row>{
           {phase::handshake, {.handshake = 2s}, expiry_reason::handshake},
           {phase::header, {.header = 2s}, expiry_reason::header},
           {phase::body, {.body = 2s}, expiry_reason::body},
           {phase::body, {.request = 2s}, expiry_reason::request},
           {phase::body, {.min_rate_in = rate}, expiry_reason::rate_in},
           {phase::upgraded, {.idle = 2s}, expiry_reason::idle},
           {phase::upgraded, {.read_idle = 2s}, expiry_reason::read_idle},
           {phase::upgraded, {.message_idle = 2s}, expiry_reason::message_idle},
       }) {
    SCOPED_TRACE(name_of(r.reason));
    manual_wheel clock{{.tick = 1ms, .refresh = GetParam()}};
    peer p{clock, r.policy};
    p.timeouts->enter(r.in);
    clock.advance(1s);
    p.timeouts->pause_reading(pause::ours);
    clock.advance(60s);
    EXPECT_FALSE(p.handler.closed());
    p.timeouts->resume_reading();
    clock.advance(10s);
    expect_asked(p.handler, r.reason, at(62s));
  }
}

TEST_P(OurPause, StopsTheClockOfAnUnansweredPing) {
  peer p{time, {.ping_after = 10s, .ping_timeout = 5s}};
  time.advance(12s);
  p.timeouts->pause_reading(pause::ours);
  time.advance(100s);
  p.timeouts->resume_reading();
  time.advance(1h);
  EXPECT_EQ(p.handler.pings.size(), 1u);
  expect_asked(p.handler, expiry_reason::peer_dead, at(115s));
}

TEST_P(OurPause, StopsThemForMaxPauseAtMost) {
  peer p{time, {.read_idle = 2s, .max_pause = 10s}};
  time.advance(1s);
  p.timeouts->pause_reading(pause::ours);
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::read_idle, at(12s));
}

TEST_P(OurPause, IsCappedEachTime) {
  peer p{time, {.read_idle = 2s, .max_pause = 10s}};
  for (int i = 0; i < 10; ++i) {
    p.timeouts->pause_reading(pause::ours);
    time.advance(9s);
    p.timeouts->resume_reading();
    time.advance(100ms);
    ASSERT_FALSE(p.handler.closed()) << i;
  }
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::read_idle, at(92s));
}

TEST_P(OurPause, WithoutACapIsAsLongAsWeLike) {
  peer p{time, {.read_idle = 2s, .max_pause = 0s}};
  p.timeouts->pause_reading(pause::ours);
  time.advance(100h);
  EXPECT_FALSE(p.handler.closed());
  p.timeouts->resume_reading();
  time.advance(3s);
  expect_asked(p.handler, expiry_reason::read_idle, later(at(100h), 2s));
}

TEST_P(OurPause, DoesNotStopWhatIsOurs) {
  peer p{time, {.write_stall = 2s}};
  p.timeouts->on_write(10);
  p.look() = {.unsent = 10};
  p.timeouts->pause_reading(pause::ours);
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::write_stall, at(2s));
}

TEST_P(OurPause, DoesNotMoveTheLinger) {
  peer p{time, {.linger = 10s}};
  p.timeouts->enter(phase::closing);
  time.advance(1s);
  p.timeouts->pause_reading(pause::ours);
  time.advance(4s);
  p.timeouts->resume_reading();
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::linger, at(10s));
}

TEST_P(OurPause, APauseBecauseOfThePeerStopsNothing) {
  peer p{time, {.read_idle = 2s}};
  p.timeouts->pause_reading(pause::peer);
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::read_idle, at(2s));
}

TEST_P(OurPause, TakenOverByThePeersEnds) {
  peer p{time, {.read_idle = 2s}};
  p.timeouts->pause_reading(pause::ours);
  time.advance(10s);
  p.timeouts->pause_reading(pause::peer);
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::read_idle, at(12s));
}

TEST_P(OurPause, TwiceIsOnce) {
  peer p{time, {.read_idle = 2s, .max_pause = 10s}};
  p.timeouts->pause_reading(pause::ours);
  time.advance(9s);
  p.timeouts->pause_reading(pause::ours);
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::read_idle, at(12s));
}

IDLEWHEEL_IN_BOTH_MODES(OurPause);

class Age : public ByMode {};

TEST_P(Age, EndsTheConnectionWhateverItDoes) {
  peer p{time, {.max_age = 10s, .age_jitter = 0}};
  while (!p.handler.closed()) {
    time.advance(100ms);
    if (!p.handler.closed()) p.say();
  }
  expect_asked(p.handler, expiry_reason::max_age, at(10s));
  EXPECT_TRUE(p.handler.aged.empty());
}

TEST_P(Age, WarnsAGraceBefore) {
  peer p{time, {.max_age = 10s, .age_grace = 3s, .age_jitter = 0}};
  time.advance(1h);
  EXPECT_EQ(p.handler.aged, std::vector{at(10s)});
  expect_asked(p.handler, expiry_reason::max_age, at(13s));
}

TEST_P(Age, Case108_IsSpreadAndNeverAboveTheLimit) {
  const timeout_policy policy{.max_age = 100s, .age_jitter = 0.1};
  std::deque<peer> crowd;
  for (int i = 0; i < 200; ++i) crowd.emplace_back(time, policy);
  time.advance(89999ms);
  for (const peer& p : crowd) EXPECT_FALSE(p.handler.closed());
  time.advance(10001ms);
  std::set<instant> moments;
  for (const peer& p : crowd) {
    ASSERT_TRUE(p.handler.closed());
    moments.insert(p.handler.when[0]);
  }
  EXPECT_GT(moments.size(), 150u);
  EXPECT_LT(*moments.begin(), at(93s));
  EXPECT_GT(*moments.rbegin(), at(97s));
}

TEST_P(Age, ItsGraceCountsFromTheWarningHoweverLateThatCame) {
  {
    manual_wheel host{{.tick = 1ms, .refresh = GetParam()}};
    peer p{host, {.max_age = 10s, .age_grace = 5s, .age_jitter = 0}};
    host.advance(9s);
    host.block(20s);
    host.advance(4999ms);
    EXPECT_EQ(p.handler.aged, std::vector{at(29s)});
    EXPECT_FALSE(p.handler.closed());
    host.advance(2ms);
    expect_asked(p.handler, expiry_reason::max_age, at(34s));
  }
  manual_wheel host{{.tick = 1ms, .refresh = GetParam()}};
  peer p{host, {.idle = 9s, .max_age = 10s, .age_grace = 5s, .age_jitter = 0}};
  p.handler.answer = [&](const expiry& e) {
    return e.reason == expiry_reason::idle ? verdict::extend(30s) : verdict::close();
  };
  host.advance(9s);
  ASSERT_EQ(p.handler.asked.size(), 1u);
  host.advance(5s);
  p.say();
  host.advance(25s);
  p.say();
  EXPECT_EQ(p.handler.aged, std::vector{at(39s)});
  host.advance(5s);
  EXPECT_EQ(p.handler.when.back(), at(44s));
}

TEST_P(Age, AWarnedConnectionThatIsGivenALongerLifeIsWarnedAgain) {
  const timeout_policy longer{.max_age = 100s, .age_grace = 5s, .age_jitter = 0};
  peer p{time, {.max_age = 10s, .age_grace = 5s, .age_jitter = 0}};
  time.advance(11s);
  p.timeouts->set_policy(longer);
  time.advance(100s);
  EXPECT_EQ(p.handler.aged, (std::vector{at(10s), at(100s)}));
  expect_asked(p.handler, expiry_reason::max_age, at(105s));
}

// Whatever it was that ran out, lingering is lingering.
TEST_P(Age, WhoLingersIsAskedAgainByTheLingerOnly) {
  struct way {
    timeout_policy policy;
    phase in;
    std::chrono::seconds asked;
    bool writes = false;
  };
  const way ways[] = {
      {{.max_age = 10s, .age_jitter = 0, .linger = 5s}, phase::upgraded, 10s},
      {{.max_age = 10s, .age_grace = 2s, .age_jitter = 0, .linger = 5s}, phase::upgraded, 12s},
      {{.header = 8s, .max_age = 10s, .age_jitter = 0, .linger = 5s}, phase::header, 8s},
      {{.header = 8s, .max_age = 10s, .age_grace = 1s, .age_jitter = 0, .linger = 5s},
       phase::header,
       8s},
      {{.idle = 8s, .linger = 5s}, phase::upgraded, 8s},
      {{.write_stall = 8s, .linger = 5s}, phase::upgraded, 8s, true},
      {{.min_rate_out = {.bytes_per_second = 100, .grace = 4s}, .linger = 5s},
       phase::upgraded,
       4s,
       true},
      {{.ping_after = 5s, .ping_timeout = 3s, .linger = 5s}, phase::upgraded, 8s},
  };
  for (const way& w : ways) {
    manual_wheel host{{.tick = 1ms, .refresh = GetParam()}};
    peer p{host, w.policy};
    p.timeouts->enter(w.in);
    if (w.writes) {
      p.timeouts->on_write(10'000);
      p.look() = {.unsent = 10'000};
    }
    p.handler.answer = [&](const expiry&) {
      return p.handler.asked.size() == 1 ? verdict::linger() : verdict::close();
    };
    host.advance(1min);
    ASSERT_EQ(p.handler.asked.size(), 2u);
    EXPECT_EQ(p.handler.when[0], later(at(0s), w.asked));
    EXPECT_EQ(p.handler.when[1], later(at(5s), w.asked)) << name_of(p.handler.asked[1].reason);
    EXPECT_TRUE(p.handler.aged.size() <= (w.policy.age_grace > timespan{} ? 1u : 0u));
  }
}

TEST_P(Age, WithoutALingerTheLimitsOfSilenceBeginAnew) {
  for (const timeout_policy& policy :
       {idle_of(8s), timeout_policy{.read_idle = 8s}, timeout_policy{.message_idle = 8s},
        timeout_policy{.idle = 8s, .max_age = 9s, .age_jitter = 0}}) {
    manual_wheel host{{.tick = 1ms, .refresh = GetParam()}};
    peer p{host, policy};
    p.handler.answer = [&](const expiry&) {
      return p.handler.asked.size() == 1 ? verdict::linger() : verdict::close();
    };
    host.advance(1min);
    ASSERT_EQ(p.handler.asked.size(), 2u);
    EXPECT_EQ(p.handler.when[1], at(16s));
  }
}

TEST_P(Age, SetLaterCountsFromTheStart) {
  const timeout_policy aged{.max_age = 10s, .age_jitter = 0};
  peer p{time, {}};
  time.advance(4s);
  p.timeouts->set_policy(aged);
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::max_age, at(10s));
}

IDLEWHEEL_IN_BOTH_MODES(Age);

class Reaper : public ByMode {};

TEST_P(Reaper, CountsByReasonWhatWasClosedAndNothingElse) {
  connection_reaper reaper{time};
  const timeout_policy idle{.idle = 1s}, header{.header = 1s}, off{};
  recorder closes{time}, extends{time};
  extends.answer = [](const expiry&) { return verdict::extend(1h); };
  connection_timeouts a{reaper, idle, {}, closes}, b{reaper, idle, {}, closes},
      c{reaper, header, {}, closes, phase::header}, d{reaper, idle, {}, extends},
      e{reaper, off, {}, closes}, f{reaper, idle, {}, closes};
  f.stop();
  time.advance(10s);
  EXPECT_EQ(reaper.closed(expiry_reason::idle), 2u);
  EXPECT_EQ(reaper.closed(expiry_reason::header), 1u);
  EXPECT_EQ(reaper.closed(), 3u);
  EXPECT_EQ(reaper.extended(), 1u);
}

TEST_P(Reaper, CountsALingeringConnectionOnceAndForItsFirstReason) {
  peer p{time, {.header = 1s, .idle = 30s, .linger = 5s}};
  p.timeouts->enter(phase::header);
  p.handler.answer = [](const expiry&) { return verdict::linger(); };
  time.advance(2s);
  EXPECT_EQ(p.timeouts->in(), phase::closing);
  EXPECT_FALSE(p.timeouts->stopped());
  p.say(100);  // the rest of it moves nothing
  time.advance(1h);
  ASSERT_EQ(p.handler.asked.size(), 2u);
  EXPECT_EQ(p.handler.asked[0].reason, expiry_reason::header);
  EXPECT_EQ(p.handler.asked[1].reason, expiry_reason::linger);
  EXPECT_EQ(p.handler.when[1], at(6s));
  EXPECT_TRUE(p.timeouts->stopped()) << "nobody lingers twice";
  EXPECT_EQ(p.reaper.closed(expiry_reason::header), 1u);
  EXPECT_EQ(p.reaper.closed(), 1u);
}

TEST_P(Reaper, CountsALingeringConnectionThatIsGivenMoreTimeOnce) {
  peer p{time, {.header = 1s, .linger = 5s}};
  p.timeouts->enter(phase::header);
  p.handler.answer = [&](const expiry& e) {
    if (e.reason == expiry_reason::header) return verdict::linger();
    return p.handler.asked.size() == 2 ? verdict::extend(10s) : verdict::close();
  };
  time.advance(1h);
  EXPECT_EQ(p.handler.asked.size(), 3u);
  EXPECT_EQ(p.reaper.closed(), 1u);
  EXPECT_EQ(p.reaper.closed(expiry_reason::header), 1u);
  EXPECT_EQ(p.reaper.extended(), 1u);
}

TEST_P(Reaper, CountsAConnectionThatItsHandlerDestroys) {
  connection_reaper reaper{time};
  const timeout_policy policy{.idle = 1s};
  struct session final : timeout_handler {
    session(connection_reaper& r, const timeout_policy& p, std::unique_ptr<session>& s)
        : self{&s}, timeouts{r, p, {}, *this} {}
    verdict on_timeout(const expiry&) noexcept override {
      self->reset();
      return verdict::extend(1h);  // too late
    }
    std::unique_ptr<session>* self;
    connection_timeouts timeouts;
  };
  std::unique_ptr<session> s;
  s = std::make_unique<session>(reaper, policy, s);
  time.advance(10s);
  EXPECT_EQ(s, nullptr);
  EXPECT_EQ(reaper.closed(), 1u);
  EXPECT_EQ(time.wheel().size(), 0u);
}

IDLEWHEEL_IN_BOTH_MODES(Reaper);

// ---- what is stored in six bytes

TEST(CompactInstant, IsNeverEarlierAndExactForWholeMilliseconds) {
  using detail::compact_instant;
  for (const std::int64_t ns : {INT64_C(0), INT64_C(1), INT64_C(19'999), INT64_C(20'001),
                                INT64_C(123'456'789'012'345'678), timer::max_timeout.count_ns()}) {
    const instant t{std::chrono::nanoseconds{ns}};
    const instant kept = compact_instant{t};
    EXPECT_GE(kept, t);
    EXPECT_LT(kept, t + 20us);
  }
  for (const auto ms : {0ms, 1ms, 999ms, 86'400'000ms})
    EXPECT_EQ(instant{compact_instant{instant{ms}}}, instant{ms});
  EXPECT_EQ(instant{compact_instant{instant::max()}}, instant::max());
  EXPECT_EQ(instant{compact_instant{instant::min()}}, instant{});
}

TEST(CompactCount, IsCutToWhatItHolds) {
  using detail::compact_count;
  for (const std::uint64_t n :
       {UINT64_C(0), UINT64_C(1), UINT64_C(0x0123'4567'89ab), compact_count::max})
    EXPECT_EQ(compact_count{n}, n);
  EXPECT_EQ(compact_count{~std::uint64_t{0}}, compact_count::max);
}

}  // namespace
}  // namespace idlewheel::connection_tests
