#include "idlewheel/wheel/detail/stall_log.hpp"

#include <algorithm>

namespace idlewheel::detail {

void stall_log::add(instant stamp, instant until, timespan grain) noexcept {
  const timespan lag = between(stamp, until);
  ++count_;
  longest_ = std::max(longest_, lag);
  if (size_ != 0) {
    entry& recent = entries_[size_ - 1];
    if (between(recent.first, stamp) < grain && std::max(recent.lag, lag) < grain) {
      recent.last = stamp;
      recent.lag = std::max(recent.lag, lag);
      return;
    }
  }
  if (size_ == entries_.size()) halve();
  entries_[size_++] = {.first = stamp, .last = stamp, .lag = lag};
}

timespan stall_log::lag(instant stamp) const noexcept {
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(size_);
  // The last that may hold it: one poll's stamps can have been in use twice, the second time longer.
  const auto next =
      std::partition_point(entries_.begin(), end, [&](const entry& e) { return e.first <= stamp; });
  return next != entries_.begin() && stamp <= next[-1].last ? next[-1].lag : timespan{};
}

void stall_log::halve() noexcept {
  for (std::size_t i = 0; i != size_ / 2; ++i) {
    const entry& older = entries_[2 * i];
    const entry& newer = entries_[2 * i + 1];
    entries_[i] = {.first = older.first, .last = newer.last, .lag = std::max(older.lag, newer.lag)};
  }
  size_ /= 2;
}

}  // namespace idlewheel::detail
