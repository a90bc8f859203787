// connection_timeouts_test.cpp - every sentence of connection_timeouts.hpp and timeout_policy.hpp,
// on a wheel that the test winds by hand: times are exact.
#include "idlewheel/connection/connection_timeouts.hpp"

#include <deque>
#include <stdexcept>
#include <string>

#include "tests/connection/support.hpp"

namespace idlewheel::connection_tests {
namespace {

// The policy -------------------------------------------------------------------------------------

TEST(TimeoutPolicy, EveryLimitIsOffAtFirst) {
  const timeout_policy policy{};
  EXPECT_EQ(policy.idle, timespan{});
  EXPECT_EQ(policy.read_idle, timespan{});
  EXPECT_NO_THROW(policy.validate());
}

TEST(TimeoutPolicy, ValidateRefusesANegativeLimitWithItsNameAndValue) {
  const auto text = [](const timeout_policy& policy) -> std::string {
    try {
      policy.validate();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(text(idle_of(-1ns)), "idlewheel: timeout_policy::idle is 0 (off) or more, not -1 ns");
  EXPECT_EQ(text(read_idle_of(-30s)),
            "idlewheel: timeout_policy::read_idle is 0 (off) or more, not -30000000000 ns");
  EXPECT_EQ(text({.idle = 0ns, .read_idle = 0ns}), "accepted");
  EXPECT_EQ(text({.idle = 1ns, .read_idle = timespan::max()}), "accepted");
}

TEST(ExpiryReason, HasANameForLogs) {
  EXPECT_STREQ(name_of(expiry_reason::idle), "idle");
  EXPECT_STREQ(name_of(expiry_reason::read_idle), "read_idle");
}

TEST(Verdict, SaysWhatItWasMadeAs) {
  EXPECT_FALSE(verdict::close().extension());
  EXPECT_EQ(verdict::extend(3s).extension(), timespan{3s});
  EXPECT_EQ(verdict::extend(0s).extension(), timespan{}) << "more time, if none, is no close";
}

// Limits and activity ----------------------------------------------------------------------------

class ConnectionTimeouts : public ByMode {};

TEST_P(ConnectionTimeouts, ASilentConnectionIsAskedAboutAtItsLimitExactly) {
  for (const auto& [policy, reason] : {std::pair{idle_of(10s), expiry_reason::idle},
                                       std::pair{read_idle_of(10s), expiry_reason::read_idle}}) {
    const instant begun = time.now();
    peer p{time, policy};
    time.advance(9999ms);
    EXPECT_FALSE(p.handler.closed());
    time.advance(1ms);
    ASSERT_EQ(p.handler.asked.size(), 1u);
    EXPECT_EQ(p.handler.asked[0].reason, reason);
    EXPECT_EQ(p.handler.asked[0].since, begun);
    EXPECT_EQ(p.handler.asked[0].due, begun + 10s);
    EXPECT_EQ(p.handler.when[0], begun + 10s);
  }
}

TEST_P(ConnectionTimeouts, ItsClocksStartFromAFreshRead) {
  time.block(5s);  // the poll is that old
  peer p{time, idle_of(10s)};
  EXPECT_EQ(p.timeouts->last_activity(), at(5s));
  time.advance(9999ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(1ms);
  EXPECT_TRUE(p.handler.closed());
}

TEST_P(ConnectionTimeouts, BytesInMoveBothLimits) {
  for (const timeout_policy& policy :
       {idle_of(10s), read_idle_of(10s), timeout_policy{.idle = 10s, .read_idle = 11s},
        timeout_policy{.idle = 11s, .read_idle = 10s}}) {
    peer p{time, policy};
    for (int i = 0; i != 20; ++i) {
      time.advance(9s);
      p.say();
    }
    EXPECT_FALSE(p.handler.closed());
    const instant last = time.now();
    EXPECT_EQ(p.timeouts->last_activity(), last);
    time.advance(9999ms);
    EXPECT_FALSE(p.handler.closed());
    time.advance(1ms);
    ASSERT_TRUE(p.handler.closed());
    EXPECT_EQ(p.handler.asked[0].since, last);
  }
}

TEST_P(ConnectionTimeouts, AnEventWithoutBytesIsNoActivity) {
  peer p{time, idle_of(10s)};
  for (int i = 0; i != 9; ++i) {
    time.advance(1s);
    p.say(0);
  }
  EXPECT_EQ(p.timeouts->last_activity(), at(0s));
  time.advance(1s);
  EXPECT_TRUE(p.handler.closed());
}

TEST_P(ConnectionTimeouts, TheSoonerOfTwoLimitsIsNamed) {
  peer a{time, {.idle = 5s, .read_idle = 7s}};
  peer b{time, {.idle = 7s, .read_idle = 5s}};
  time.advance(5s);
  ASSERT_EQ(a.handler.asked.size(), 1u);
  ASSERT_EQ(b.handler.asked.size(), 1u);
  EXPECT_EQ(a.handler.asked[0].reason, expiry_reason::idle);
  EXPECT_EQ(b.handler.asked[0].reason, expiry_reason::read_idle);
  time.advance(1h);
  EXPECT_EQ(a.handler.asked.size() + b.handler.asked.size(), 2u) << "after close nothing more";
}

TEST_P(ConnectionTimeouts, TwoLimitsAtTheSameMomentAreOneQuestion) {
  peer p{time, {.idle = 5s, .read_idle = 5s}};
  time.advance(1h);
  EXPECT_EQ(p.handler.asked.size(), 1u);
}

TEST_P(ConnectionTimeouts, ZeroIsOffAndArmsNothing) {
  peer none{time, {}};
  EXPECT_EQ(time.wheel().size(), 0u);
  peer negative{time, {.idle = -1s, .read_idle = -1s}};  // not validated, and off all the same
  EXPECT_EQ(time.wheel().size(), 0u);
  none.say();
  negative.say();
  peer one{time, read_idle_of(1h)};
  EXPECT_EQ(time.wheel().size(), 1u);
  time.advance(59min);
  EXPECT_FALSE(none.handler.closed() || negative.handler.closed() || one.handler.closed());
}

TEST_P(ConnectionTimeouts, ALimitTooLongIsNever) {
  peer p{time, {.idle = timespan::max(), .read_idle = std::chrono::hours::max()}};
  time.advance(24h * 365 * 100);
  p.say();
  time.advance(24h * 365 * 100);
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(ConnectionTimeouts, IsOneTimerHoweverManyItsLimits) {
  peer p{time, {.idle = 5s, .read_idle = 7s}};
  EXPECT_EQ(time.wheel().size(), 1u);
  p.say();
  p.timeouts->set_policy({.idle = 5s, .read_idle = 7s});
  EXPECT_EQ(time.wheel().size(), 1u);
  p.timeouts->stop();
  EXPECT_EQ(time.wheel().size(), 0u);
}

TEST_P(ConnectionTimeouts, TheFirstOfManyReadsOfOnePollIsAsGoodAsTheLast) {
  peer p{time, idle_of(10s)};
  time.advance(4s);
  time.poll();
  for (int i = 0; i != 5; ++i) p.timeouts->on_read(100);
  time.turn();
  time.advance(9999ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(1ms);
  EXPECT_TRUE(p.handler.closed());
}

// Bytes out --------------------------------------------------------------------------------------

TEST_P(ConnectionTimeouts, BytesWrittenAreNoActivityUntilThePeerTakesThem) {
  for (const bool known : {false, true}) {
    const instant begun = time.now();
    peer p{time, idle_of(10s)};
    if (known) p.look().unsent = 0;
    for (int i = 0; i != 100; ++i) {
      time.advance(50ms);
      p.timeouts->on_write(100);
      if (known) *p.look().unsent += 100;
    }
    EXPECT_EQ(p.timeouts->last_activity(), begun);
    time.advance(5s);
    ASSERT_TRUE(p.handler.closed());
    EXPECT_EQ(p.handler.asked[0].since, begun);
  }
}

TEST_P(ConnectionTimeouts, BytesThatThePeerTookCountFromWhenItDid) {
  peer p{time, idle_of(10s)};
  p.timeouts->on_write(1'000);
  p.look() = {.unread = 0, .unsent = 0, .last_arrival = {}, .last_delivery = at(7s)};
  time.advance(16999ms);
  EXPECT_FALSE(p.handler.closed());
  EXPECT_EQ(p.timeouts->last_activity(), at(7s));
  time.advance(1ms);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].since, at(7s));
  EXPECT_EQ(p.handler.when[0], at(17s));
}

TEST_P(ConnectionTimeouts, BytesThatThePeerTookWithoutADateCountFromTheLook) {
  peer p{time, idle_of(10s)};
  p.timeouts->on_write(1'000);
  p.look().unsent = 999;
  time.advance(19999ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(1ms);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].since, at(10s));
}

TEST_P(ConnectionTimeouts, AQueueThatDrainsKeepsItAliveAndOneThatStandsDoesNot) {
  peer p{time, idle_of(10s)};
  p.timeouts->on_write(10'000);
  p.look().unsent = 10'000;
  for (std::uint64_t left = 9'999; left != 9'990; --left) {
    time.advance(9s);
    p.look().unsent = left;
    p.look().last_delivery = time.now();
  }
  EXPECT_FALSE(p.handler.closed());
  const instant last = time.now();
  time.advance(9999ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(1ms);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].since, last);
}

TEST_P(ConnectionTimeouts, AQueueThatTheProgramKeepsFullIsNotStandingStill) {
  peer p{time, idle_of(10s)};
  p.look().unsent = 0;
  for (int i = 0; i != 100; ++i) {
    p.timeouts->on_write(500);  // as much as the peer took
    p.look().unsent = 500;
    p.look().last_delivery = time.now();
    time.advance(1s);
  }
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(ConnectionTimeouts, AnAcknowledgementWithoutProgressIsNone) {
  // The peer's kernel answers window probes; nothing has been taken.
  peer p{time, idle_of(10s)};
  p.timeouts->on_write(1'000);
  p.look().unsent = 1'000;
  for (int i = 0; i != 99; ++i) {
    time.advance(100ms);
    p.look().last_delivery = time.now();
  }
  time.advance(100ms);
  EXPECT_TRUE(p.handler.closed());
}

TEST_P(ConnectionTimeouts, AnAcknowledgementOfLongAgoMovesNothingBack) {
  peer p{time, idle_of(10s)};
  p.timeouts->on_write(10);
  p.look().unsent = 0;
  p.look().last_delivery = at(0s) - 100s;
  time.advance(10s);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].since, at(0s));
}

TEST_P(ConnectionTimeouts, ADateThatComesAfterALookWithoutOneMovesNothingBack) {
  peer p{time, idle_of(10s)};
  p.timeouts->on_write(10);
  p.look().unsent = 5;
  time.advance(10s);  // some was taken, by now at the latest
  p.look().unsent = 0;
  p.look().last_delivery = at(3s);
  time.advance(9999ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(1ms);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].since, at(10s));
}

TEST_P(ConnectionTimeouts, MoreUnsentThanWasCountedSaysNothing) {
  // Somebody else writes too, or the kernel counts its own memory.
  peer p{time, idle_of(10s)};
  p.timeouts->on_write(10);
  p.look().unsent = 4'000;
  time.advance(10s);
  EXPECT_TRUE(p.handler.closed());
}

TEST_P(ConnectionTimeouts, WithNothingWrittenAnEmptyQueueIsNoProgress) {
  peer p{time, idle_of(10s)};
  p.look() = {.unread = 0, .unsent = 0, .last_arrival = {}, .last_delivery = at(9s)};
  time.advance(10s);
  EXPECT_TRUE(p.handler.closed());
}

TEST_P(ConnectionTimeouts, BytesOutDoNotMoveReadIdle) {
  peer p{time, read_idle_of(10s)};
  p.timeouts->on_write(1'000);
  p.look() = {.unread = 0, .unsent = 0, .last_arrival = {}, .last_delivery = at(9s)};
  time.advance(10s);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].since, at(0s));
  // Nor when idle, which they move, runs out at the same time.
  peer both{time, {.idle = 10s, .read_idle = 10s}};
  both.timeouts->on_write(1'000);
  both.look() = {.unread = 0, .unsent = 1, .last_arrival = {}, .last_delivery = time.now() + 9s};
  time.advance(10s);
  ASSERT_TRUE(both.handler.closed());
  EXPECT_EQ(both.handler.asked[0].reason, expiry_reason::read_idle);
}

// Writes that the program does not tell: splice, sendfile, another library's.

TEST_P(ConnectionTimeouts, WhatThePeerTakesOfUntoldWritesIsActivity) {
  peer p{time, idle_of(10s)};
  std::uint64_t taken = (std::uint64_t{1} << 32) - 100'000;
  for (int i = 0; i < 40; ++i) {
    p.look() = {.unsent = 100'000, .last_delivery = time.now(), .acknowledged = taken += 9'000};
    time.advance(4s);
    ASSERT_FALSE(p.handler.closed()) << i;
  }
  time.advance(1min);
  expect_asked(p.handler, expiry_reason::idle, at(39 * 4s + 10s));
}

TEST_P(ConnectionTimeouts, AnAcknowledgementOfNothingNewIsNoActivity) {
  // It answers window probes, or sends keep-alives of its own.
  peer p{time, idle_of(10s)};
  p.look() = {.unsent = 100'000, .last_delivery = at(0s), .acknowledged = 5000};
  for (int i = 0; i < 40 && !p.handler.closed(); ++i) {
    time.advance(1s);
    p.look().last_delivery = time.now();
  }
  ASSERT_TRUE(p.handler.closed());
  EXPECT_LE(p.handler.when[0], at(20s)) << "the first look cannot know; the second does";
}

TEST_P(ConnectionTimeouts, UntoldWritesMoveNoLimitOnReads) {
  peer p{time, read_idle_of(10s)};
  p.look() = {.unsent = 0, .last_delivery = at(9s), .acknowledged = 5000};
  time.advance(1min);
  expect_asked(p.handler, expiry_reason::read_idle, at(10s));
}

TEST_P(ConnectionTimeouts, BesideUntoldWritesOurPingsAreStillNoActivity) {
  peer p{time, {.idle = 60s, .ping_after_send = 7s}};
  std::uint64_t taken = 5000;
  p.look() = {.unsent = 0, .last_delivery = at(0s), .acknowledged = taken};
  p.handler.on_ping = [&] { p.timeouts->on_write(2); };
  time.advance(12s);
  EXPECT_EQ(p.handler.pings.size(), 1u);
  for (int i = 0; i < 200 && !p.handler.closed(); ++i) {
    // The first untold bytes were seen with the ping; later only pings are acknowledged.
    p.look() = {.unsent = 0,
                .last_delivery = time.now(),
                .acknowledged = taken + 2 * p.handler.pings.size()};
    time.advance(1s);
  }
  ASSERT_TRUE(p.handler.closed());
  EXPECT_LE(p.handler.when[0], at(67s));
}

TEST_P(ConnectionTimeouts, OnceToldWritesAreCountedAsTold) {
  peer p{time, idle_of(10s)};
  p.look() = {.unsent = 0, .last_delivery = at(0s), .acknowledged = 77};
  time.advance(1s);
  p.timeouts->on_write(100);
  p.look() = {.unsent = 100, .last_delivery = at(1s), .acknowledged = 77};
  time.advance(1min);
  expect_asked(p.handler, expiry_reason::idle, at(10s));
}

// Bytes in the kernel ----------------------------------------------------------------------------

TEST_P(ConnectionTimeouts, UnreadBytesAtExpiryAreActivity) {
  for (const bool dated : {false, true})
    for (const timeout_policy& policy : {idle_of(10s), read_idle_of(10s)}) {
      peer p{time, policy};
      p.look().unread = 1;
      // However old: the next poll will report them, and the program reads.
      if (dated) p.look().last_arrival = time.now() + 1s;
      time.advance(10s);
      EXPECT_FALSE(p.handler.closed());
      p.look().unread = 0;
      const instant looked = time.now();
      time.advance(9999ms);
      EXPECT_FALSE(p.handler.closed());
      time.advance(1ms);
      ASSERT_TRUE(p.handler.closed());
      EXPECT_EQ(p.handler.asked[0].since, looked);
    }
}

TEST_P(ConnectionTimeouts, IsAskedAboutOnlyAfterALookAndLooksAtNoOtherTime) {
  peer p{time, idle_of(10s)};
  for (int i = 0; i != 50; ++i) {
    time.advance(1s);
    p.say(100);
    p.timeouts->on_write(100);
  }
  EXPECT_EQ(time.looks(), 0u);
  time.advance(10s);
  EXPECT_TRUE(p.handler.closed());
  EXPECT_EQ(time.looks(), 1u);
}

TEST_P(ConnectionTimeouts, ASocketThatSaysNothingChangesNothing) {
  recorder handler{time};
  const timeout_policy policy = idle_of(10s);
  connection_reaper reaper{time};
  connection_timeouts none{reaper, policy, {}, handler};
  none.on_write(10);
  time.advance(10s);
  EXPECT_TRUE(handler.closed());
}

TEST_P(ConnectionTimeouts, WhilePausedBytesCountFromWhenTheyCame) {
  peer p{time, read_idle_of(10s)};
  p.timeouts->pause_reading();
  p.look().unread = 5;
  p.look().last_arrival = at(4s);
  time.advance(13999ms);
  EXPECT_FALSE(p.handler.closed()) << "4 s is news at 10 s";
  time.advance(1ms);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].since, at(4s));
}

TEST_P(ConnectionTimeouts, WhilePausedNewBytesAreStillActivity) {
  peer p{time, read_idle_of(10s)};
  p.timeouts->pause_reading();
  p.look().unread = 0;
  for (int i = 0; i != 10; ++i) {
    time.advance(9s);
    ++*p.look().unread;
    p.look().last_arrival = time.now();
  }
  EXPECT_FALSE(p.handler.closed());
  time.advance(10s);
  EXPECT_TRUE(p.handler.closed());
}

TEST_P(ConnectionTimeouts, WhilePausedBytesOlderThanTheLastReadAreNone) {
  peer p{time, read_idle_of(10s)};
  time.advance(5s);
  p.say();
  p.timeouts->pause_reading();
  p.look().unread = 5;
  p.look().last_arrival = at(1s);
  time.advance(10s);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].since, at(5s));
}

TEST_P(ConnectionTimeouts, WhilePausedWithoutDatesOnlyWhatWasAddedIsNews) {
  // "Until resume_reading(), bytes waiting in the kernel count from when they came, not as news.
  // Stops no clock." Without a date the first look cannot know; the second sees the same bytes.
  peer p{time, read_idle_of(10s)};
  p.timeouts->pause_reading();
  p.look().unread = 5;
  time.advance(10s);
  EXPECT_FALSE(p.handler.closed()) << "they may have come just now";
  time.advance(9s);
  p.look().unread = 6;
  time.advance(1s);
  EXPECT_FALSE(p.handler.closed()) << "one more has come";
  time.advance(10s);
  EXPECT_TRUE(p.handler.closed()) << "none has come since the look before";
}

TEST_P(ConnectionTimeouts, PausedAgainAsManyBytesAsBeforeAreNotTheSameBytes) {
  peer p{time, read_idle_of(10s)};
  p.timeouts->pause_reading();
  p.look().unread = 5;
  time.advance(10s);  // looked at, and taken for news
  time.advance(2s);
  p.timeouts->resume_reading();
  p.say(5);
  p.look().unread = 0;
  p.timeouts->pause_reading();
  time.advance(8s);
  p.look().unread = 5;  // others, at 20 s
  time.advance(2s);
  EXPECT_FALSE(p.handler.closed()) << "2 s after bytes came in";
}

TEST_P(ConnectionTimeouts, PausingStopsNoClock) {
  peer p{time, {.idle = 10s, .read_idle = 20s}};
  p.timeouts->pause_reading();
  time.advance(10s);
  EXPECT_TRUE(p.handler.closed());
}

TEST_P(ConnectionTimeouts, ResumedUnreadBytesAreNewsAgain) {
  peer p{time, read_idle_of(10s)};
  p.timeouts->pause_reading();
  p.timeouts->resume_reading();
  p.look().unread = 5;
  p.look().last_arrival = at(0s);
  time.advance(10s);
  EXPECT_FALSE(p.handler.closed());
  EXPECT_EQ(p.timeouts->last_activity(), at(10s));
}

// Stalls -----------------------------------------------------------------------------------------

TEST_P(ConnectionTimeouts, AStallChargesNobodyWhoSpoke) {
  peer spoke{time, idle_of(1s)}, silent{time, idle_of(1s)};
  time.advance(500ms);
  time.block(3s);
  time.poll();  // the kernel held bytes of one of them
  spoke.timeouts->on_read(1);
  time.turn();
  EXPECT_FALSE(spoke.handler.closed());
  EXPECT_TRUE(silent.handler.closed());
  time.advance(999ms);
  EXPECT_FALSE(spoke.handler.closed());
  time.advance(1ms);
  EXPECT_TRUE(spoke.handler.closed());
}

TEST_P(ConnectionTimeouts, BytesReadInTheTurnThatStalledAreNotAsOldAsItsPoll) {
  for (const timeout_policy& policy : {idle_of(1s), read_idle_of(1s)}) {
    peer p{time, policy};
    time.advance(500ms);
    time.block(3s);  // another handler of the same poll
    p.timeouts->on_read(1);
    const instant read = time.now();
    time.turn();
    time.advance(999ms);
    EXPECT_FALSE(p.handler.closed());
    time.advance(1ms);
    ASSERT_TRUE(p.handler.closed());
    EXPECT_EQ(p.handler.asked[0].since, read);
    EXPECT_EQ(p.handler.asked[0].due, read + 1s);
  }
}

TEST_P(ConnectionTimeouts, ANewConnectionReadInTheTurnThatStalledIsNotOlderThanItself) {
  // Accepted after the block, read at once: the poll's stamp is older than the connection.
  peer other{time, idle_of(1h)};
  time.advance(500ms);
  time.block(3s);
  peer p{time, idle_of(1s)};
  p.timeouts->on_read(1);
  time.turn();
  time.advance(999ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(1ms);
  EXPECT_TRUE(p.handler.closed());
}

TEST_P(ConnectionTimeouts, BytesReadInATurnThatStalledCountForALimitSwitchedOnLater) {
  // No limit was on, so that nothing was armed when the bytes were read.
  peer p{time, {}};
  time.advance(500ms);
  time.block(3s);
  p.timeouts->on_read(1);
  const instant read = time.now();
  time.turn();
  const timeout_policy on = idle_of(1s);
  p.timeouts->set_policy(on);
  time.advance(999ms);
  EXPECT_FALSE(p.handler.closed()) << "asked " << between(read, time.now()).count_ns() / 1'000'000
                                   << " ms at most after bytes were read";
  time.advance(1ms);
  EXPECT_TRUE(p.handler.closed());
}

// The handler's answer ---------------------------------------------------------------------------

TEST_P(ConnectionTimeouts, AfterCloseItIsStoppedAndNothingMoreIsDelivered) {
  peer p{time, {.idle = 1s, .read_idle = 2s}};
  bool stopped_inside = true;
  p.handler.answer = [&](const expiry&) {
    stopped_inside = p.timeouts->stopped();
    return verdict::close();
  };
  time.advance(1s);
  EXPECT_FALSE(stopped_inside);
  EXPECT_TRUE(p.timeouts->stopped());
  EXPECT_EQ(time.wheel().size(), 0u);
  p.say();
  const timeout_policy other = idle_of(1s);
  p.timeouts->set_policy(other);
  time.advance(1h);
  EXPECT_EQ(p.handler.asked.size(), 1u);
}

TEST_P(ConnectionTimeouts, AnExtensionIsThatMuchMoreTime) {
  peer p{time, {.idle = 10s, .read_idle = 11s}};
  p.handler.answer = [](const expiry&) { return verdict::extend(3s); };
  time.advance(10s);
  EXPECT_EQ(p.handler.asked.size(), 1u);
  EXPECT_FALSE(p.timeouts->stopped());
  time.advance(2999ms);
  EXPECT_EQ(p.handler.asked.size(), 1u) << "nor is the other limit, which ran out at 11 s, judged";
  time.advance(1ms);
  ASSERT_EQ(p.handler.asked.size(), 2u);
  EXPECT_EQ(p.handler.asked[1].since, at(0s)) << "the limit is what it was";
  EXPECT_EQ(p.handler.asked[1].due, at(10s));
  EXPECT_EQ(p.handler.when[1], at(13s));
}

TEST_P(ConnectionTimeouts, AnExtensionCountsFromNowHoweverSlowTheHandler) {
  peer p{time, idle_of(10s)};
  p.handler.answer = [this](const expiry&) {
    time.block(5s);
    return verdict::extend(3s);
  };
  time.advance(10s);
  ASSERT_EQ(p.handler.asked.size(), 1u);
  time.advance(18s - between(instant{}, time.now()).count_ns() * 1ns - 1ms);
  EXPECT_EQ(p.handler.asked.size(), 1u);
  time.advance(1ms);
  EXPECT_EQ(p.handler.asked.size(), 2u);
}

TEST_P(ConnectionTimeouts, DuringAnExtensionActivityCountsAsEver) {
  peer p{time, idle_of(10s)};
  p.handler.answer = [](const expiry&) { return verdict::extend(30s); };
  time.advance(10s);
  time.advance(25s);
  p.say();  // at 35 s: the limit is at 45, the extension until 40
  time.advance(9999ms);
  EXPECT_EQ(p.handler.asked.size(), 1u);
  time.advance(1ms);
  ASSERT_EQ(p.handler.asked.size(), 2u);
  EXPECT_EQ(p.handler.asked[1].since, at(35s));
}

TEST_P(ConnectionTimeouts, NoReadCutsAnExtensionShort) {
  for (const timeout_policy& policy : {idle_of(10s), timeout_policy{.body = 11s, .idle = 10s}}) {
    manual_wheel host{{.tick = 1ms, .refresh = GetParam()}};
    peer p{host, policy};
    p.timeouts->enter(phase::body);
    p.handler.answer = [&](const expiry&) {
      return p.handler.asked.size() == 1 ? verdict::extend(1h) : verdict::close();
    };
    host.advance(10s);
    ASSERT_EQ(p.handler.asked.size(), 1u);
    host.advance(5s);
    p.say();
    host.advance(1h - 5001ms);
    EXPECT_EQ(p.handler.asked.size(), 1u);
    host.advance(2ms);
    EXPECT_EQ(p.handler.asked.size(), 2u);
    EXPECT_EQ(p.handler.when.back(), at(1h + 10s));
  }
}

TEST_P(ConnectionTimeouts, DuringAnExtensionAnEarlierLimitWaits) {
  peer p{time, idle_of(10s)};
  p.handler.answer = [](const expiry&) { return verdict::extend(30s); };
  time.advance(10s);
  time.advance(5s);
  p.say();  // at 15 s: the limit is at 25, the extension until 40
  const timeout_policy shorter = idle_of(1s);
  p.timeouts->set_policy(shorter);
  time.advance(24999ms);
  EXPECT_EQ(p.handler.asked.size(), 1u);
  time.advance(1ms);
  EXPECT_EQ(p.handler.asked.size(), 2u);
  EXPECT_EQ(p.handler.when[1], at(40s));
}

TEST_P(ConnectionTimeouts, AnExtensionOfNothingIsAskedAgainAtTheNextTick) {
  for (const timespan nothing : {timespan{0s}, timespan{-5s}, timespan{-1ns}}) {
    peer p{time, idle_of(10s)};
    p.handler.answer = [&](const expiry&) {
      return p.handler.asked.size() < 4 ? verdict::extend(nothing) : verdict::close();
    };
    time.advance(11s);
    ASSERT_EQ(p.handler.asked.size(), 4u);
    for (std::size_t i = 1; i != 4; ++i)
      EXPECT_EQ(p.handler.when[i] - p.handler.when[i - 1], 1ms)
          << "a tick, and not in the same turn";
  }
}

TEST_P(ConnectionTimeouts, AnExtensionForEverIsNeverAskedAgain) {
  peer p{time, idle_of(10s)};
  p.handler.answer = [](const expiry&) { return verdict::extend(timespan::max()); };
  time.advance(24h * 365 * 100);
  EXPECT_EQ(p.handler.asked.size(), 1u);
  EXPECT_FALSE(p.timeouts->stopped());
}

// Other policies ---------------------------------------------------------------------------------

TEST_P(ConnectionTimeouts, AnotherPolicyCountsFromTheSameActivity) {
  peer p{time, idle_of(10s)};
  time.advance(4s);
  const timeout_policy shorter = idle_of(6s), longer = idle_of(20s);
  p.timeouts->set_policy(longer);
  time.advance(10s);
  EXPECT_FALSE(p.handler.closed());
  p.timeouts->set_policy(shorter);  // overdue since 6 s, at 14 s
  EXPECT_FALSE(p.handler.closed()) << "never inside the call";
  time.advance(1ms);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].since, at(0s));
  EXPECT_EQ(p.handler.asked[0].due, at(6s));

