// compact_instant.hpp - numbers and instants in six bytes, for the many that a connection keeps.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "idlewheel/wheel/timespan.hpp"

namespace idlewheel::detail {

// 48 bits; what is more is cut to max.
class compact_count {
 public:
  static constexpr std::uint64_t max = (std::uint64_t{1} << 48) - 1;
  compact_count() noexcept = default;
  compact_count(std::uint64_t n) noexcept {
    n = std::min(n, max);
    const auto low = static_cast<std::uint32_t>(n);
    const auto high = static_cast<std::uint16_t>(n >> 32);
    std::memcpy(bytes_.data(), &low, sizeof low);
    std::memcpy(bytes_.data() + sizeof low, &high, sizeof high);
  }
  operator std::uint64_t() const noexcept {
    std::uint32_t low;
    std::uint16_t high;
    std::memcpy(&low, bytes_.data(), sizeof low);
    std::memcpy(&high, bytes_.data() + sizeof low, sizeof high);
    return std::uint64_t{high} << 32 | low;
  }

 private:
  // Written and read in the same two pieces, so that a read after a write need not wait.
  alignas(2) std::array<std::byte, 6> bytes_{};
};

// In units of 20 us, rounded up, so that a limit counted from it is never early. From the clock's
// zero to 178 years, beyond what a host's clock may show; later is for ever.
class compact_instant {
 public:
  compact_instant() noexcept = default;
  compact_instant(instant t) noexcept : units_{units_of(t)} {}
  // The earlier of this plus that time, rounded up, and `cap`; without the detour by nanoseconds.
  compact_instant later_within(double seconds, instant cap) const noexcept {
    const double units = seconds * (1e9 / static_cast<double>(unit));
    const std::int64_t more =
        units < 0x1p47 ? static_cast<std::int64_t>(units) + 1 : INT64_C(1) << 47;
    compact_instant t;
    t.units_ = std::min(units_ + static_cast<std::uint64_t>(more), units_of(cap));
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
