// timer.hpp - one timeout, living in the thing that it times.
//
// What   An intrusive node: a deadline, a callback, and its place on a wheel.
// Why    A timer inside its connection needs no allocation, no lookup and no handle; cancelling is
//        done when it returns.
// Not    Copyable or movable (the wheel holds its address), repeating, or thread-safe.
//
// Example
//   struct connection {
//     idlewheel::timer idle{[this] { close(); }};
//     void close();
//   };
//
// Promises
//   Early     Never. See timer_wheel.
//   Re-entry  The callback may arm, refresh, cancel or destroy any timer, this one and its owner
//             too, and may destroy the wheel.
//   Lifetime  ~timer cancels and fires nothing. Timer and wheel may die in either order.
//   Threads   Those of its wheel: one.
//   Time      A deadline is an absolute tick; being armed is a state of its own, no tick means "no".
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <type_traits>

#include "idlewheel/wheel/detail/link.hpp"
#include "idlewheel/wheel/tick_scale.hpp"
#include "idlewheel/wheel/timespan.hpp"

namespace idlewheel {

class timer_wheel;
class timer_host;
namespace detail {
class overdue_queue;
}

class timer : private detail::link {
 public:
  // `callback` is called as callback() or callback(timer&) when the timer has fired; by then it is
  // disarmed. It is stored inline: trivially copyable and no larger than a pointer, for example
  // [this] { ... }. It runs under noexcept: one that throws terminates the program. It runs from a
  // copy, since it may destroy the timer: what a mutable one changes in itself is lost.
  template <class F>
  requires(std::is_invocable_v<F&> ||
           std::is_invocable_v<F&, timer&>) explicit timer(F callback) noexcept
      : run_{&run<F>} {
    static_assert(sizeof(F) <= sizeof(callback_) && alignof(F) <= alignof(void*),
                  "a timer's callback holds one pointer at most, e.g. [this]");
    static_assert(std::is_trivially_copyable_v<F> && std::is_trivially_destructible_v<F>,
                  "a timer's callback must be trivially copyable");
    ::new (static_cast<void*>(callback_)) F(callback);
  }

  // Cancels; runs no callback. O(1).
  ~timer() { cancel(); }

  // True from arm() until it fires or is cancelled; while it waits its turn among the due, too.
  bool armed() const noexcept { return wheel_ != nullptr; }

  // Disarms it. Returns whether it was armed: after true the callback never runs. Harmless at any
  // time, also twice. O(1).
  bool cancel() noexcept;

  // When it fires; empty when not armed. O(1).
  std::optional<tick> deadline() const noexcept {
    return armed() ? std::optional{armed_deadline()} : std::nullopt;
  }

  // Ticks from `now` to the deadline, 0 when that is past; empty when not armed. O(1).
  std::optional<tick> remaining(tick now) const noexcept {
    if (!armed()) return std::nullopt;
    const tick due = armed_deadline();
    return due > now ? due - now : 0;
  }

  // The timeout that a timer_host last armed it with, which refresh() repeats; zero before that and
  // for a negative one.
  timespan timeout() const noexcept { return timeout_; }

  // The longest timeout that is kept; longer ones are cut to it.
  static constexpr timespan max_timeout = std::chrono::nanoseconds{INT64_C(1) << 62};  // 146 years

 private:
  friend class timer_wheel;
  friend class timer_host;
  friend class detail::overdue_queue;

  template <class F>
  static void run(void* callback, timer& self) noexcept {
    F& f = *std::launder(static_cast<F*>(callback));
    if constexpr (std::is_invocable_v<F&, timer&>)
      f(self);
    else
      f();
  }

  // Runs the callback from a copy: it may destroy the timer that it is stored in.
  void call() noexcept {
    alignas(void*) std::byte copy[sizeof(callback_)];
    std::memcpy(copy, callback_, sizeof copy);
    run_(copy, *this);
  }

  bool armed_on(const timer_wheel& wheel) const noexcept { return wheel_ == &wheel; }
  tick armed_deadline() const noexcept;  // pre: armed()

  void set_timeout(timespan t) noexcept { timeout_ = std::clamp(t, timespan{}, max_timeout); }

  // The first 48 bytes are what a refresh touches.
  tick filed_ = 0;  // where it sits: slot (filed_ mod slots); never after the deadline
  // On a bare wheel the deadline; on a host what the timeout counts from, see timer_host::stamp_of.
  std::uint64_t moved_to_ = 0;
  timespan timeout_;              // on a host: what refresh() repeats
  timer_wheel* wheel_ = nullptr;  // null: not armed
  void (*run_)(void*, timer&) noexcept;
  alignas(void*) std::byte callback_[sizeof(void*)];
};

static_assert(sizeof(timer) <= 64, "a timer is one cache line");

}  // namespace idlewheel
