// phases_test.cpp - the deadlines of a connection's phases, which no activity moves.
#include <vector>

#include "tests/connection/support.hpp"

namespace idlewheel::connection_tests {
namespace {

class Phases : public ByMode {};

TEST_P(Phases, EachDeadlineEndsItsPhaseHoweverMuchComesIn) {
  struct row {
    phase in;
    timeout_policy policy;
    expiry_reason reason;
  };
  for (const row& r : std::vector<row>{
           {phase::handshake, {.handshake = 1s}, expiry_reason::handshake},
           {phase::header, {.header = 1s}, expiry_reason::header},
           {phase::header, {.request = 1s}, expiry_reason::request},
           {phase::body, {.body = 1s}, expiry_reason::body},
           {phase::body, {.request = 1s}, expiry_reason::request},
       }) {
    SCOPED_TRACE(name_of(r.reason));
    manual_wheel clock{{.tick = 1ms, .refresh = GetParam()}};
    peer p{clock, r.policy};
    p.timeouts->enter(r.in);
    for (int i = 0; i < 30 && !p.handler.closed(); ++i) {
      clock.advance(100ms);
      if (!p.handler.closed()) p.say();
    }
    expect_asked(p.handler, r.reason, at(1s));
    EXPECT_EQ(p.reaper.closed(r.reason), 1u);
  }
}

TEST_P(Phases, ADeadlineOfAnotherPhaseDoesNotRun) {
  const timeout_policy all{
      .handshake = 1s, .header = 1s, .body = 1s, .request = 2s, .keep_alive = 1s, .linger = 1s};
  for (const phase quiet : {phase::handling, phase::upgraded}) {
    peer p{time, all};
    p.timeouts->enter(quiet);
    time.advance(1h);
    EXPECT_FALSE(p.handler.closed()) << static_cast<int>(quiet);
  }
}

TEST_P(Phases, BeginWithAHandshakeUnlessToldOtherwise) {
  const timeout_policy policy{.handshake = 1s, .header = 2s};
  peer p{time, policy};
  EXPECT_EQ(p.timeouts->in(), phase::handshake);
  recorder other{time};
  connection_timeouts header{p.reaper, policy, {}, other, phase::header};
  time.advance(10s);
  expect_asked(p.handler, expiry_reason::handshake, at(1s));
  expect_asked(other, expiry_reason::header, at(2s));
}

TEST_P(Phases, HeaderAndBodyShareTheRequestsDeadline) {
  peer p{time, {.header = 900ms, .body = 900ms, .request = 1s}};
  p.timeouts->enter(phase::header);
  time.advance(800ms);
  p.timeouts->enter(phase::body);
  time.advance(1s);
  expect_asked(p.handler, expiry_reason::request, at(1s));
}

TEST_P(Phases, ASecondRequestHasADeadlineOfItsOwn) {
  peer p{time, {.header = 1s, .request = 2s}};
  for (int request = 0; request < 5; ++request) {
    p.timeouts->enter(phase::header);
    time.advance(900ms);
    p.timeouts->enter(phase::body);
    time.advance(1s);
    p.timeouts->enter(phase::handling);
    time.advance(5s);
    p.timeouts->enter(phase::keep_alive);
    time.advance(5s);
  }
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(Phases, EnteredAgainItsClockStartsAnew) {
  peer p{time, {.keep_alive = 1s}};
  for (int i = 0; i < 5; ++i) {
    p.timeouts->enter(phase::keep_alive);
    time.advance(900ms);
  }
  EXPECT_FALSE(p.handler.closed());
  EXPECT_EQ(time.wheel().size(), 1u);
  time.advance(200ms);
  expect_asked(p.handler, expiry_reason::keep_alive, at(4 * 900ms + 1s));
}

TEST_P(Phases, KeepAliveWaitsForWhatIsInFlight) {
  peer p{time, {.keep_alive = 1s}};
  p.timeouts->on_write(1000);
  p.timeouts->enter(phase::keep_alive);
  p.look() = {.unsent = 400};
  time.advance(2500ms);
  EXPECT_FALSE(p.handler.closed());
  p.look() = {.unsent = 0, .last_delivery = at(2500ms)};
  time.advance(10s);
  expect_asked(p.handler, expiry_reason::keep_alive, at(3500ms));
}

TEST_P(Phases, KeepAliveDoesNotCutOffARequestThatWaitsInTheKernel) {
  peer p{time, {.keep_alive = 1s}};
  p.timeouts->enter(phase::keep_alive);
  p.look() = {.unread = 10};
  time.advance(1500ms);
  EXPECT_FALSE(p.handler.closed());
  p.timeouts->enter(phase::header);
  p.say(10);
  p.look() = {};
  time.advance(1h);
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(Phases, InKeepAliveBytesThatAreNoRequestMoveNothing) {  // an empty line, for example
  peer p{time, {.keep_alive = 1s}};
  p.timeouts->enter(phase::keep_alive);
  drip(p, 100ms, at(10s));
  expect_asked(p.handler, expiry_reason::keep_alive, at(1s));
}

TEST_P(Phases, AnUpgradeDropsTheOldDeadlinesAndKeepsTheSilence) {
  peer p{time,
         {.header = 1s,
          .body = 1s,
          .request = 1s,
          .keep_alive = 1s,
          .idle = 30s,
          .min_rate_in = {.bytes_per_second = 1000}}};
  p.timeouts->enter(phase::header);
  time.advance(500ms);
  p.timeouts->enter(phase::upgraded);
  p.say();
  time.advance(29s);
  EXPECT_FALSE(p.handler.closed());
  time.advance(2s);
  expect_asked(p.handler, expiry_reason::idle, at(30500ms));
}

TEST_P(Phases, AnUpgradeStartsTheWaitForMessagesAnew) {
  peer p{time, {.message_idle = 10s}};
  p.timeouts->enter(phase::header);
  time.advance(8s);
  p.timeouts->enter(phase::upgraded);
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::message_idle, at(18s));
}

TEST_P(Phases, WhileHandlingOnlySilenceRuns) {
  peer p{time, {.header = 1s, .body = 1s, .request = 1s, .keep_alive = 1s, .idle = 5s}};
  p.timeouts->enter(phase::handling);
  time.advance(10s);
  expect_asked(p.handler, expiry_reason::idle, at(5s));
}

TEST_P(Phases, ClosingLingersForSoLongAndNoLonger) {
  peer p{time, {.idle = 500ms, .ping_after = 200ms, .ping_timeout = 100ms, .linger = 2s}};
  p.timeouts->enter(phase::closing);
  drip(p, 100ms, at(10s));
  expect_asked(p.handler, expiry_reason::linger, at(2s));
  EXPECT_TRUE(p.handler.pings.empty());
}

TEST_P(Phases, ClosingLingersWhileThePeerStillTakesTheRest) {
  peer p{time, {.linger = 1s}};
  p.timeouts->on_write(1000);
  p.timeouts->enter(phase::closing);
  for (unsigned second = 1; second <= 5; ++second) {
    p.look() = {.unsent = 1000u - 100u * second, .last_delivery = time.now()};
    time.advance(900ms);
    EXPECT_FALSE(p.handler.closed()) << second;
  }
  time.advance(2s);
  expect_asked(p.handler, expiry_reason::linger, at(3600ms + 1s));
}

TEST_P(Phases, ClosingWithoutLingerIsStillTimedBySilence) {
  peer p{time, {.idle = 1s}};
  p.timeouts->enter(phase::closing);
  time.advance(2s);
  expect_asked(p.handler, expiry_reason::idle, at(1s));
}

TEST_P(Phases, ABodyDeadlineIsNotHiddenBehindALongerSilence) {
  // Reads would move the timer to the idle limit if they were allowed to.
  peer p{time, {.body = 2s, .idle = 1s}};
  p.timeouts->enter(phase::body);
  drip(p, 300ms, at(10s));
  expect_asked(p.handler, expiry_reason::body, at(2s));
}

TEST_P(Phases, AfterAPhaseWithADeadlineReadsMoveTheTimerAgain) {
  peer p{time, {.header = 10s, .idle = 1s}};
  p.timeouts->enter(phase::header);
  p.say();
  p.timeouts->enter(phase::upgraded);
  const std::uint64_t before = time.turns();
  for (int i = 0; i < 100; ++i) {
    time.advance(500ms);
    p.say();
  }
  EXPECT_FALSE(p.handler.closed());
  EXPECT_LE(time.turns() - before, 100u);
}

TEST_P(Phases, NothingCanBeEnteredAfterTheEnd) {
  peer p{time, {.header = 1s, .keep_alive = 1s}};
  p.timeouts->stop();
  p.timeouts->enter(phase::keep_alive);
  p.timeouts->on_write(10);
  p.timeouts->on_message();
  p.timeouts->restart();
  p.timeouts->pause_reading(pause::ours);
  p.timeouts->resume_reading();
  EXPECT_EQ(time.wheel().size(), 0u);
  time.advance(1h);
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(Phases, InEachStateTheConnectionEndsByItsOwnLimit) {
  const timeout_policy policy{
      .handshake = 1s, .header = 2s, .body = 3s, .keep_alive = 4s, .idle = 5s, .linger = 6s};
  struct row {
    phase in;
    expiry_reason reason;
    timespan limit;
  };
  for (const row& r : std::vector<row>{{phase::handshake, expiry_reason::handshake, 1s},
                                       {phase::header, expiry_reason::header, 2s},
                                       {phase::body, expiry_reason::body, 3s},
                                       {phase::handling, expiry_reason::idle, 5s},
                                       {phase::keep_alive, expiry_reason::keep_alive, 4s},
                                       {phase::upgraded, expiry_reason::idle, 5s},
                                       {phase::closing, expiry_reason::linger, 6s}}) {
    manual_wheel clock{{.tick = 1ms, .refresh = GetParam()}};
    peer p{clock, policy};
    p.timeouts->enter(r.in);
    clock.advance(1h);
    expect_asked(p.handler, r.reason, at(r.limit));
  }
}

// The next request waits in the kernel while we are busy with something of our own.
TEST_P(Phases, KeepAliveDoesNotRunWhileARequestWaitsForOurPause) {
  peer p{time, {.keep_alive = 10s}};
  p.timeouts->enter(phase::keep_alive);
  p.timeouts->pause_reading(pause::ours);
  p.look() = {.unread = 100, .last_arrival = at(1s)};
  time.advance(1min);
  EXPECT_FALSE(p.handler.closed());
  p.look() = {};
  p.timeouts->resume_reading();
  p.say();
  time.advance(20s);
  EXPECT_TRUE(p.handler.closed());
}

IDLEWHEEL_IN_BOTH_MODES(Phases);

}  // namespace
}  // namespace idlewheel::connection_tests
