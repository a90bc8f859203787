// connection_on_loop_test.cpp - connection_timeouts over real sockets on a real loop: what the
// manual wheel describes, the kernel says here.
//
// It stands in tests/uv because tests/connection is built without libuv.
#include <memory>

#include "idlewheel/uv/socket_look.hpp"
#include "tests/uv/watched.hpp"

namespace idlewheel::uv_tests {
namespace {

struct closer final : timeout_handler {
  verdict on_timeout(const expiry& e) noexcept override {
    ++asked;
    at = clock_now();
    last = e;
    return verdict::close();
  }
  int asked = 0;
  instant at{};
  expiry last{};
};

class ConnectionOnLoop : public ByMode {
 protected:
  loop on;
  loop_wheel wheel{on, {.tick = 5ms, .refresh = GetParam()}};
  closer handler;
  static std::function<void(std::size_t)> ignore() {
    return [](std::size_t) {};
  }
  // What a program does with a large answer: one write, and a note of it. libuv gives the request
  // back, at the latest when the stream is closed.
  static void write(endpoint& end, connection_timeouts& timeouts, std::size_t n) {
    struct answer {
      explicit answer(std::size_t size) : bytes(size, 'x') {}
      std::vector<char> bytes;
      uv_write_t request{};
    };
    auto* a = new answer{n};
    a->request.data = a;
    const uv_buf_t buffer = uv_buf_init(a->bytes.data(), static_cast<unsigned>(n));
    ASSERT_EQ(uv_write(&a->request, end.stream(), &buffer, 1,
                       [](uv_write_t* r, int) { delete static_cast<answer*>(r->data); }),
              0);
    timeouts.on_write(n);
  }
};

TEST_P(ConnectionOnLoop, ALargeWriteIsAliveWhileItDrainsAndClosedWhenItDoesNot) {
  for (const transport kind : {transport::tcp, transport::pipe}) {
    SCOPED_TRACE(name_of_transport(kind));
    handler = {};
    constexpr std::size_t total = 20'000'000;
    constexpr auto limit = 250ms;
    endpoint end{on, kind, ignore()};
    const timeout_policy policy{.idle = limit};
    connection_reaper reaper{wheel};
    connection_timeouts timeouts{reaper, policy, end.view(), handler};
    write(end, timeouts, total);
    // The peer reads slowly for four times the limit, and then no more. When its kernel really took
    // something is known to within two samples of what is unsent: after the earlier of them.
    const instant begun = clock_now();
    instant sampled = begun, moved_after = begun;
    std::uint64_t unsent = total;
    const auto sample = [&] {
      const instant before = clock_now();
      const std::uint64_t now = look_at_socket(end.view()).unsent.value_or(unsent);
      if (now < unsent) moved_after = sampled;
      unsent = now;
      sampled = before;
    };
    std::size_t heard = 0;
    loop_timer reader{on, 10ms, 10ms, [&] {
                        sample();
                        if (clock_now() - begun < 4 * limit) heard += end.hear(150'000);
                        sample();
                      }};
    ASSERT_TRUE(on.run_until([&] { return handler.asked != 0; }));
    EXPECT_LT(heard, total) << "it has to be stuck at the end";
    EXPECT_GT(heard, 0u);
    EXPECT_EQ(handler.last.reason, expiry_reason::idle);
    EXPECT_GE(handler.at - moved_after, limit) << "closed while the peer was taking bytes";
    EXPECT_GE(handler.at - begun, limit);
    EXPECT_TRUE(timeouts.stopped());
  }
}

TEST_P(ConnectionOnLoop, AWriteThatThePeerNeverReadsIsNoActivityForEver) {
  constexpr auto limit = 80ms;
  endpoint end{on, transport::tcp, ignore()};
  const timeout_policy policy{.idle = limit};
  connection_reaper reaper{wheel};
  connection_timeouts timeouts{reaper, policy, end.view(), handler};
  write(end, timeouts, 16'777'216);
  // We go on queueing, which is no activity either.
  loop_timer queueing{on, 10ms, 10ms, [&] { timeouts.on_write(0); }};
  ASSERT_TRUE(on.run_until([&] { return handler.asked != 0; }));
}

TEST_P(ConnectionOnLoop, APeerThatIsSilentIsClosedAtItsLimit) {
  for (const transport kind : {transport::poll, transport::pipe, transport::tcp}) {
    SCOPED_TRACE(name_of_transport(kind));
    handler = {};
    endpoint end{on, kind, ignore()};
    const timeout_policy policy{.idle = 5s, .read_idle = 40ms};
    const instant begun = clock_now();
    connection_reaper reaper{wheel};
    connection_timeouts timeouts{reaper, policy, end.view(), handler};
    ASSERT_TRUE(on.run_until([&] { return handler.asked != 0; }));
    EXPECT_EQ(handler.last.reason, expiry_reason::read_idle);
    EXPECT_GE(handler.at - begun, 40ms);
    EXPECT_EQ(between(handler.last.since, handler.last.due), timespan{40ms});
  }
}

TEST_P(ConnectionOnLoop, BytesThatWaitInTheKernelAreActivityThoughNobodyRead) {
  // The handler of this connection does not get round to reading in time.
  endpoint end{on, transport::tcp, ignore()};
  end.stop_reading();
  const timeout_policy policy{.read_idle = 100ms};
  connection_reaper reaper{wheel};
  connection_timeouts timeouts{reaper, policy, end.view(), handler};
  instant said{};
  loop_timer peer{on, 80ms, [&] { said = end.say(); }};
  loop_timer hook{on, 150ms, [&] { end.read(); }};
  ASSERT_TRUE(on.run_until([&] { return handler.asked != 0; }));
  EXPECT_GE(handler.at - said, 100ms);
}

TEST_P(ConnectionOnLoop, WhilePausedOldBytesAreOldByTheKernelsOwnStamp) {
  endpoint end{on, transport::tcp, ignore()};
  end.stop_reading();
  const timeout_policy policy{.read_idle = 100ms};
  connection_reaper reaper{wheel};
  connection_timeouts timeouts{reaper, policy, end.view(), handler};
  timeouts.pause_reading();
  instant said{};
  loop_timer peer{on, 50ms, [&] { said = end.say(); }};
  ASSERT_TRUE(on.run_until([&] { return handler.asked != 0; })) << "old bytes were taken for news";
  EXPECT_GE(handler.at - said, 100ms);
}

TEST_P(ConnectionOnLoop, WhilePausedOldBytesAreOldWithoutAStampToo) {
  // A local socket has no stamps: the first look cannot know, the next sees that nothing was added.
  endpoint end{on, transport::pipe, ignore()};
  end.stop_reading();
  const timeout_policy policy{.read_idle = 60ms};
  connection_reaper reaper{wheel};
  connection_timeouts timeouts{reaper, policy, end.view(), handler};
  timeouts.pause_reading();
  const instant said = end.say();
  ASSERT_TRUE(on.run_until([&] { return handler.asked != 0; }, 3s)) << "never closed";
  EXPECT_GE(handler.at - said, 60ms);
}

TEST_P(ConnectionOnLoop, WithoutASocketOnlyTheCallsCount) {
  endpoint end{on, transport::tcp, ignore()};
  end.stop_reading();
  end.say();
  const timeout_policy policy{.idle = 30ms};
  connection_reaper reaper{wheel};
  connection_timeouts timeouts{reaper, policy, {}, handler};
  ASSERT_TRUE(on.run_until([&] { return handler.asked != 0; }));
}

TEST_P(ConnectionOnLoop, DestroyedWithItsConnectionByTheHandler) {
  struct session final : timeout_handler {
    session(connection_reaper& reaper, uv_loop_t* loop, const timeout_policy& policy,
            std::unique_ptr<session>& self)
        : end{loop, transport::tcp, [this](std::size_t n) { timeouts.on_read(n); }},
          timeouts{reaper, policy, end.view(), *this},
          self_{self} {}
    verdict on_timeout(const expiry&) noexcept override {
      self_.reset();
      return verdict::close();
    }
    endpoint end;
    connection_timeouts timeouts;
    std::unique_ptr<session>& self_;
  };
  const timeout_policy policy{.idle = 20ms};
  std::unique_ptr<session> s;
  connection_reaper reaper{wheel};
  s = std::make_unique<session>(reaper, wheel.loop(), policy, s);
  s->end.say();
  ASSERT_TRUE(on.run_until([&] { return s == nullptr; }));
  EXPECT_EQ(wheel.wheel().size(), 0u);
}

// What the wheel knows of a turn is settled at its end, also when the wheel went to sleep in it.
TEST_P(ConnectionOnLoop, AStampIsNotAsOldAsTheWheelsSleep) {
  const timeout_policy off{}, on_again{.read_idle = 1200ms};
  endpoint end{on, transport::tcp, ignore()}, other_end{on, transport::tcp, ignore()};
  connection_reaper reaper{wheel};
  connection_timeouts timeouts{reaper, on_again, end.view(), handler};
  closer other_handler;
  loop_timer first{on, 5ms, [&] {
                     timeouts.on_read(1);
                     timeouts.set_policy(off);
                   }};
  std::unique_ptr<connection_timeouts> other;
  instant again{};
  loop_timer second{on, 2s, [&] {
                      again = clock_now();
                      timeouts.set_policy(on_again);  // overdue
                      other = std::make_unique<connection_timeouts>(
                          reaper, on_again, other_end.view(), other_handler);
                      other->on_read(1);
                    }};
  ASSERT_TRUE(on.run_until([&] { return handler.asked != 0; }));
  EXPECT_LT(handler.at - again, 1s) << "two seconds of sleep were taken for a stall";
}

IDLEWHEEL_IN_BOTH_MODES(ConnectionOnLoop);

}  // namespace
}  // namespace idlewheel::uv_tests
