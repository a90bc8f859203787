// connection_timeouts.hpp - when one connection has been silent for too long.
//
// What   A member of the connection, told of every read and write. It asks its handler what to do
//        when a limit of the policy has run out, and by then has asked the socket whether it has.
// Why    One wheel timer, whatever the number of limits: the soonest is all the wheel has to know.
//        A read costs a stamp and at most one relink.
// Not    The connection: it neither reads, writes nor closes. The handler does.
//
//   What is activity                                      What is not
//   - bytes received: on_read(n), n > 0                   - an event without bytes: on_read(0)
//   - bytes that the kernel holds for us at expiry        - bytes written that the peer does not take
//   - bytes that the peer has acknowledged since the      - a spurious wake-up, a retransmission
//     last look; on_write(n) only counts what was queued
//
// Example
//   struct session final : idlewheel::timeout_handler {
//     session(idlewheel::timer_host& host, const idlewheel::timeout_policy& policy)
//         : timeouts{host, policy, idlewheel::socket_view{stream()}, *this} {}
//     idlewheel::verdict on_timeout(const idlewheel::expiry&) noexcept override {
//       close();
//       return idlewheel::verdict::close();
//     }
//     void on_bytes(std::size_t n) { timeouts.on_read(n); }
//     idlewheel::connection_timeouts timeouts;
//   };
//
// Promises
//   Early     Never: when the handler is asked, the limit has really passed since the last activity.
//             Activity wins: a verdict is checked again at delivery, against the stamps and against
//             the socket (timer_host::look).
//   Re-entry  The handler may do anything, also destroy this object, its connection or the host.
//   Lifetime  Destroying it or stop() cancels everything; no handler is called. Host and policy may
//             die first only after stop().
//   Threads   The host's.
//   Time      A stall of the loop charges nobody: see timer_host.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "idlewheel/connection/timeout_policy.hpp"
#include "idlewheel/wheel/socket_view.hpp"
#include "idlewheel/wheel/timer_host.hpp"

namespace idlewheel {

enum class expiry_reason { idle, read_idle };

// "idle", "read_idle": for logs and counters.
const char* name_of(expiry_reason reason) noexcept;

// A limit that has run out.
struct expiry {
  expiry_reason reason;
  instant since;  // the activity that the limit counts from
  instant due;    // since + limit: the close is late by what has passed since then
};

class verdict {
 public:
  // The connection ends: its timeouts stop, and nothing more is delivered.
  static constexpr verdict close() noexcept { return verdict{}; }

  // More time, asked for by name: no limit of this connection is judged for another d. Activity
  // counts meanwhile as ever. Negative is 0: judged again at the next tick.
  static constexpr verdict extend(timespan d) noexcept {
    verdict v;
    v.extension_ = d;
    return v;
  }

  constexpr std::optional<timespan> extension() const noexcept { return extension_; }

 private:
  constexpr verdict() noexcept = default;
  std::optional<timespan> extension_;
};

class timeout_handler {
 public:
  virtual verdict on_timeout(const expiry&) noexcept = 0;

 protected:
  ~timeout_handler() = default;
};

class connection_timeouts {
 public:
  // Starts the clocks, from a fresh read of the host's: construct it when the connection is
  // accepted. A policy with every limit off arms nothing. On a closed host nothing is armed either.
  // O(1).
  connection_timeouts(timer_host& host, const timeout_policy& policy, socket_view socket,
                      timeout_handler& handler) noexcept;
  ~connection_timeouts();
  connection_timeouts(const connection_timeouts&) = delete;
  connection_timeouts& operator=(const connection_timeouts&) = delete;

  // n bytes were received. Call it from the read callback; 0 is no activity. The hot path: O(1).
  void on_read(std::size_t n) noexcept {
    if (n == 0) return;
    // With no limit on there is no timer, and no turn's end at which the host settles its stamps.
    last_read_ = host_->refresh(timer_) ? host_->poll_time() : host_->now();
  }

  // n bytes were handed to the stream, or to the kernel. Whether the peer takes them is asked when
  // a limit has run out. O(1): one addition.
  void on_write(std::size_t n) noexcept { queued_ += n; }

  // We stop reading, because the peer does not take what we send: until resume_reading(), bytes
  // waiting in the kernel count from when they came, not as news; where the kernel does not say
  // when, from the look that first found them. Stops no clock. O(1).
  void pause_reading() noexcept { paused_ = true; }
  void resume_reading() noexcept {
    paused_ = false;
    unread_ = 0;
  }

  // Other limits from now on, counted from the same activity; also from the handler. Once stopped
  // it stays stopped. O(1).
  void set_policy(const timeout_policy& policy) noexcept;

  // The connection ends, however it does: cancels everything. Idempotent. O(1).
  void stop() noexcept;
  bool stopped() const noexcept { return stopped_; }

  // The last activity known without asking the socket.
  instant last_activity() const noexcept;

 private:
  struct limit {
    expiry_reason reason;
    instant since;
    instant due;
  };

  void on_timer() noexcept;
  void look_again() noexcept;
  void arm_soonest() noexcept;
  std::optional<limit> soonest() const noexcept;

  // I1  While not stopped, and while some limit is on and the host open, timer_ is armed, for the
  //     soonest limit or earlier. Its timeout is the shortest limit that a read moves, so that a
  //     refresh keeps it so.
  // What a read touches comes first.
  timer timer_{[this] { on_timer(); }};
  instant last_read_;  // stamp of the last bytes received; see timer_host::latest()
  timer_host* host_;
  const timeout_policy* policy_;
  timeout_handler* handler_;
  socket_view socket_;
  std::uint64_t queued_ = 0;     // bytes written so far
  std::uint64_t delivered_ = 0;  // of those, taken by the peer at the last look
  instant last_delivery_;        // when that had last grown
  instant no_verdict_before_;    // an extension
  std::uint64_t unread_ = 0;     // what waited in the kernel at the last look
  bool* destroyed_ = nullptr;    // of the on_timer() that is running
  bool paused_ = false;
  bool stopped_ = false;
};

static_assert(sizeof(connection_timeouts) <= 192);

}  // namespace idlewheel
