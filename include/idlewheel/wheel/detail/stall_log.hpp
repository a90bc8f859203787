// stall_log.hpp - turns of the loop in which time went by between a poll and what was stamped with
// it.
//
// A refresh counts from the poll that reported the bytes, without reading a clock. When a handler
// blocks in between, bytes that came during the blocking are read under that old stamp. Nothing can
// be known at the refresh; at the end of the turn it can. The log keeps how far off the stamps of
// such a turn may be, and whoever finds a timeout run out adds that before believing it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "idlewheel/wheel/timespan.hpp"

namespace idlewheel::detail {

class stall_log {
 public:
  // Stamps of `stamp` were in use until `until`; stamps come in order. Those less than `grain`
  // apart share an entry. O(1), now and then O(entries).
  void add(instant stamp, instant until, timespan grain) noexcept;

  // How much later than stamped an event with that stamp may really have been; zero when its turn
  // did not stall. O(log entries).
  timespan lag(instant stamp) const noexcept;

  std::uint64_t count() const noexcept { return count_; }  // turns added
  timespan longest() const noexcept { return longest_; }

 private:
  struct entry {
    instant first, last;  // the stamps it stands for
    timespan lag;         // the largest of them
  };
  void halve() noexcept;

  // When full, neighbours are joined in pairs: old stalls are remembered ever more coarsely, but
  // never forgotten. What lies between two joined ones may come late by their lag, never early.
  std::array<entry, 128> entries_{};
  std::size_t size_ = 0;
  std::uint64_t count_ = 0;
  timespan longest_;
};

}  // namespace idlewheel::detail
