// timer_host.hpp - a wheel together with the time that it runs on.
//
// What   Turns timeouts into deadlines: it owns a timer_wheel, its tick_scale and the knowledge of
//        what time it is. uv/loop_wheel.hpp is the host on a libuv loop, testing/manual_wheel.hpp
//        the one that a test winds by hand. Policy code takes a timer_host& and runs on both.
// Why    Whose clock a timeout is measured from decides whether it is early. Two rules:
//          arm      from a fresh clock read: the loop's cached time may be seconds old.
//          refresh  from the poll that reported the bytes: no clock is read on the hot path. Should
//                   a handler have blocked between that poll and the refresh, bytes that came in
//                   meanwhile were read too; the host notices at the end of the turn, and makes
//                   good for it when such a timer comes due (detail/stall_log.hpp).
// Not    An interface: arming and refreshing are plain code. Virtual is only what is cold.
//
// Promises
//   Early     Never. A timeout of T fires when at least T has really passed since it was armed or
//             since the last refresh, and less than one tick later, plus the time the loop itself
//             was blocked.
//   Re-entry, Lifetime, Threads   As timer_wheel says.
//   Time      Negative timeouts are already late, and fire as soon as the host judges again; those
//             above timer::max_timeout (146 years) are cut to it. A host's clock may not stand above
//             that either. One that steps back means that no time has passed.
#pragma once
#include <cstddef>
#include <cstdint>

#include "idlewheel/wheel/detail/stall_log.hpp"
#include "idlewheel/wheel/socket_view.hpp"
#include "idlewheel/wheel/tick_scale.hpp"
#include "idlewheel/wheel/timer.hpp"
#include "idlewheel/wheel/timer_wheel.hpp"
#include "idlewheel/wheel/timespan.hpp"

namespace idlewheel {

class timer_host {
 public:
  timer_host(const timer_host&) = delete;
  timer_host& operator=(const timer_host&) = delete;
  virtual ~timer_host();

  // Arms t to fire when `timeout` has passed from now, a fresh clock read; an armed timer is moved.
  // False, and nothing armed, when the host is closed. O(1), allocates nothing.
  bool arm(timer& t, timespan timeout) noexcept;

  // The same from another moment: fires when `timeout` has passed since `base`. For a limit that
  // counts from an activity in the past. A deadline already reached fires when the host judges next.
  bool arm_since(timer& t, instant base, timespan timeout) noexcept;

  // The same to a point on this host's clock. timeout() becomes the time from now to there.
  bool arm_at(timer& t, instant deadline) noexcept;

  // Moves an armed timer: its timeout() counts anew, from the poll that reported the bytes. False,
  // and nothing done, when it is not armed on this host: a refresh never revives. It never fires
  // the timer sooner than it would have. Reads no clock. O(1): one store; when relinking, also a
  // note for the first refresh in each tick; when there is no place for another note, all those
  // noted are relinked, at the latest by the next visit.
  bool refresh(timer& t) noexcept {
    if (*poll_clock_ != stamped_) [[unlikely]]
      stamp_poll();
    if (!t.armed_on(wheel_)) return false;
    // Little may depend on the timer's fields here: they come from memory, and the less waits for
    // them, the more connections' misses overlap.
    const bool relink = relink_before_ != 0 && t.moved_to_ < relink_before_;
    t.moved_to_ = poll_stamp_;
    if (relink) note_relink(t);
    return true;
  }

  // The same with another timeout, which later refreshes repeat; a shorter one moves it sooner.
  // O(1).
  bool refresh(timer& t, timespan timeout) noexcept;

  // The same to a point on this host's clock: timeout() becomes the time from the poll to there.
  // O(1).
  bool refresh_at(timer& t, instant deadline) noexcept;

  // Returns whether t was armed here; after true its callback never runs. O(1).
  bool cancel(timer& t) noexcept { return wheel_.cancel(t); }

  // When t's timeout has passed: it fires in the tick after that, or a little later. pre: t is armed
  // here. O(1), and a search of a few entries when turns have stalled.
  instant due(const timer& t) const noexcept;

  // A fresh clock read, or the last one when the clock has stepped back.
  instant now() noexcept;

  // The stamp of the last poll: no event that it reported was known of later. Reads no clock. O(1).
  instant poll_time() noexcept {
    if (*poll_clock_ != stamped_) [[unlikely]]
      stamp_poll();
    return poll_time_;
  }

  // The latest time at which an event stamped with this poll_time() can really have happened: the
  // stamp, unless a handler blocked during that turn. For the moment when a limit has run out.
  instant latest(instant stamp) const noexcept { return later(stamp, stalls_.lag(stamp)); }

