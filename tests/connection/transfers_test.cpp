// transfers_test.cpp - limits of what moves: write stalls, rates in and out, bytes that the program
// never sees.
#include "tests/connection/support.hpp"

namespace idlewheel::connection_tests {
namespace {

class Transfers : public ByMode {
 protected:
  static constexpr transfer_rate slow{.bytes_per_second = 100, .grace = 5s};
};

TEST_P(Transfers, AQueueThatNobodyTakesIsAWriteStall) {
  peer p{time, {.write_stall = 10s}};
  time.advance(3s);
  p.timeouts->on_write(1000);
  p.look() = {.unsent = 1000};
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::write_stall, at(13s));
}

TEST_P(Transfers, NothingQueuedIsNoStall) {
  peer p{time, {.write_stall = 10s}};
  time.advance(1h);
  EXPECT_EQ(time.wheel().size(), 0u);
  p.timeouts->on_write(1000);
  p.look() = {.unsent = 0, .last_delivery = time.now()};
  time.advance(1h);
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(Transfers, ALargeWriteToASlowReaderIsAliveWhileItDrainsAndDeadWhenItDoesNot) {
  peer p{time, {.idle = 60s, .write_stall = 10s}};
  std::uint64_t left = 64'000'000;
  p.timeouts->on_write(left);
  for (int i = 0; i < 100; ++i) {
    left -= 10'000;
    p.look() = {.unsent = left, .last_delivery = time.now()};
    time.advance(9s);
    ASSERT_FALSE(p.handler.closed()) << i;
  }
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::write_stall, at(99 * 9s + 10s));
}

TEST_P(Transfers, WritesOfOursDoNotHideAStall) {
  peer p{time, {.write_stall = 10s}};
  std::uint64_t queued = 0;
  for (int second = 0; second < 30 && !p.handler.closed(); ++second) {
    p.timeouts->on_write(100);
    p.look() = {.unsent = queued += 100};
    time.advance(1s);
  }
  ASSERT_TRUE(p.handler.closed());
  // The first look, at half the limit, cannot tell that the queue was never empty before it.
  EXPECT_GE(p.handler.when[0], at(10s));
  EXPECT_LE(p.handler.when[0], at(15s));
}

TEST_P(Transfers, AWriteAfterAnEmptyQueueHasAllItsTime) {
  // Written and taken long ago, as only a look can tell; then something new that stalls.
  peer p{time, {.write_stall = 10s}};
  p.timeouts->on_write(100);
  time.advance(4900ms);
  p.timeouts->on_write(50);
  p.look() = {.unsent = 50, .last_delivery = at(1ms)};
  time.advance(9900ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(1s);
  ASSERT_TRUE(p.handler.closed());
}

TEST_P(Transfers, ProgressWithoutADateIsDatedHalfALimitTooLateAtMost) {
  peer p{time, {.write_stall = 10s}};
  p.timeouts->on_write(1000);
  p.look() = {.unsent = 900};  // taken at once
  time.advance(1h);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_GE(p.handler.when[0], at(10s));
  EXPECT_LE(p.handler.when[0], at(15s));
}

TEST_P(Transfers, ProgressWithoutADateIsLookedForAgainAfterEachProgress) {
  peer p{time, {.write_stall = 10s}};
  p.timeouts->on_write(1000);
  p.look() = {.unsent = 1000};
  time.advance(8s);
  p.look() = {.unsent = 900};
  time.advance(5s);
  p.look() = {.unsent = 800};
  const instant taken = time.now();
  time.advance(1h);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_GE(p.handler.when[0], later(taken, 10s));
  EXPECT_LE(p.handler.when[0], later(taken, 15s));
}

TEST_P(Transfers, ARateIsNotDemandedForATurnThatStalled) {
  peer p{time, {.min_rate_in = slow}};
  p.timeouts->enter(phase::body);
  time.advance(1s);
  time.poll();
  time.block(4s);
  p.timeouts->on_read(100'000);  // they may have come at the end of these four seconds
  time.turn();
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::rate_in, at(10s));
}

// A turn that stalled, and then reads.
TEST_P(Transfers, AStallIsNotChargedOnceTheUploadGoesOn) {
  for (const bool pauses : {false, true}) {
    manual_wheel host{{.tick = 1ms, .refresh = GetParam()}};
    peer p{host, {.min_rate_in = {.bytes_per_second = 240, .grace = 2s}}};
    p.timeouts->enter(phase::body);
    host.poll();
    host.block(3s);
    p.timeouts->on_read(1000);
    host.turn();
    if (pauses) {
      p.timeouts->pause_reading(pause::ours);
      host.advance(1s);
      p.timeouts->resume_reading();
    }
    for (int i = 0; i < 300; ++i) {
      host.advance(100ms);
      ASSERT_FALSE(p.handler.closed()) << i;
      p.say(30);
    }
  }
}

TEST_P(Transfers, ARateThatIsTurnedOnLaterIsDemandedFromThen) {
  const timeout_policy off{.body = 300s};
  const timeout_policy in{.body = 300s, .min_rate_in = {.bytes_per_second = 240, .grace = 5s}};
  const timeout_policy out{.body = 300s, .min_rate_out = {.bytes_per_second = 1000, .grace = 5s}};
  {
    peer p{time, off};
    p.timeouts->enter(phase::body);
    for (int i = 0; i < 60; ++i) {
      time.advance(1s);
      p.say(1000);
    }
    p.timeouts->set_policy(in);
    time.advance(4999ms);
    EXPECT_FALSE(p.handler.closed());
    time.advance(100ms);
    EXPECT_TRUE(p.handler.closed());
  }
  peer p{time, off};
  p.timeouts->enter(phase::body);
  p.timeouts->on_write(1'000'000);
  p.look() = {.unsent = 1'000'000};
  time.advance(30s);
  p.timeouts->set_policy(out);
  time.advance(4999ms);
  EXPECT_FALSE(p.handler.closed());
  time.advance(100ms);
  EXPECT_TRUE(p.handler.closed());
}

TEST_P(Transfers, UndatedProgressUnderARateIsDatedHalfAGraceTooLateAtMost) {
  peer p{time, {.min_rate_out = {.bytes_per_second = 1000, .grace = 4s}}};
  p.timeouts->on_write(1'000'000);
  p.look() = {.unsent = 1'000'000};
  time.advance(100ms);
  p.look() = {.unsent = 990'000};
  time.advance(1min);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_LE(p.handler.when[0], at(6s));
}

TEST_P(Transfers, BehindUntoldWritesThatMoveAnUnansweredPingIsNoDeath) {
  peer p{time, {.ping_after = 30s, .ping_timeout = 20s}};
  std::uint64_t taken = 1'000'000;
  for (int i = 0; i < 100; ++i) {
    p.look() = {.unsent = 50'000, .last_delivery = time.now(), .acknowledged = taken += 100'000};
    time.advance(1s);
    ASSERT_FALSE(p.handler.closed()) << i;
  }
  EXPECT_EQ(p.handler.pings.size(), 1u);
  time.advance(1min);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_LE(p.handler.when[0], at(140s));
}

TEST_P(Transfers, WhereNobodyCanTellThereIsNoWriteStall) {
  peer p{time, {.write_stall = 10s, .min_rate_out = slow}};
  p.timeouts->on_write(1000);
  time.advance(1h);
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(Transfers, AnUploadThatTricklesEndsWhenItsGraceIsUsedUp) {
  peer p{time, {.min_rate_in = slow}};
  p.timeouts->enter(phase::body);
  while (!p.handler.closed() && time.now() < at(1h)) {
    time.advance(1s);
    if (!p.handler.closed()) p.say(1);
  }
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].reason, expiry_reason::rate_in);
  EXPECT_GE(p.handler.when[0], at(5s));
  EXPECT_LE(p.handler.when[0], at(5100ms));  // five bytes more are 50 ms more
}

TEST_P(Transfers, AnUploadAtTheRatePasses) {
  peer p{time, {.min_rate_in = slow}};
  p.timeouts->enter(phase::body);
  for (int i = 0; i < 300; ++i) {
    time.advance(1s);
    p.say(100);
  }
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(Transfers, AnUploadInBurstsPassesWhenItsGapsAreShorterThanTheGrace) {
  peer p{time, {.min_rate_in = slow}};
  p.timeouts->enter(phase::body);
  for (int i = 0; i < 50; ++i) {
    time.advance(4900ms);
    p.say(10'000);
  }
  EXPECT_FALSE(p.handler.closed());
}

TEST_P(Transfers, AFastStartEarnsNoMoreThanTheGrace) {
  peer p{time, {.min_rate_in = slow}};
  p.timeouts->enter(phase::body);
  time.advance(1s);
  p.say(100'000'000);
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::rate_in, at(6s));
}

TEST_P(Transfers, TheRateRunsInTheBodyOnly) {
  peer p{time, {.min_rate_in = slow}};
  for (const phase other : {phase::handshake, phase::header, phase::handling, phase::keep_alive,
                            phase::upgraded, phase::closing}) {
    p.timeouts->enter(other);
    time.advance(1h);
    EXPECT_FALSE(p.handler.closed()) << static_cast<int>(other);
  }
  p.timeouts->enter(phase::body);
  const instant body = time.now();
  time.advance(10s);
  expect_asked(p.handler, expiry_reason::rate_in, later(body, 5s));
}

TEST_P(Transfers, ADownloadBelowTheRateEnds) {
  peer p{time, {.min_rate_out = slow}};
  std::uint64_t left = 1'000'000;
  p.timeouts->on_write(left);
  while (!p.handler.closed() && time.now() < at(1h)) {
    p.look() = {.unsent = left -= 10, .last_delivery = time.now()};
    time.advance(1s);
  }
  ASSERT_TRUE(p.handler.closed());
  EXPECT_EQ(p.handler.asked[0].reason, expiry_reason::rate_out);
  EXPECT_GE(p.handler.when[0], at(5s));
  EXPECT_LE(p.handler.when[0], at(7s));
}

TEST_P(Transfers, ADownloadAtTheRatePasses) {
  peer p{time, {.min_rate_out = slow}};
  std::uint64_t left = 1'000'000;
  p.timeouts->on_write(left);
  for (int i = 0; i < 300; ++i) {
    left -= 101;
    p.look() = {.unsent = left, .last_delivery = time.now()};
    time.advance(1s);
    ASSERT_FALSE(p.handler.closed()) << i;
  }
}

TEST_P(Transfers, AnEmptyQueueOwesNothing) {
  peer p{time, {.min_rate_out = slow}};
  for (int i = 0; i < 50; ++i) {
    p.timeouts->on_write(100);
    p.look() = {.unsent = 0, .last_delivery = time.now()};
    time.advance(7s);
    ASSERT_FALSE(p.handler.closed()) << i;
  }
  // What is left is new, whatever the looks before it saw.
  p.timeouts->on_write(100);
  const instant written = time.now();
  p.look() = {.unsent = 100};
  time.advance(1h);
  ASSERT_TRUE(p.handler.closed());
  EXPECT_GE(p.handler.when[0], later(written, 5s));
}

TEST_P(Transfers, BytesThatTheProgramNeverSeesAreTimedByTheKernel) {
  // A splice between two sockets: no on_read() at all.
  peer p{time, {.idle = 10s}};
  for (int i = 0; i < 20; ++i) {
    time.advance(4s);
    p.look() = {.unread = 0, .last_arrival = time.now()};
    ASSERT_FALSE(p.handler.closed()) << i;
  }
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::idle, at(90s));
}

TEST_P(Transfers, AProgramThatReadsIsNotTimedByTheKernel) {
  peer p{time, {.idle = 10s}};
  time.advance(1s);
  p.say();
  p.look() = {.unread = 0, .last_arrival = at(1004ms)};  // the same bytes, dated in jiffies
  time.advance(1h);
  expect_asked(p.handler, expiry_reason::idle, at(11s));
}

TEST_P(Transfers, SeenByNobodyBytesAnswerAPingToo) {
  peer p{time, {.ping_after = 10s, .ping_timeout = 5s}};
  time.advance(12s);
  ASSERT_EQ(p.handler.pings.size(), 1u);
  p.look() = {.unread = 0, .last_arrival = at(11s)};
  time.advance(4s);
  EXPECT_FALSE(p.handler.closed());
  time.advance(5s);
  EXPECT_EQ(p.handler.pings, (std::vector{at(10s), at(21s)}));
}

IDLEWHEEL_IN_BOTH_MODES(Transfers);

}  // namespace
}  // namespace idlewheel::connection_tests
