// compact_instant.hpp - numbers and instants in six bytes, for the many that a connection keeps.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "idlewheel/wheel/timespan.hpp"

namespace idlewheel::detail {

// 48 bits; what is more is cut to max.
class compact_count {
 public:
  static constexpr std::uint64_t max = (std::uint64_t{1} << 48) - 1;
  compact_count() noexcept = default;
  compact_count(std::uint64_t n) noexcept {
    n = std::min(n, max);
    for (std::size_t i = 0; i != parts_.size(); ++i)
      parts_[i] = static_cast<std::uint16_t>(n >> (16 * i));
  }
  operator std::uint64_t() const noexcept {
    return parts_[0] | std::uint64_t{parts_[1]} << 16 | std::uint64_t{parts_[2]} << 32;
  }

 private:
  std::array<std::uint16_t, 3> parts_{};
};

// In units of 20 us, rounded up, so that a limit counted from it is never early. From the clock's
// zero to 178 years, beyond what a host's clock may show; later is for ever.
class compact_instant {
 public:
  compact_instant() noexcept = default;
  compact_instant(instant t) noexcept : units_{units_of(t)} {}
  // The earlier of this plus d, rounded up, and `cap`; without the detour by nanoseconds.
  compact_instant later_within(double d_ns, instant cap) const noexcept {
    const double units = d_ns / static_cast<double>(unit);
    const std::uint64_t more = units < 0x1p47 ? static_cast<std::uint64_t>(units) + 1 : 1ull << 47;
    compact_instant t;
    t.units_ = std::min(units_ + more, units_of(cap));
    return t;
  }
  operator instant() const noexcept {
    if (units_ == compact_count::max) return instant::max();
    return instant{std::chrono::nanoseconds{static_cast<std::int64_t>(units_ * unit)}};
  }

 private:
  static constexpr std::uint64_t unit = 20'000;  // ns; whole milliseconds are whole units
  static std::uint64_t units_of(instant t) noexcept {
    const std::int64_t ns = std::max<std::int64_t>(t.time_since_epoch().count(), 0);
    return (static_cast<std::uint64_t>(ns) + unit - 1) / unit;
  }
  compact_count units_;
};

}  // namespace idlewheel::detail
