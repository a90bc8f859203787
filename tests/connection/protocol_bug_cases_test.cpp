// protocol_bug_cases_test.cpp - faults that other people's phases, heartbeats and closings had
// (bug_cases.md, by number), each as a test of its kind.
#include "tests/connection/support.hpp"

namespace idlewheel::connection_tests {
namespace {

class ProtocolBugCases : public ByMode {};

// ---- I: what is activity

TEST_P(ProtocolBugCases, Case133_TheClockOfTheAnswerStartsWhenTheRequestHasGone) {
  // We are the client: while we send, the queue moves; the peer's head is awaited afterwards.
  peer p{time, {.header = 1s, .write_stall = 2s}};
  p.timeouts->enter(phase::handling);
  p.timeouts->on_write(5000);
  for (unsigned second = 1; second <= 5; ++second) {
    time.advance(1s);
    p.look() = {.unsent = 5000 - 1000 * second, .last_delivery = time.now()};
  }
  p.timeouts->enter(phase::header);
  time.advance(200ms);
  p.say(100);
  p.timeouts->enter(phase::handling);
  time.advance(1h);
  EXPECT_FALSE(p.handler.closed());
}

// ---- J: half-close

TEST_P(ProtocolBugCases, Case138_AfterOurFinAPeerThatSaysNothingEndsByTheLinger) {
  peer p{time, {.idle = 1h, .linger = 5s}};
  p.timeouts->enter(phase::closing);
  time.advance(10s);
  expect_asked(p.handler, expiry_reason::linger, at(5s));
}

TEST_P(ProtocolBugCases, Case140_HalfClosedHasALimitOfItsOwn) {
  peer p{time, {.idle = 1h, .linger = 5s}};
  p.timeouts->enter(phase::upgraded);
  time.advance(59min);
  p.timeouts->enter(phase::closing);
  drip(p, 500ms, at(2h));  // the other side goes on talking
  expect_asked(p.handler, expiry_reason::linger, later(at(59min), 5s));
}

TEST_P(ProtocolBugCases, Case141_ADeadPeersEndDoesNotWaitForItsFin) {
  peer p{time, {.ping_after = 8s, .ping_timeout = 2s, .linger = 1h}};
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::peer_dead, at(10s));
  EXPECT_TRUE(p.timeouts->stopped());
}

// ---- K: heartbeats

TEST_P(ProtocolBugCases, Case143_APingThatCannotBeSentStillFindsThePeerDead) {
  peer p{time, {.ping_after = 10s, .ping_timeout = 5s}};
  p.timeouts->on_write(1'000'000);
  p.look() = {.unsent = 1'000'000};
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::peer_dead, at(15s));
}

TEST_P(ProtocolBugCases, Case145_WhoOnlyPingsIsIdleForRequests) {
  peer p{time, {.idle = 30s, .message_idle = 10s}};
  drip(p, 2s, at(1h));
  expect_asked(p.handler, expiry_reason::message_idle, at(10s));
}

TEST_P(ProtocolBugCases, Case146_PongsDoNotHoldTheApplicationsIdleLimit) {
  peer p{time, {.message_idle = 600s, .ping_after = 60s, .ping_timeout = 20s}};
  p.handler.on_ping = [&] { p.timeouts->on_write(2); };
  while (!p.handler.closed() && time.now() < at(1h)) {
    time.advance(1s);
    if (!p.handler.pings.empty() && time.now() == p.handler.pings.back()) p.say(2);
  }
  expect_asked(p.handler, expiry_reason::message_idle, at(600s));
}

TEST_P(ProtocolBugCases, Case148_WhatWeReceiveDoesNotPutOffOurOwnPing) {
  peer p{time, {.ping_after_send = 60s}};
  p.handler.on_ping = [&] { p.timeouts->on_write(2); };
  drip(p, 10s, at(300s));
  EXPECT_EQ(p.handler.pings.size(), 5u);
  for (std::size_t i = 0; i != p.handler.pings.size(); ++i)
    EXPECT_EQ(p.handler.pings[i], at((static_cast<std::int64_t>(i) + 1) * 60s));
}