  peer q{time, idle_of(10s)};
  time.advance(2s);
  q.timeouts->set_policy(shorter);
  time.advance(3999ms);
  EXPECT_FALSE(q.handler.closed());
  time.advance(1ms);
  EXPECT_TRUE(q.handler.closed());
}

TEST_P(ConnectionTimeouts, ReadsObeyTheNewPolicy) {
  peer p{time, idle_of(10s)};
  const timeout_policy shorter = read_idle_of(2s), longer = idle_of(30s);
  p.timeouts->set_policy(shorter);
  time.advance(1s);
  p.say();
  time.advance(1999ms);
  EXPECT_FALSE(p.handler.closed());
  p.timeouts->set_policy(longer);
  time.advance(1s);
  p.say();
  time.advance(29999ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(1ms);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].reason, expiry_reason::idle);
}

TEST_P(ConnectionTimeouts, OffAndOnAgain) {
  peer p{time, idle_of(10s)};
  const timeout_policy off{}, on = idle_of(10s);
  time.advance(5s);
  p.timeouts->set_policy(off);
  EXPECT_EQ(time.wheel().size(), 0u);
  time.advance(1h);
  EXPECT_FALSE(p.handler.closed());
  p.say();
  EXPECT_EQ(time.wheel().size(), 0u) << "bytes do not switch it on";
  time.advance(5s);
  p.timeouts->set_policy(on);
  time.advance(4999ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(1ms);
  EXPECT_TRUE(p.handler.closed()) << "10 s after what was read while it was off";
}

TEST_P(ConnectionTimeouts, TheHandlerMayChangeThePolicy) {
  const timeout_policy longer = idle_of(25s), off{}, shorter = idle_of(1s);
  peer by_extension{time, idle_of(10s)}, switched_off{time, idle_of(10s)},
      closed{time, idle_of(10s)}, shortened{time, idle_of(10s)};
  by_extension.handler.answer = [&](const expiry&) {
    by_extension.timeouts->set_policy(longer);
    return verdict::extend(0s);
  };
  switched_off.handler.answer = [&](const expiry&) {
    switched_off.timeouts->set_policy(off);
    return verdict::extend(1s);
  };
  closed.handler.answer = [&](const expiry&) {
    closed.timeouts->set_policy(longer);
    return verdict::close();
  };
  shortened.handler.answer = [&](const expiry&) {
    shortened.timeouts->set_policy(shorter);
    return shortened.handler.asked.size() == 1 ? verdict::extend(5s) : verdict::close();
  };
  time.advance(24999ms);
  EXPECT_EQ(by_extension.handler.asked.size(), 1u);
  EXPECT_EQ(shortened.handler.when, (std::vector{at(10s), at(15s)}));
  EXPECT_TRUE(closed.timeouts->stopped());
  time.advance(1ms);
  EXPECT_EQ(by_extension.handler.asked.size(), 2u);
  EXPECT_EQ(switched_off.handler.asked.size(), 1u);
  EXPECT_EQ(closed.handler.asked.size(), 1u);
  EXPECT_FALSE(switched_off.timeouts->stopped());
}

// Ends -------------------------------------------------------------------------------------------

TEST_P(ConnectionTimeouts, StopCancelsEverythingForGood) {
  peer p{time, {.idle = 10s, .read_idle = 5s}};
  EXPECT_FALSE(p.timeouts->stopped());
  p.timeouts->stop();
  p.timeouts->stop();
  EXPECT_TRUE(p.timeouts->stopped());
  EXPECT_EQ(time.wheel().size(), 0u);
  p.say();
  p.timeouts->on_write(5);
  p.timeouts->pause_reading();
  p.timeouts->resume_reading();
  const timeout_policy other = idle_of(1s);
  p.timeouts->set_policy(other);
  time.advance(1h);
  EXPECT_FALSE(p.handler.closed());
  EXPECT_EQ(time.looks(), 0u);
}

TEST_P(ConnectionTimeouts, DestroyedItAsksNobody) {
  peer p{time, idle_of(10s)};
  p.timeouts.reset();
  EXPECT_EQ(time.wheel().size(), 0u);
  time.advance(1h);
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(ConnectionTimeouts, OnAClosedHostNothingIsArmed) {
  time.close();
  peer p{time, idle_of(10s)};
  p.say();
  const timeout_policy other = idle_of(1s);
  p.timeouts->set_policy(other);
  time.advance(1h);
  EXPECT_FALSE(p.handler.closed());
  EXPECT_FALSE(p.timeouts->stopped());
}

TEST_P(ConnectionTimeouts, TheHandlerMayDestroyIt) {
  for (const bool closing : {true, false}) {
    peer p{time, idle_of(10s)};
    p.handler.answer = [&](const expiry&) {
      p.timeouts.reset();
      return closing ? verdict::close() : verdict::extend(1s);
    };
    time.advance(1h);
    EXPECT_EQ(p.handler.asked.size(), 1u);
    EXPECT_EQ(time.wheel().size(), 0u);
  }
}

TEST_P(ConnectionTimeouts, TheHandlerMayDestroyItsNeighbours) {
  std::deque<peer> all;
  for (int i = 0; i != 6; ++i) all.emplace_back(time, idle_of(10s));
  for (peer& p : all)
    p.handler.answer = [&](const expiry&) {
      for (peer& other : all)
        if (&other != &p) other.timeouts.reset();
      return verdict::close();
    };
  time.advance(1h);
  std::size_t asked = 0;
  for (peer& p : all) asked += p.handler.asked.size();
  EXPECT_EQ(asked, 1u);
}

TEST_P(ConnectionTimeouts, TheHandlerMayMakeAnotherInItsPlace) {
  peer p{time, idle_of(10s)};
  p.handler.answer = [&](const expiry&) {
    p.timeouts.emplace(p.reaper, p.policy, p.socket, p.handler);
    return verdict::close();  // of the one that is gone
  };
  time.advance(10s);
  EXPECT_EQ(p.handler.asked.size(), 1u);
  EXPECT_FALSE(p.timeouts->stopped());
  time.advance(10s);
  EXPECT_EQ(p.handler.asked.size(), 2u);
}

TEST_P(ConnectionTimeouts, TheHandlerMayRefreshReadOrStopIt) {
  peer reads{time, idle_of(10s)}, stops{time, idle_of(10s)};
  reads.handler.answer = [&](const expiry&) {
    reads.timeouts->on_read(1);
    return verdict::extend(0s);
  };
  stops.handler.answer = [&](const expiry&) {
    stops.timeouts->stop();
    return verdict::extend(1s);
  };
  time.advance(19999ms);
  EXPECT_EQ(reads.handler.asked.size(), 1u);
  EXPECT_EQ(stops.handler.asked.size(), 1u);
  time.advance(1ms);
  EXPECT_EQ(reads.handler.asked.size(), 2u);
  time.advance(1h);
  EXPECT_EQ(stops.handler.asked.size(), 1u) << "once stopped it stays stopped";
}

struct on_own_host {
  explicit on_own_host(refresh_mode mode)
      : time{std::make_unique<manual_wheel>(
            ::idlewheel::testing::manual_wheel_options{.tick = 1ms, .refresh = mode})},
        p{std::make_unique<peer>(*time, idle_of(10s))} {}
  std::unique_ptr<manual_wheel> time;
  std::unique_ptr<peer> p;
};

TEST_P(ConnectionTimeouts, TheHandlerMayDestroyTheHost) {
  on_own_host o{GetParam()};
  o.p->handler.answer = [&](const expiry&) {
    o.time.reset();
    return verdict::close();
  };
  o.time->advance(1h);
  EXPECT_EQ(o.time, nullptr);
  EXPECT_TRUE(o.p->timeouts->stopped());
}

TEST_P(ConnectionTimeouts, TheHandlerMayStopItDestroyTheHostAndStillAskForMoreTime) {
  on_own_host o{GetParam()};
  o.p->handler.answer = [&](const expiry&) {
    o.p->timeouts->stop();
    o.time.reset();
    return verdict::extend(1s);
  };
  o.time->advance(1h);
  EXPECT_TRUE(o.p->timeouts->stopped());
}

TEST_P(ConnectionTimeouts, TheHandlerMayDestroyItAndTheHost) {
  for (const bool host_first : {false, true}) {
    on_own_host o{GetParam()};
    o.p->handler.answer = [&](const expiry&) {
      if (host_first) o.time.reset();
      o.p->timeouts.reset();
      o.time.reset();
      return verdict::extend(1s);
    };
    o.time->advance(1h);
    EXPECT_EQ(o.p->handler.asked.size(), 1u);
  }
}

TEST_P(ConnectionTimeouts, TheHandlerMayCloseTheHost) {
  for (const bool closing : {false, true}) {
    on_own_host o{GetParam()};
    o.p->handler.answer = [&](const expiry&) {
      o.time->close();
      return closing ? verdict::close() : verdict::extend(1s);
    };
    o.time->advance(1h);
    EXPECT_EQ(o.p->handler.asked.size(), 1u);
    EXPECT_EQ(o.p->timeouts->stopped(), closing);
  }
}

TEST_P(ConnectionTimeouts, HostAndPolicyMayDieFirstAfterStop) {
  on_own_host o{GetParam()};
  auto policy = std::make_unique<timeout_policy>(idle_of(1s));
  o.p->timeouts->set_policy(*policy);
  o.p->timeouts->stop();
  policy.reset();
  o.time.reset();
  o.p->timeouts->stop();
  EXPECT_TRUE(o.p->timeouts->stopped());
  o.p->timeouts.reset();
}

IDLEWHEEL_IN_BOTH_MODES(ConnectionTimeouts);

}  // namespace
}  // namespace idlewheel::connection_tests
