// timespan.hpp - how long, and when: the two kinds of time at our public boundary.
//
// What   timespan is a length of time in nanoseconds that any chrono duration converts to without
//        overflow; instant is a point on the host's monotonic clock.
// Why    std::chrono::nanoseconds(std::chrono::hours::max()) wraps to a negative number and a
//        timeout of "for ever" would fire at once. Here what is too long is cut to max().
// Not    Wall-clock time. Setting the date moves no deadline.
//
// Ranges
//   timespan   -292 years to +292 years (64-bit nanoseconds). Longer saturates, shorter than a
//              nanosecond rounds away from zero, so that nothing short becomes "off"; of floating
//              point that is the binary value: duration<double>{0.1} is 100,000,001 ns.
//   NaN        throws std::invalid_argument; infinities saturate.
#pragma once
#include <chrono>
#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>

namespace idlewheel {

namespace detail {

template <class Rep, class Period>
constexpr std::int64_t saturated_ns(std::chrono::duration<Rep, Period> d) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  using to_ns = std::ratio_divide<Period, std::nano>;
  if constexpr (std::is_integral_v<Rep>) {
    // 128 bits hold a 64-bit count of anything up to an age of the universe per unit.
    __extension__ using wide = __int128;
    static_assert(to_ns::num < (INT64_C(1) << 62), "a unit this long is not a timeout");
    const wide scaled = static_cast<wide>(d.count()) * to_ns::num;
    wide ns = scaled / to_ns::den;
    if (scaled % to_ns::den != 0) ns += scaled > 0 ? 1 : -1;
    return ns > most ? most : ns < least ? least : static_cast<std::int64_t>(ns);
  } else {
    const long double ns = static_cast<long double>(d.count()) * to_ns::num / to_ns::den;
    if (ns != ns) throw std::invalid_argument("idlewheel: a duration is not a number (NaN)");
    if (ns >= static_cast<long double>(most)) return most;
    if (ns <= static_cast<long double>(least)) return least;
    return static_cast<std::int64_t>(ns < 0 ? std::floor(ns) : std::ceil(ns));
  }
}

}  // namespace detail

class timespan {
 public:
  constexpr timespan() noexcept = default;

  // From any chrono duration, saturating. Throws only for a floating-point NaN. O(1).
  template <class Rep, class Period>
  constexpr timespan(std::chrono::duration<Rep, Period> d) noexcept(std::is_integral_v<Rep>)
      : ns_{detail::saturated_ns(d)} {}

  constexpr operator std::chrono::nanoseconds() const noexcept {
    return std::chrono::nanoseconds{ns_};
  }
  constexpr std::int64_t count_ns() const noexcept { return ns_; }

  static constexpr timespan max() noexcept { return std::chrono::nanoseconds::max(); }

  friend constexpr auto operator<=>(timespan, timespan) noexcept = default;

 private:
  std::int64_t ns_ = 0;
};

// The clock of a host: monotonic, its zero is the host's own. It has no now(): time comes from a
// timer_host, so that a test can hold it.
struct host_clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<host_clock>;
  static constexpr bool is_steady = true;
};
using instant = host_clock::time_point;

// t + d, kept within the range of instant. O(1).
constexpr instant later(instant t, timespan d) noexcept {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(t.time_since_epoch().count(), d.count_ns(), &sum))
    return d.count_ns() > 0 ? instant::max() : instant::min();
  return instant{std::chrono::nanoseconds{sum}};
}

// b - a, kept within the range of timespan. O(1).
constexpr timespan between(instant a, instant b) noexcept {
  std::int64_t difference = 0;
  const std::int64_t from = a.time_since_epoch().count();
  const std::int64_t to = b.time_since_epoch().count();
  if (__builtin_sub_overflow(to, from, &difference))
    return to > from ? timespan::max() : timespan{std::chrono::nanoseconds::min()};
  return std::chrono::nanoseconds{difference};
}

}  // namespace idlewheel
