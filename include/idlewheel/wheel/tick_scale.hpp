// tick_scale.hpp - the only place where time becomes ticks.
//
// What   Converts instants of a host's clock to ticks and back.
// Why    Rounding decides whether a timeout is early. The absolute deadline is rounded up, once,
//        here; "now" is rounded down. So a timeout is never early, and late by less than a tick.
// Not    A clock. It is told the time.
//
//   tick 100 ms      deadline 230 ms -> tick 3     now 299 ms -> tick 2, not due
//   0    1    2    3    4                          now 300 ms -> tick 3, due
//   |----|----|-d--|----|
//
// The division is a multiplication by a reciprocal prepared in the constructor, exact for every
// instant from the clock's zero on (Granlund and Montgomery, "Division by Invariant Integers
// using Multiplication", PLDI 1994, with a dividend of 63 bits so that the multiplier fits in 64).
#pragma once
#include <algorithm>
#include <cstdint>

#include "idlewheel/wheel/timespan.hpp"

namespace idlewheel {

// A count of whole ticks since the host's clock began. 64 bits, saturating.
using tick = std::uint64_t;

class tick_scale {
 public:
  // One tick lasts `length`; 1 ns to 73 years (2^61 ns), else throws std::invalid_argument with the
  // value.
  explicit tick_scale(timespan length);

  timespan length() const noexcept { return std::chrono::nanoseconds{length_}; }

  // The last tick that had begun by t: what "now" is in ticks. Times before zero are tick 0. O(1).
  tick floor(instant t) const noexcept { return divide(clamp(t)); }

  // The first tick that begins at t or later: when a deadline at t may fire. O(1).
  tick ceil(instant t) const noexcept {
    const std::uint64_t ns = clamp(t);
    const std::uint64_t whole = divide(ns);
    return whole + (whole * length_ != ns);
  }

  // When tick n begins; instant::max() for what lies beyond it. O(1).
  instant begins(tick n) const noexcept;

 private:
  static std::uint64_t clamp(instant t) noexcept {
    const std::int64_t ns = t.time_since_epoch().count();
    return ns < 0 ? 0 : static_cast<std::uint64_t>(ns);
  }
  // pre: ns < 2^63
  std::uint64_t divide(std::uint64_t ns) const noexcept {
    __extension__ using wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<wide>(ns << 1) * reciprocal_) >> 64) >> shift_;
  }

  std::uint64_t length_;      // ns per tick
  std::uint64_t reciprocal_;  // ceil(2^(63 + shift_) / length_), between 2^63 and 2^64
  unsigned shift_;            // ceil(log2(length_))
};

}  // namespace idlewheel
