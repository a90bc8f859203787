// loop_wheel.hpp - the timeouts of one libuv loop.
//
// What   A timer_host driven by one uv_timer_t: thousands of timeouts, one handle, no thread.
// Why    A uv_timer_t per connection costs a heap operation per read and closes live peers after a
//        stall, because libuv runs timers before it has polled the sockets.
// Not    More precise than libuv: its clock and its timers count whole milliseconds, and each may add
//        up to one.
//
//   one turn of the loop    timers     prepare     poll        check       closing
//                           mark the   note the    handlers    judge what was due
//                           wheel due  time        read        at the noted time
//
//   The uv_timer_t only marks the wheel as due; a uv_idle_t keeps the poll that follows from
//   waiting; the check phase after that poll fires what was due when the poll began. So whatever
//   the kernel held when a timeout ran out has been read by the time it is judged. What the budget
//   leaves follows after the next poll. The timer is planned for the next slot that holds something
//   due; with nothing armed, no handle is active.
//
// Example
//   idlewheel::loop_wheel wheel{uv_default_loop()};
//   idlewheel::timer hello{[] { std::puts("two seconds"); }};
//   wheel.arm(hello, 2s);
//   wheel.ref();  // else timers alone do not keep the loop running
//   uv_run(uv_default_loop(), UV_RUN_DEFAULT);
//
// Promises
//   Early     Never. A timeout of T fires when at least T has really passed since it was armed or
//             since the last refresh, and less than one tick later, plus the time the loop itself
//             was blocked.
//   Re-entry  A callback may arm, refresh, cancel or destroy any timer, and close or destroy the
//             loop_wheel itself.
//   Lifetime  Destroy it at any time on the loop thread, before or after its timers. Its handles live
//             in a block of their own until libuv has closed them, which takes one more turn of the
//             loop, as for any handle: until then uv_loop_close() says UV_EBUSY.
//   Threads   The loop's, for everything.
//   Time      CLOCK_MONOTONIC, uv_hrtime()'s. After fork() the child calls uv_loop_fork() first.
#pragma once
#include <uv.h>

#include <cstddef>
#include <cstdint>

#include "idlewheel/wheel/timer_host.hpp"

namespace idlewheel {

struct loop_wheel_options {
  timespan tick = std::chrono::milliseconds{100};  // 1 ms or more
  std::size_t slots = 512;                         // as wheel_options
  refresh_mode refresh = refresh_mode::relink;
  std::size_t budget = 256;  // timers met per turn of the loop, 1 or more
  bool last_look = true;     // ask the kernel before a connection is closed for silence
};

// Totals since the wheel was made; reading them costs nothing elsewhere.
struct wheel_stats {
  std::uint64_t visits = 0;       // times the wheel was due
  std::uint64_t turns = 0;        // turns of the loop that judged: visits, and what they left over
  std::uint64_t budget_hits = 0;  // turns that left something over
  std::uint64_t fired = 0;
  std::uint64_t relinked = 0;  // as wheel_counts; refreshes of a batch not full yet are not in
  std::uint64_t stalls = 0;    // turns in which a handler blocked after a refresh or before one
  timespan longest_stall;
};

class loop_wheel final : public timer_host {
 public:
  // Throws std::invalid_argument that names the option and its value, std::system_error when libuv
  // refuses a handle. Nothing of it keeps the loop running until ref().
  explicit loop_wheel(uv_loop_t* loop, const loop_wheel_options& options = {});
  ~loop_wheel() override;  // close(), if that has not been done; fires nothing

  // Disarms every timer, fires none, and closes the handles. Idempotent, also from a callback.
  // After it arm() is an error: an assertion in debug builds, else it returns false and arms
  // nothing.
  void close() noexcept;

  // Whether armed timers keep uv_run() going. Off at first: a server's listener does that, and
  // timeouts alone should not.
  void ref() noexcept;
  void unref() noexcept;

  uv_loop_t* loop() const noexcept { return loop_; }
  wheel_stats stats() const noexcept;

  // What the kernel says about the socket: FIONREAD, SIOCOUTQ and TCP_INFO on Linux.
  socket_look look(const socket_view& socket) noexcept override;

 private:
  struct engine;  // the handles

  void before_poll() noexcept;
  void after_poll() noexcept;
  void plan_visit(instant when) noexcept override;
  void forget_visit() noexcept override;
  instant read_clock() noexcept override;
  void check_thread() const noexcept override;

  uv_loop_t* loop_;
  engine* engine_;
  std::size_t budget_;
  bool last_look_;
  bool due_ = false;  // judge after the next poll
  instant noted_{};   // the loop's time before the poll: what that poll misses is not older
  wheel_stats stats_;
};

}  // namespace idlewheel
