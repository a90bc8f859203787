// manual_wheel.hpp - a host whose time and sockets a test holds in its hand.
//
// What   A timer_host that reads no clock and asks no kernel: advance(31s) moves its time, and
//        socket() describes what a last look would find.
// Why    Rules about timeouts are tested in microseconds, without sleeping and without tolerance.
// Not    For production, nor for tests of a real loop's behaviour: see uv/loop_wheel.hpp.
//
// Example
//   idlewheel::testing::manual_wheel time;
//   idlewheel::timer idle{[] { std::puts("idle"); }};
//   time.arm(idle, 30s);
//   time.advance(29s);  // nothing
//   time.advance(2s);   // prints "idle"
//
// Promises
//   Early, Re-entry, Lifetime, Threads   As timer_wheel and timer_host say.
//   Time      Starts at zero, or where the options say, and moves only by advance() and block().
//
// In a namespace idlewheel of your own tests, GoogleTest's is ::testing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>

#include "idlewheel/wheel/timer_host.hpp"

namespace idlewheel::testing {

struct manual_wheel_options {
  timespan tick = std::chrono::milliseconds{100};
  std::size_t slots = 512;
  refresh_mode refresh = refresh_mode::relink;
  std::size_t budget = 256;  // timers met per turn, 1 or more
  instant start{};           // from zero to 146 years
};

class manual_wheel final : public timer_host {
 public:
  // Throws std::invalid_argument as tick_scale and timer_wheel do, also for a budget of 0 or a start
  // out of range.
  explicit manual_wheel(const manual_wheel_options& options = {});
  ~manual_wheel() override;

  // Lets time pass on a loop that is never blocked: it wakes at every planned visit, polls, and
  // judges. From a callback it is block(d). pre: d >= 0.
  void advance(timespan d);

  // Lets time pass while a handler blocks: nothing is polled and nothing judged, until the next
  // poll(), advance() or turn(). pre: d >= 0.
  void block(timespan d);

  // The loop polls: what the test then does with poll_time() counts as reported by this poll.
  void poll();

  // The rest of that turn: judges what was due when the poll began, within one budget. Returns what
  // advance() of the wheel did; {0, true} from a callback.
  progress turn();

  // As loop_wheel::close().
  void close() noexcept { close_host(); }

  // A new socket for connection_timeouts; look_at() describes it. Until described, nothing is
  // known.
  socket_view open_socket() noexcept { return socket_view::descriptor(next_descriptor_++); }
  socket_look& look_at(const socket_view& socket) { return sockets_[socket.fd()]; }

  std::size_t looks() const noexcept { return looks_; }  // asked so far
  std::size_t turns() const noexcept { return turns_; }  // that judged something, so far

  socket_look look(const socket_view& socket) noexcept override;

 private:
  void plan_visit(instant when) noexcept override;
  void forget_visit() noexcept override;
  instant read_clock() noexcept override { return fresh_; }

  instant fresh_;
  std::uint64_t polled_ns_;
  instant visit_at_{};
  bool visit_planned_ = false;
  bool judging_ = false;       // in a turn's judge()
  bool unfinished_ = false;    // the last turn's budget left something
  bool* destroyed_ = nullptr;  // of the advance() or turn() that is running
  std::size_t budget_;
  std::map<int, socket_look> sockets_;
  int next_descriptor_ = 1000;
  std::size_t looks_ = 0;
  std::size_t turns_ = 0;
};

}  // namespace idlewheel::testing
