// heartbeat_test.cpp - pings: when they are due, what answers them, and when the peer is dead.
#include "tests/connection/support.hpp"

namespace idlewheel::connection_tests {
namespace {

class Heartbeat : public ByMode {
 protected:
  static constexpr timeout_policy policy{.ping_after = 10s, .ping_timeout = 5s};
};

TEST_P(Heartbeat, APeerThatDoesNotAnswerIsDeadAfterBoth) {
  peer p{time, policy};
  p.handler.on_ping = [&] { p.timeouts->on_write(2); };
  time.advance(14999ms);
  EXPECT_EQ(p.handler.pings, std::vector{at(10s)});
  EXPECT_FALSE(p.handler.closed());
  time.advance(1s);
  expect_asked(p.handler, expiry_reason::peer_dead, at(15s));
  EXPECT_EQ(p.reaper.pings(), 1u);
}

TEST_P(Heartbeat, AnyByteAnswers) {
  peer p{time, policy};
  p.handler.on_ping = [&] { p.timeouts->on_write(2); };
  for (int i = 0; i < 10; ++i) {
    time.advance(14s);
    ASSERT_FALSE(p.handler.closed()) << i;
    p.say();
  }
  EXPECT_EQ(p.handler.pings.size(), 10u);
}

// The clock of the next ping runs from the answer, not from the end of the wait for it.
TEST_P(Heartbeat, TheNextPingIsDueAfterTheAnswerHoweverLongTheTimeout) {
  for (const timespan timeout : {timespan{1s}, timespan{5s}, timespan{10s}, timespan{60s}}) {
    manual_wheel host{{.tick = 1ms, .refresh = GetParam()}};
    peer p{host, {.ping_after = 10s, .ping_timeout = timeout}};
    instant heard = at(0s);
    for (const auto answered_after : {0ms, 1ms, 400ms, 999ms}) {
      host.advance(between(host.now(), later(heard, 10s)));
      ASSERT_FALSE(p.handler.pings.empty());
      ASSERT_EQ(p.handler.pings.back(), later(heard, 10s));
      host.advance(answered_after);
      p.say();
      heard = host.now();
    }
    host.advance(between(host.now(), later(heard, 10s)));
    EXPECT_EQ(p.handler.pings.size(), 5u);
    host.advance(timeout);
    expect_asked(p.handler, expiry_reason::peer_dead, later(later(heard, 10s), timeout));
  }
}

TEST_P(Heartbeat, MorePingsThanMayBeMissedIsAsManyAsMay) {
  peer p{time, {.ping_after = 10s, .ping_timeout = 1s, .missed = 1000}};
  time.advance(10s + 1000s);
  expect_asked(p.handler, expiry_reason::peer_dead, at(10s + 255s));
}

TEST_P(Heartbeat, AByteInTheKernelAnswers) {
  peer p{time, policy};
  time.advance(14s);
  p.look() = {.unread = 2};
  time.advance(2s);
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(Heartbeat, TrafficPutsThePingOff) {
  peer p{time, policy};
  for (int i = 0; i < 10; ++i) {
    time.advance(9s);
    p.say();
  }
  EXPECT_TRUE(p.handler.pings.empty());
}

TEST_P(Heartbeat, TheAcknowledgementOfThePingIsNoAnswer) {
  peer p{time, policy};
  p.handler.on_ping = [&] { p.timeouts->on_write(2); };
  time.advance(12s);
  p.look() = {.unsent = 0, .last_delivery = at(10100ms)};
  time.advance(10s);
  expect_asked(p.handler, expiry_reason::peer_dead, at(15s));
}

// The peer's kernel takes them; that is no life of the peer's, neither for idle.
TEST_P(Heartbeat, OurOwnPingsAreNoActivityThoughTheyAreTaken) {
  for (const timeout_policy& pinging :
       {timeout_policy{.idle = 60s, .ping_after_send = 7s},
        timeout_policy{.idle = 60s, .ping_after = 7s, .ping_timeout = 60s},
        timeout_policy{.idle = 60s, .ping_after = 7s, .ping_timeout = 8s, .missed = 10},
        timeout_policy{.idle = 60s, .write_stall = 10s, .ping_after_send = 7s}}) {
    manual_wheel host{{.tick = 1ms, .refresh = GetParam()}};
    peer p{host, pinging};
    p.handler.on_ping = [&] {
      p.timeouts->on_write(2);
      p.look() = {.unsent = 0, .last_delivery = host.now()};
    };
    for (int i = 0; i < 120 && !p.handler.closed(); ++i) {
      p.look().last_delivery = host.now();
      host.advance(1s);
    }
    EXPECT_FALSE(p.handler.pings.empty());
    expect_asked(p.handler, expiry_reason::idle, at(60s));
  }
}

// Behind data they are data, so that what is taken of it is not missed.
TEST_P(Heartbeat, APingBehindDataHidesNoProgressOfIt) {
  peer p{time, {.write_stall = 10s, .ping_after_send = 1s}};
  std::uint64_t queued = 1000;
  p.handler.on_ping = [&] {
    p.timeouts->on_write(50);
    p.look().unsent = queued += 50;
  };
  p.timeouts->on_write(queued);
  p.look().unsent = queued;
  for (int i = 0; i < 100; ++i) {
    time.advance(1s);
    queued -= 51;  // a little more than the pings
    p.look() = {.unsent = queued, .last_delivery = time.now()};
    ASSERT_FALSE(p.handler.closed()) << i;
  }
}

TEST_P(Heartbeat, OurOwnWritesAnswerNothing) {
  peer p{time, policy};
  p.look() = {.unsent = 0};
  for (int i = 0; i < 20 && !p.handler.closed(); ++i) {
    p.timeouts->on_write(100);
    time.advance(1s);
  }
  expect_asked(p.handler, expiry_reason::peer_dead, at(15s));
}

TEST_P(Heartbeat, BehindAQueueThatMovesThePeerIsAlive) {
  peer p{time, policy};
  p.timeouts->on_write(100'000);
  p.look() = {.unsent = 90'000, .last_delivery = at(9s)};
  time.advance(10s);
  ASSERT_EQ(p.handler.pings.size(), 1u);
  p.timeouts->on_write(2);  // the ping
  for (unsigned i = 1; i <= 8; ++i) {
    time.advance(4s);
    ASSERT_FALSE(p.handler.closed()) << i;
    p.look() = {.unsent = 90'002 - 10'000 * i, .last_delivery = time.now()};
  }
  // The queue before the ping has gone at 42 s; from then on the ping has its time.
  time.advance(4s);
  p.look() = {.unsent = 0, .last_delivery = time.now()};
  time.advance(4900ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(20s);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].reason, expiry_reason::peer_dead);
  EXPECT_LE(p.handler.when[0], at(46s + 5s));
}

TEST_P(Heartbeat, BehindAQueueThatStandsThePeerIsDeadInTime) {
  peer p{time, {.write_stall = 60s, .ping_after = 10s, .ping_timeout = 5s}};
  p.timeouts->on_write(100'000);
  p.look() = {.unsent = 100'000};
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::peer_dead, at(15s));
}

TEST_P(Heartbeat, SeveralMayBeMissed) {
  peer p{time, {.ping_after = 10s, .ping_timeout = 5s, .missed = 3}};
  time.advance(24900ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::peer_dead, at(25s));
  EXPECT_EQ(p.handler.pings, (std::vector{at(10s), at(15s), at(20s)}));
}

TEST_P(Heartbeat, AnAnswerForgivesTheMissedOnes) {
  peer p{time, {.ping_after = 10s, .ping_timeout = 5s, .missed = 2}};
  for (int i = 0; i < 5; ++i) {
    time.advance(19s);  // a ping at 10, one missed at 15
    ASSERT_FALSE(p.handler.closed()) << i;
    p.say();
  }
  EXPECT_EQ(p.handler.pings.size(), 10u);
  time.advance(1h);
  EXPECT_EQ(p.handler.when[0], at(5 * 19s + 20s));
}

TEST_P(Heartbeat, ALateTickChargesOneMissedPingAndForgivesNone) {
  peer p{time, {.ping_after = 10s, .ping_timeout = 5s, .missed = 3}};
  time.advance(10s);
  ASSERT_EQ(p.handler.pings.size(), 1u);
  time.block(100s);  // twenty timeouts long
  time.advance(1ms);
  EXPECT_EQ(p.handler.pings.size(), 2u);
  EXPECT_FALSE(p.handler.closed());
  time.advance(1h);
  EXPECT_EQ(p.handler.pings.size(), 3u);
  expect_asked(p.handler, expiry_reason::peer_dead, later(p.handler.pings[2], 5s));
}

TEST_P(Heartbeat, AnAnswerThatCameDuringAStallCounts) {
  peer p{time, policy};
  time.advance(10s);
  time.block(30s);
  p.say();
  time.advance(1s);
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(Heartbeat, PingsForPeersThatTimeUsFollowOurOwnSilence) {
  peer p{time, {.ping_after_send = 60s}};
  p.handler.on_ping = [&] { p.timeouts->on_write(2); };
  for (int i = 0; i < 30; ++i) {
    time.advance(10s);
    p.say();  // which says nothing about what we send
  }
  EXPECT_EQ(p.handler.pings, (std::vector{at(60s), at(120s), at(180s), at(240s), at(300s)}));
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(Heartbeat, AWritePutsThatPingOff) {
  peer p{time, {.ping_after_send = 60s}};
  time.advance(59s);
  p.timeouts->on_write(10);
  time.advance(59s);
  EXPECT_TRUE(p.handler.pings.empty());
  time.advance(1s);
  EXPECT_EQ(p.handler.pings, std::vector{at(119s)});
}

TEST_P(Heartbeat, AHandlerThatSendsNothingIsNotAskedInALoop) {
  peer p{time, {.ping_after_send = 1s}};
  time.advance(10s);
  EXPECT_EQ(p.handler.pings.size(), 10u);
}

TEST_P(Heartbeat, WhoAnswersPingsAndSaysNothingIsIdleForTheApplication) {
  peer p{time, {.message_idle = 600s, .ping_after = 60s, .ping_timeout = 5s}};
  p.handler.on_ping = [&] { p.timeouts->on_write(2); };
  while (!p.handler.closed() && time.now() < at(2h)) {
    time.advance(1s);
    if (!p.handler.pings.empty() && p.handler.pings.back() == time.now()) p.say(2);  // the pong
  }
  expect_asked(p.handler, expiry_reason::message_idle, at(600s));
}

TEST_P(Heartbeat, MessagesKeepTheApplicationFromBeingIdle) {
  peer p{time, {.message_idle = 10s}};
  for (int i = 0; i < 10; ++i) {
    time.advance(9s);
    p.timeouts->on_message();
  }
  EXPECT_FALSE(p.handler.closed());
  time.advance(11s);
  expect_asked(p.handler, expiry_reason::message_idle, at(100s));
}

TEST_P(Heartbeat, TheHandlerMayEndTheConnectionWhenAPingIsDue) {
  peer p{time, policy};
  p.handler.on_ping = [&] { p.timeouts.reset(); };
  time.advance(1h);
  EXPECT_EQ(p.handler.pings.size(), 1u);
  EXPECT_FALSE(p.handler.closed());
  EXPECT_EQ(time.wheel().size(), 0u);
}

TEST_P(Heartbeat, TheHandlerMayStopItAndDestroyReaperAndHostWhenAPingIsDue) {
  auto host = std::make_unique<manual_wheel>(
      testing::manual_wheel_options{.tick = 1ms, .refresh = GetParam()});
  auto reaper = std::make_unique<connection_reaper>(*host);
  recorder handler{time};
  std::optional<connection_timeouts> timeouts;
  timeouts.emplace(*reaper, policy, socket_view{}, handler);
  handler.on_ping = [&] {
    timeouts->stop();
    reaper.reset();
    host.reset();
    timeouts.reset();
  };
  host->advance(20s);
  EXPECT_EQ(handler.pings.size(), 1u);
}

IDLEWHEEL_IN_BOTH_MODES(Heartbeat);

}  // namespace
}  // namespace idlewheel::connection_tests