TEST_P(ProtocolBugCases, Case150_AVerdictWaitsForNoStream) {
  peer p{time, {.ping_after = 10s, .ping_timeout = 5s}};
  p.timeouts->enter(phase::handling);  // a stream that never ends
  p.timeouts->on_write(100);
  p.look() = {.unsent = 100};
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::peer_dead, at(15s));
}

TEST_P(ProtocolBugCases, Case151_AHeartbeatComesATickAfterItsSilenceAtMost) {
  for (int phase_ms = 0; phase_ms < 100; phase_ms += 7) {
    manual_wheel clock{{.tick = 100ms, .refresh = GetParam()}};
    peer p{clock, {.ping_after_send = 60s}};
    clock.advance(std::chrono::milliseconds{phase_ms} + 59s);
    p.timeouts->on_write(1);
    const instant written = clock.now();
    clock.advance(100s);
    ASSERT_FALSE(p.handler.pings.empty());
    EXPECT_GE(p.handler.pings[0], later(written, 60s));
    EXPECT_LT(p.handler.pings[0], later(written, 60s + 100ms));
  }
}

// ---- L: stalls

TEST_P(ProtocolBugCases, Case156_APongThatWaitsUntilWeReadIsAnAnswer) {
  peer p{time, {.ping_after = 10s, .ping_timeout = 20s}};
  time.advance(10s);
  ASSERT_EQ(p.handler.pings.size(), 1u);
  p.look() = {.unread = 2, .last_arrival = at(10010ms)};
  p.timeouts->pause_reading(pause::ours);
  time.advance(40s);
  p.timeouts->resume_reading();
  time.advance(1ms);
  EXPECT_FALSE(p.handler.closed());
  p.say(2);
  EXPECT_FALSE(p.handler.closed());
}

// ---- M: trickles

TEST_P(ProtocolBugCases, Case158_ADripBelowTheReadLimitEndsAtTheTotal) {
  peer p{time, {.request = 1s, .read_idle = 500ms}};
  p.timeouts->enter(phase::body);
  drip(p, 250ms, at(1h));
  expect_asked(p.handler, expiry_reason::request, at(1s));
}

TEST_P(ProtocolBugCases, Case160_ACheckIsNotArmedAnewByEachRead) {
  peer p{time, {.handshake = 2s}};
  drip(p, 500ms, at(1h));
  expect_asked(p.handler, expiry_reason::handshake, at(2s));
}

TEST_P(ProtocolBugCases, Case161_TheSecondPhaseGetsWhatTheFirstLeft) {
  peer p{time, {.request = 1s}};
  p.timeouts->enter(phase::header);
  time.advance(999ms);
  p.timeouts->enter(phase::body);
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::request, at(1s));
}

TEST_P(ProtocolBugCases, Case163_NoRateIsDemandedAfterAnUpgrade) {
  peer p{time, {.min_rate_in = {.bytes_per_second = 240}}};
  p.timeouts->enter(phase::header);
  p.timeouts->enter(phase::upgraded);
  p.say(100);
  time.advance(1h);
  EXPECT_FALSE(p.handler.closed());
}

// ---- N: phases without a limit

TEST_P(ProtocolBugCases, Case166_WhoNeverCompletesTheHandshakeEndsAndOthersDoNot) {
  peer silent{time, {.handshake = 10s}}, other{time, {.handshake = 10s}};
  time.advance(5s);
  other.timeouts->enter(phase::header);
  time.advance(1h);
  expect_asked(silent.handler, expiry_reason::handshake, at(10s));
  EXPECT_FALSE(other.handler.closed());
}

TEST_P(ProtocolBugCases, Case168_TheFirstByteHasALimitOfItsOwn) {
  const timeout_policy on{.header = 10s}, off{.idle = 0s};
  peer limited{time, on}, free{time, off};
  limited.timeouts->enter(phase::header);
  free.timeouts->enter(phase::header);
  time.advance(1h);
  expect_asked(limited.handler, expiry_reason::header, at(10s));
  EXPECT_FALSE(free.handler.closed());
}

