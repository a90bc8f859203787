// overdue_queue.hpp - what came due together in a jump of more than a lap, in deadline order.
//
// After such a jump one slot holds timers of several laps, so slot order is no longer deadline
// order. A radix heap (Ahuja, Mehlhorn, Orlin, Tarjan, "Faster Algorithms for the Shortest Path
// Problem", J. ACM 37(2), 1990) sorts them without allocating, in steps of one timer each: a timer
// waits in the bucket of the highest bit in which its deadline differs from the last one taken, and
// moves only to lower buckets, at most 64 times.
#pragma once
#include <array>
#include <cstddef>

#include "idlewheel/wheel/detail/link.hpp"
#include "idlewheel/wheel/timer.hpp"

namespace idlewheel::detail {

class overdue_queue {
 public:
  // Begins a new pass. pre: empty(); every timer put in has deadline >= from.
  void begin(tick from) noexcept {
    last_ = from;
    spreading_ = 0;
  }

  // Files a timer that is in no list by its deadline. O(1).
  void put(timer& t, tick deadline) noexcept;

  // One step, O(1): either the timer with the earliest deadline, still linked, or null when the
  // step went into moving one timer down. pre: !empty().
  timer* step() noexcept;

  // O(buckets): timers leave by unlinking themselves, so nothing is counted here.
  bool empty() const noexcept;

  // All timers left, in no order, appended to `to`. O(buckets).
  void drain(link& to) noexcept;

  template <class F>
  void for_each(F f) const {
    for (const link& head : buckets_)
      for (const link* l = head.front(); l != &head; l = l->next())
        f(static_cast<const timer&>(*l));
  }

 private:
  void file(timer& t) noexcept;

  // Bucket 0: deadline == last_. Bucket b: the highest bit that differs from last_ is b - 1; only
  // the bucket being spread still stands as it did for an earlier last_.
  std::array<link, 65> buckets_;
  tick last_ = 0;
  std::size_t spreading_ = 0;  // 0: none
};

}  // namespace idlewheel::detail
