// connection_reaper.hpp - the connections of one host together: what became of them, and what is done
// to all of them.
//
// What   Counts the connections closed, by reason. Sheds the longest idle ones when descriptors run
//        out, shortens the idle limits of all under pressure, lets them leave in good order when the
//        server ends, and can tell what would be closed without closing it. One per host is usual;
//        with several, each has its own connections.
// Why    Each of these concerns connections that no event will touch for a long time. They are
//        walked over in steps of a fixed size, so that no turn of the loop grows with the crowd.
// Not    An acceptor, or a judge of load: when to shed, press or drain is the program's to say.
//
//   A connection is busy, and neither evicted nor drained before its grace has ended, while
//   - a request is in flight: phases body and handling, and header once a byte has ever come
//   - something written has not been taken by the peer
//   - we have paused reading for reasons of our own
//
// Promises
//   Early     Pressure and jitter change limits, and the changed ones are never early. What is evicted
//             or drained is asked about first, its socket too: unread bytes save it.
//   Re-entry  The handlers asked may do anything, also destroy the reaper and the host.
//   Lifetime  It outlives its connection_timeouts, or they are stopped before; so does its host.
//   Threads   The host's.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "idlewheel/connection/detail/roster.hpp"
#include "idlewheel/connection/expiry.hpp"
#include "idlewheel/connection/timeout_policy.hpp"
#include "idlewheel/wheel/timer.hpp"
#include "idlewheel/wheel/timer_host.hpp"

namespace idlewheel {

struct reaper_options {
  // At most so many limits run out in a second, so that a crowd does not reconnect as one; those
  // above it wait, and are judged again when their turn has come. Eviction and draining do not
  // count. 0: as many as do.
  std::uint32_t closes_per_second = 0;

  // Each connection's idle limits (idle, read_idle, message_idle, keep_alive) are longer by a share
  // of its own of up to this, 0 to 1, so that those accepted together do not leave together.
  double jitter = 0;
};

struct drain_options {
  timespan window = std::chrono::seconds{10};  // over which those that are idle leave
  timespan grace = std::chrono::seconds{20};   // after it, for those that are busy
  timespan hard = std::chrono::seconds{5};     // after that, for those that linger
};

class connection_reaper {
 public:
  // Throws std::invalid_argument for a jitter outside 0 to 1.
  explicit connection_reaper(timer_host& host, const reaper_options& options = {});
  ~connection_reaper();
  connection_reaper(const connection_reaper&) = delete;
  connection_reaper& operator=(const connection_reaper&) = delete;

  timer_host& host() const noexcept { return *host_; }
  std::size_t size() const noexcept { return all_.size(); }  // connections not stopped

  // Asks up to n connections that are not busy and have been idle for at least min_idle, the longest
  // idle first, with expiry_reason::evicted. Returns how many of them end. For EMFILE and memory
  // pressure. O(size), a look at each socket chosen, and memory for n of them: ask for a batch, not
  // for one at each accept. Throws std::bad_alloc. From a handler it does nothing and returns 0.
  std::size_t evict(std::size_t n, timespan min_idle = {});

  // 0 to 1, cut to that; NaN is 0. The idle limits of all connections become shorter, between the
  // policy's own at 0 and its idle_min at 1; also of those that wait already. O(1) now, and a walk
  // of bounded steps, one a tick.
  void set_pressure(double pressure) noexcept;
  double pressure() const noexcept { return pressure_; }

  // From now on all connections leave, asked with expiry_reason::drain: the idle ones, each at a
  // moment of its own within the window, busy ones as soon as they are idle, when the window has
  // begun to let them, and at the end of the grace whatever they are. Bytes that wait to be read
  // put it off, for a second at most. After `hard` those that still
  // linger are asked once more. `done` is called once, when none is left, or all have been asked
  // for the last time; it may destroy the reaper. To accept no more is the program's part; who
  // still comes leaves too. A second call changes nothing and returns false. Throws
  // std::invalid_argument for a negative time. O(1) now, and a walk.
  bool begin_drain(const drain_options& options = {}, std::function<void()> done = {});
  bool draining() const noexcept { return draining_; }

  // While on, no handler is asked to close: on_would_close() tells each connection's first reason,
  // once, and nothing of it is judged after that until it is off again. O(1) now, and a walk.
  void set_dry_run(bool on) noexcept;
  bool dry_run() const noexcept { return dry_run_; }

  // Connections closed for this reason, those that still linger included; the sum over all reasons.
  // Each counts once. While a handler is asked, its connection counts as closed. O(1).
  std::uint64_t closed(expiry_reason reason) const noexcept {
    return closed_[static_cast<std::size_t>(reason)];
  }
  std::uint64_t closed() const noexcept;
  std::uint64_t would_close(expiry_reason reason) const noexcept {  // in dry runs
    return would_close_[static_cast<std::size_t>(reason)];
  }

  std::uint64_t extended() const noexcept { return extended_; }  // answers that asked for more time
  std::uint64_t pings() const noexcept { return pings_; }        // on_ping_due() called
  std::uint64_t held_back() const noexcept { return held_back_; }  // by closes_per_second

 private:
  friend class connection_timeouts;

  static constexpr std::size_t walk_step = 4096;   // connections a tick
  static constexpr std::size_t least_chosen = 64;  // at once, by evict()

  struct candidate;
  void choose(std::vector<candidate>& chosen, std::size_t most, instant latest,
              const std::optional<candidate>& after);

  // The length of an idle limit under pressure, and of the connection with that spread.
  timespan idle_limit(timespan own, timespan least, double spread) const noexcept;
  instant next_close(instant now) noexcept;
  instant leaves_at(double spread) const noexcept;  // in a drain: who is idle
  instant grace_ends() const noexcept;              // who is busy
  instant drain_ends() const noexcept;              // who lingers
  void forget(detail::roster::place* of) noexcept;
  void walk_again() noexcept;
  void on_step() noexcept;

  timer_host* host_;
  reaper_options options_;
  detail::roster all_;
  std::array<std::uint64_t, expiry_reasons> closed_{};
  std::array<std::uint64_t, expiry_reasons> would_close_{};
  std::uint64_t extended_ = 0;
  std::uint64_t pings_ = 0;
  std::uint64_t held_back_ = 0;
  bool* ended_ = nullptr;  // of the connection whose handler is running: it stopped or is gone
  bool* gone_ = nullptr;   // of the evict() that is running

  double pressure_ = 0;
  bool dry_run_ = false;
  instant next_close_ = instant::min();

  // A walk over all connections, in steps: each works its limits out anew.
  timer step_{[this] { on_step(); }};
  detail::roster::cursor walked_;
  bool walking_ = false;

  bool draining_ = false;
  drain_options drain_;
  instant drain_since_{};
  std::function<void()> drained_;
};

}  // namespace idlewheel