  // The time that the wheel was last advanced to: in a callback, what the verdict is based on.
  // Never later than a fresh read.
  instant judged_at() const noexcept { return judged_at_; }

  // What the kernel says about a socket, or what a test says; all empty when it cannot or when
  // looks are switched off. Two or three system calls.
  virtual socket_look look(const socket_view& socket) noexcept = 0;

  const timer_wheel& wheel() const noexcept { return wheel_; }
  const tick_scale& scale() const noexcept { return scale_; }
  bool closed() const noexcept { return closed_; }
  std::uint64_t stalls() const noexcept { return stalls_.count(); }  // turns that made stamps late
  timespan longest_stall() const noexcept { return stalls_.longest(); }

 protected:
  // How a host tells the time of its polls: a counter that it, or libuv, sets at each poll, to be
  // read where it stands.
  struct poll_clock {
    const std::uint64_t* count;  // outlives the host; never the largest 64-bit number
    std::uint64_t unit;          // ns per count
    std::uint64_t slack;         // counts to add, so that what the poll reported is not later
  };

  timer_host(const wheel_options& options, const tick_scale& scale, const poll_clock& clock);

  // To be called when the handlers of a poll have run, and before the next poll, with a fresh time
  // when stamps_used(): closes the books of that turn's stamps.
  bool stamps_used() const noexcept { return stamped_ != no_stamp; }
  void end_of_stamps(instant now) noexcept;

  // Fires what is due at `at`, at most `budget` timers met; then plans the next visit, unless more
  // is left: then the caller calls again. The host may be gone when it returns, which the caller
  // has to find out by means of its own. From a callback: does nothing and returns {0, true}.
  progress judge(instant at, std::size_t budget) noexcept;

  // Disarms all and refuses what comes later. Idempotent.
  void close_host() noexcept;

  // Where the derived host is told to come back: call judge() at `when` or a little later; never,
  // after forget_visit(). Cold: only when something sooner was armed, or all was cancelled.
  virtual void plan_visit(instant when) noexcept = 0;
  virtual void forget_visit() noexcept = 0;
  virtual instant read_clock() noexcept = 0;
  virtual void check_thread() const noexcept {}  // asserts in debug builds

 private:
  // What the timeout of one of our timers counts from, as the timer keeps it: nanoseconds, and in
  // the lowest bit whether they are a poll's stamp, which latest() may correct.
  static std::uint64_t stamp_of(instant base, bool from_poll) noexcept {
    return (static_cast<std::uint64_t>(base.time_since_epoch().count()) << 1) |
           (from_poll ? 1u : 0u);
  }
  // Refiles t after its timeout or what that counts from was changed at will.
  void move_to(timer& t, instant deadline) noexcept;
  tick deadline_of(const timer& t) const noexcept;
  void visit_by(tick due) noexcept;
  void note_relink(timer& t) noexcept {
    if (wheel_.to_relink_count_ == wheel_.to_relink_.size()) [[unlikely]]
      relink_noted();
    if (wheel_.to_relink_count_ == 0) wheel_.relinks_since_ = poll_stamp_;
    wheel_.to_relink_[wheel_.to_relink_count_++] = &t;
  }
  void relink_noted() noexcept;

  static constexpr std::uint64_t no_stamp = ~std::uint64_t{0};
  void stamp_poll() noexcept;
  void settle_stamps() noexcept;  // nothing is armed: nobody will tell the end of this turn

  // What a refresh reads first, in one cache line.
  const std::uint64_t* poll_clock_;
  std::uint64_t stamped_ = no_stamp;  // the count that poll_time_ was made from
  std::uint64_t poll_stamp_ = 0;      // poll_time_ as stamp_of() keeps it
  std::uint64_t relink_before_ = 0;   // the start of poll_time_'s tick, likewise; 0 when deferred
  tick_scale scale_;
  tick visit_ = 0;  // 0 while judging, whose end plans anew
  timer_wheel wheel_;

  instant poll_time_{};
  instant read_last_{};
  poll_clock clock_;

  // I1  While the wheel holds a timer, a visit is planned at visit_ <= wheel_.next_visit(), or
  //     judging_ is set.
  bool closed_ = false;
  bool planned_ = false;
  bool judging_ = false;  // in judge(), or between two calls for one unfinished pass
  bool* gone_ = nullptr;  // of the judge() that is running
  instant judged_at_{};
  detail::stall_log stalls_;
};

}  // namespace idlewheel