TEST_P(ProtocolBugCases, Case170_IdleStartsWhenTheConnectionDoes) {
  time.advance(4s);  // connecting; nothing exists yet
  peer p{time, {.idle = 3s}};
  time.advance(2999ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(1ms);
  expect_asked(p.handler, expiry_reason::idle, at(7s));
}

TEST_P(ProtocolBugCases, Case171_QueuedWritesDoNotSwallowAnExpiry) {
  peer p{time, {.handshake = 200ms}};
  p.timeouts->on_write(1000);
  p.look() = {.unsent = 1000};
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::handshake, at(200ms));
}

// ---- O: the second request

TEST_P(ProtocolBugCases, Case173_TheHeadersClockDoesNotRunBetweenRequests) {
  peer p{time, {.header = 1s}};
  p.timeouts->enter(phase::header);
  p.timeouts->enter(phase::handling);
  p.timeouts->enter(phase::keep_alive);
  time.advance(5s);
  p.timeouts->enter(phase::header);
  p.say(100);
  time.advance(900ms);
  p.timeouts->enter(phase::handling);
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(ProtocolBugCases, Case175_KeepAliveIsEnforcedAfterOneRequest) {
  peer p{time, {.keep_alive = 2s}};
  p.timeouts->enter(phase::header);
  p.say(100);
  p.timeouts->enter(phase::handling);
  p.timeouts->enter(phase::keep_alive);
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::keep_alive, at(2s));
}

TEST_P(ProtocolBugCases, Case176_KeepAliveIsNotHiddenByALongerLimit) {
  peer p{time, {.keep_alive = 1s, .idle = 60s}};
  p.timeouts->enter(phase::keep_alive);
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::keep_alive, at(1s));
}

TEST_P(ProtocolBugCases, Case178_IdleCountsFromOurAnswerNotFromTheRequest) {
  peer p{time, {.keep_alive = 1s}};
  p.timeouts->enter(phase::header);
  p.say();
  p.timeouts->enter(phase::handling);
  time.advance(1500ms);  // a slow query
  p.timeouts->on_write(100);
  p.timeouts->enter(phase::keep_alive);
  time.advance(10ms);
  EXPECT_FALSE(p.handler.closed());
  p.timeouts->enter(phase::header);
}

// ---- P: closing

TEST_P(ProtocolBugCases, Case183_AClosingConnectionIsNotKeptForTheIdleTime) {
  peer p{time, {.idle = 30s, .linger = 2s}};
  p.timeouts->enter(phase::closing);
  time.advance(30s);
  expect_asked(p.handler, expiry_reason::linger, at(2s));
}

// ---- Q: upgrades

TEST_P(ProtocolBugCases, Case185_AnUpgradedConnectionIsNoUnfinishedRequest) {
  peer p{time, {.header = 60s, .request = 60s}};
  p.timeouts->enter(phase::header);
  time.advance(10ms);
  p.timeouts->enter(phase::upgraded);
  time.advance(24h);
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(ProtocolBugCases, Case186_TheSamePolicyIsTheSameThroughEveryDoor) {
  const timeout_policy policy{.idle = 5s, .message_idle = 7s};
  const timeout_policy off{};
  peer constructed{time, policy}, set{time, off};
  set.timeouts->set_policy(policy);
  time.advance(1h);
  expect_asked(constructed.handler, expiry_reason::idle, at(5s));
  expect_asked(set.handler, expiry_reason::idle, at(5s));
}

// ---- R: configuration

TEST_P(ProtocolBugCases, Case190_EachLimitMayBeTheOnlyOneUnset) {
  for (timespan timeout_policy::*unset :
       {&timeout_policy::handshake, &timeout_policy::header, &timeout_policy::idle,
        &timeout_policy::message_idle, &timeout_policy::max_age}) {
    timeout_policy all{.handshake = 1h,
                       .header = 1h,
                       .idle = 1h,
                       .message_idle = 1h,
                       .max_age = 1h,
                       .age_jitter = 0};
    all.*unset = 0s;
    peer p{time, all};
    time.advance(59min);
    EXPECT_FALSE(p.handler.closed());
  }
}

IDLEWHEEL_IN_BOTH_MODES(ProtocolBugCases);

}  // namespace
}  // namespace idlewheel::connection_tests
