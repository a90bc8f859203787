#include "idlewheel/wheel/tick_scale.hpp"

#include <bit>
#include <stdexcept>
#include <string>

namespace idlewheel {

tick_scale::tick_scale(timespan length) {
  if (length.count_ns() < 1 || length.count_ns() > INT64_C(1) << 61)
    throw std::invalid_argument("idlewheel: a tick must last 1 ns to 2^61 ns (73 years), not " +
                                std::to_string(length.count_ns()) + " ns");
  __extension__ using wide = unsigned __int128;
  length_ = static_cast<std::uint64_t>(length.count_ns());
  shift_ = static_cast<unsigned>(std::bit_width(length_ - 1));
  const wide scaled = static_cast<wide>(1) << (63 + shift_);
  reciprocal_ = static_cast<std::uint64_t>((scaled + length_ - 1) / length_);
}

instant tick_scale::begins(tick n) const noexcept {
  std::uint64_t ns = 0;
  if (__builtin_mul_overflow(n, length_, &ns) ||
      ns > static_cast<std::uint64_t>(instant::max().time_since_epoch().count()))
    return instant::max();
  return instant{std::chrono::nanoseconds{static_cast<std::int64_t>(ns)}};
}

}  // namespace idlewheel
