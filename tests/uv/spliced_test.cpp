// spliced_test.cpp - connections whose bytes the program never sees: a proxy that splices between two
// sockets, and tells their timeouts nothing. The kernel is asked, at expiry.
#include <fcntl.h>

#include "tests/uv/watched.hpp"

namespace idlewheel::uv_tests {
namespace {

constexpr auto limit = 200ms;

// One side of the proxy: our socket, its timeouts, and the peer.
struct side final : timeout_handler {
  side(connection_reaper& reaper, const timeout_policy& policy)
      : pair{tcp_pair()},
        timeouts{reaper, policy, socket_view::descriptor(pair[0]), *this, phase::upgraded} {
    const int small = 64 * 1024;  // so that a peer which does not read is noticed soon
    for (const int fd : pair) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  }
  ~side() {
    for (const int fd : pair) ::close(fd);
  }
  verdict on_timeout(const expiry& e) noexcept override {
    closed_at = clock_now();
    last = e;
    return verdict::close();
  }
  bool closed() const { return closed_at != instant{}; }
  int ours() const { return pair[0]; }

  instant say(std::size_t n = 1) {
    const std::vector<char> bytes(n, 'x');
    const instant before = clock_now();
    (void)!::send(pair[1], bytes.data(), n, MSG_DONTWAIT | MSG_NOSIGNAL);
    return before;
  }
  std::size_t hear(std::size_t most) {
    std::vector<char> bytes(most);
    const ssize_t n = ::recv(pair[1], bytes.data(), most, MSG_DONTWAIT);
    return n > 0 ? static_cast<std::size_t>(n) : 0;
  }

  fd_pair pair;
  connection_timeouts timeouts;
  instant closed_at{};
  expiry last{};
};

// What flows in one direction, through a pipe in the kernel.
class flow {
 public:
  flow(const side& from, const side& to) : from_{from}, to_{to} {
    EXPECT_EQ(pipe2(pipe_.data(), O_NONBLOCK), 0);
  }
  ~flow() {
    for (const int fd : pipe_) ::close(fd);
  }
  void pump() const {
    splice(from_.ours(), nullptr, pipe_[1], nullptr, 65536, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    splice(pipe_[0], nullptr, to_.ours(), nullptr, 65536, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
  }

 private:
  const side& from_;
  const side& to_;
  fd_pair pipe_;
};

class Spliced : public ByMode {
 protected:
  loop on;
  loop_wheel wheel{on, {.tick = 5ms, .refresh = GetParam()}};
  connection_reaper reaper{wheel};
  const timeout_policy policy{.idle = limit};
  side left{reaper, policy}, right{reaper, policy};
  flow to_right{left, right}, to_left{right, left};
  loop_timer pump{on, 2ms, 2ms, [this] {
                    to_right.pump();
                    to_left.pump();
                  }};
};

TEST_P(Spliced, WhoSpeaksStaysAndWhoFallsSilentIsClosedAtItsLimit) {
  instant said{};
  const instant begun = clock_now();
  loop_timer talk{on, 20ms, 20ms, [&] {
                    if (clock_now() - begun > 5 * limit) return;
                    said = left.say();
                    right.say();
                    left.hear(100);
                    right.hear(100);
                  }};
  ASSERT_TRUE(on.run_until([&] { return left.closed() && right.closed(); }));
  for (const side* s : {&left, &right}) {
    EXPECT_EQ(s->last.reason, expiry_reason::idle);
    EXPECT_GE(s->closed_at - said, limit) << "closed while it spoke";
    EXPECT_EQ(between(s->last.since, s->last.due), timespan{limit});
  }
}

TEST_P(Spliced, WhoOnlyListensStaysWhileItTakesAndIsClosedWhenItDoesNot) {
  const instant begun = clock_now();
  instant took{};
  std::size_t heard = 0;
  loop_timer talk{on, 2ms, 2ms, [&] { left.say(64 * 1024); }};
  loop_timer listen{on, 10ms, 10ms, [&] {
                      if (clock_now() - begun > 5 * limit) return;
                      const instant before = clock_now();
                      const std::size_t n = right.hear(200'000);
                      if (n != 0) took = before;
                      heard += n;
                    }};
  ASSERT_TRUE(on.run_until([&] { return right.closed(); }));
  EXPECT_GT(heard, 200'000u);
  EXPECT_GE(right.closed_at - begun, 5 * limit) << "closed while it took what we sent";
  // What it read opened its window at once; what the kernel's buffers took after that is later still.
  EXPECT_GE(right.closed_at - took, limit);
}

IDLEWHEEL_IN_BOTH_MODES(Spliced);

}  // namespace
}  // namespace idlewheel::uv_tests
