// timer_wheel.hpp - very many coarse timeouts on one clock, O(1) each.
//
// What   A hashed timing wheel: a ring of lists. A timer waits in slot (deadline mod slots) until it
//        fires, is moved or is cancelled (Varghese and Lauck, "Hashed and Hierarchical Timing
//        Wheels", SOSP 1987, scheme 6; with absolute deadlines instead of counted-down laps).
// Why    A connection timeout is nearly always refreshed or cancelled, hardly ever fired. A heap
//        pays O(log n) and its cache misses for each of those; a wheel pays one splice, or less.
// Not    A precise scheduler: no repeats, no threads, and no clock - time comes in as a number.
//
//   now 2, slots 8         A due 3, B due 5, C due 11 (A's slot, one lap later)
//   slot   0   1   2   3   4   5   6   7
//                  ^   AC      B
//   earliest            3       5                   a lower bound per slot: when only C is left in
//                                                   slot 3, its 11 keeps tick 3 from touching it
//
//   tick      slots   one lap    memory    a sweep of one lap visits at most
//   100 ms      512    51.2 s    16 KiB    512 slots, 8 words of bitmap
//   100 ms    1,024   102.4 s    32 KiB    1,024 slots, 16 words
//    10 ms    8,192    81.9 s   256 KiB    8,192 slots, 128 words
//   Choose tick x slots above the longest common timeout: then a timer is met once, when it is due.
//
// Example
//   idlewheel::timer_wheel wheel;
//   idlewheel::timer idle{[] { std::puts("idle"); }};
//   wheel.arm(idle, 3);
//   wheel.advance(3);  // prints "idle"
//
// Promises
//   Early     Never: fires in the first advance(now) with now >= deadline, in deadline order; within
//             one tick in no promised order.
//   Re-entry  A callback may arm, refresh, cancel or destroy any timer, its own too, and may destroy
//             the wheel. What it arms waits for a later tick. advance() inside a callback does
//             nothing and says so.
//   Lifetime  Either may die first: ~timer cancels, ~timer_wheel disarms what is left. Neither fires.
//   Threads   One wheel, one thread; nothing here locks.
//   Time      Only forward: an older `now` means that no time has passed. A deadline of the largest
//             tick never comes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "idlewheel/wheel/detail/link.hpp"
#include "idlewheel/wheel/detail/overdue_queue.hpp"
#include "idlewheel/wheel/tick_scale.hpp"
#include "idlewheel/wheel/timer.hpp"

namespace idlewheel {

// How a refresh to a later deadline is kept. Callers see no difference but in speed;
// bench/README.md says which is faster when.
enum class refresh_mode {
  relink,  // moved to its new slot: unlink and append, or one store within the same slot. At once on
           // a bare wheel; on a timer_host in batches, at the latest before it is judged
  deferred,  // one store; the sweep moves the timer when it reaches the old slot
};

struct wheel_options {
  std::size_t slots = 512;  // 1 to timer_wheel::max_slots; rounded up to a power of two
  refresh_mode refresh = refresh_mode::relink;
  tick start = 0;  // the first `now`; a deadline counts from here
};

// What one advance() did.
struct progress {
  std::size_t fired = 0;  // callbacks run
  bool more = false;      // timers of this pass are still to be met: call again with the same now
};

// Totals since the wheel was made.
struct wheel_counts {
  std::uint64_t fired = 0;
  std::uint64_t relinked = 0;  // unlinked and filed anew, by a refresh or by the sweep
  std::uint64_t kept = 0;      // met by the sweep and left where they were: not due in this lap
};

class timer_wheel {
 public:
  static constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_slots = std::size_t{1} << 24;

  // Throws std::invalid_argument with the value when slots is 0 or above max_slots. Allocates
  // 32 bytes and a bit per slot here and nothing ever after. O(slots).
  explicit timer_wheel(const wheel_options& options = {});
  ~timer_wheel();  // O(slots + timers)
  timer_wheel(const timer_wheel&) = delete;
  timer_wheel& operator=(const timer_wheel&) = delete;

  // Arms, or arms anew: an armed timer, on this wheel or on another, is moved. A deadline already
  // reached fires at the next tick, never inside this call. O(1).
  void arm(timer& t, tick deadline) noexcept;

  // Moves an armed timer; the hot path. False, and nothing done, when t is not armed on this wheel:
  // a refresh never revives. A deadline already reached fires at the next tick. O(1).
  bool refresh(timer& t, tick deadline) noexcept {
    if (t.wheel_ != this) return false;
    if (!refresh_in_place(t, deadline)) relink(t, deadline);
    return true;
  }

  // Returns whether t was armed on this wheel; after true its callback never runs. O(1).
  bool cancel(timer& t) noexcept;

  // Disarms every timer and runs no callback. O(slots + timers).
  void cancel_all() noexcept;

  // Moves time to `now` and fires what is due. `budget` limits the timers met, whether they fire or
  // are only looked at; what it leaves is resumed by the next call, before anything newer.
  //   more   Exact: true when this pass has timers left to meet, so that the next call meets at least
  //          one; false when nothing with a deadline <= now is armed any more.
  //   jumps  Of any length: each slot is visited at most once per pass. A jump of more than a lap
  //          meets each due timer up to log2(ticks jumped) times more, to bring it in order.
  // From a callback of this wheel: does nothing and returns {0, true}.
  // O(slots passed / 64 + occupied slots passed + timers met).
  progress advance(tick now, std::size_t budget = no_limit) noexcept;

  // When advance() is next worth calling: perhaps too soon, never too late; now() while a pass is
  // unfinished; empty when nothing is armed. O(slots / 64 + occupied slots) at worst, and done at
  // the first slot with something due within a lap.
  std::optional<tick> next_visit() const noexcept;

  tick now() const noexcept { return now_; }
  std::size_t size() const noexcept { return size_; }  // timers armed
  std::size_t slots() const noexcept { return mask_ + 1; }
  refresh_mode refresh_by() const noexcept { return refresh_; }
  const wheel_counts& counts() const noexcept { return counts_; }

  // True when the invariants below hold. O(slots + timers); tests call it after every step.
  bool check_invariants() const noexcept;

 private:
  friend class timer_host;
  friend class timer;

  struct alignas(32) slot {
    detail::link timers;
    tick earliest = 0;  // meaningful while occupied
  };

  // I1  A timer in the ring sits in slot (filed_ & mask_), and swept_ < filed_ <= its deadline.
  // I2  Bit s of occupied_ is set exactly when slot s holds a timer.
  // I3  An occupied slot's earliest <= filed_ of each timer in it, earliest is congruent to the slot,
  //     and earliest > swept_.
  // I4  size_ == timers in the ring, in met_ and in overdue_; each has wheel_ == this.
  // I5  swept_ <= target_ <= now_; equal, with met_ and overdue_ empty, unless a pass is unfinished.
  // I6  A timer in met_ or overdue_ has filed_ <= its deadline.
  // I7  A timer in to_relink_ is armed here, with moved_to_ >= relinks_since_.
  std::unique_ptr<slot[]> ring_;
  std::unique_ptr<std::uint64_t[]> occupied_;
  tick mask_ = 0;         // slots - 1
  tick relink_mask_ = 0;  // mask_ when relinking, 0 when deferred
  tick now_ = 0;          // the latest time given
  std::size_t size_ = 0;

  // Timers that a host has refreshed and not moved yet. They may stay where they are: the ring finds
  // the later deadline when it gets there. But moved a batch at a time, when their cache lines are
  // at hand, they cost less than one by one.
  std::array<timer*, 128> to_relink_;
  std::size_t to_relink_count_ = 0;
  std::uint64_t relinks_since_ = 0;  // see I7

  // The pass: everything with a deadline <= target_ is to fire.
  tick swept_ = 0;  // the last finished pass's target
  tick target_ = 0;
  tick cursor_ = 0;          // slots of ticks up to here are taken
  tick end_ = 0;             // and this is the last one to take
  bool over_a_lap_ = false;  // target_ - swept_ > slots: by overdue_, since slots hold several laps
  detail::link met_;         // the slot at cursor_, set aside; its timers are met one by one
  detail::overdue_queue overdue_;

  wheel_counts counts_;
  refresh_mode refresh_;
  bool advancing_ = false;
  bool from_back_ = false;
  bool* destroyed_ = nullptr;  // of the advance() that is running
  // The host's, if there is one. Its timers keep in moved_to_ what the timeout counts from, so that
  // a refresh need not know the tick; what deadline that makes is asked when the ring meets it.
  struct host_hooks {
    void* host = nullptr;
    void (*emptied)(void* host) noexcept = nullptr;  // the last timer was cancelled
    tick (*deadline)(const void* host, const timer& t) noexcept = nullptr;
  } hooks_;

  // The refresh that is one store: to the same slot, or deferred. The ring looks at filed_ first
  // and finds the later deadline there. False, and nothing done, when that will not do.
  bool refresh_in_place(timer& t, tick deadline) noexcept {
    if (deadline <= now_ || deadline < t.filed_ || ((deadline ^ t.filed_) & relink_mask_) != 0)
      return false;
    t.moved_to_ = deadline;
    return true;
  }

  slot& slot_of(tick t) const noexcept { return ring_[t & mask_]; }
  // Unlinks t from wherever it is. The list it leaves empty may also be met_ or a bucket of
  // overdue_, which have no bit.
  void take(timer& t) noexcept {
    if (detail::link* const emptied = t.unlink()) [[unlikely]]
      if (emptied == &slot_of(t.filed_).timers) clear_bit(t.filed_);
  }

  // Appends t to the slot of filed_. pre: it is in no list.
  void file(timer& t) noexcept {
    slot& s = slot_of(t.filed_);
    if (s.timers.empty()) [[unlikely]]
      set_bit(t.filed_);
    else if (t.filed_ < s.earliest) [[unlikely]]
      s.earliest = t.filed_;
    s.timers.push_back(t);
  }
  void file(timer& t, tick at) noexcept {
    t.filed_ = at;
    file(t);
  }

  // Files t at that tick, or at the next one when that is reached. For arming and for moving.
  void place(timer& t, tick at) noexcept;
  void move(timer& t, tick at) noexcept {
    take(t);
    file(t, at > now_ ? at : now_ + 1);
    ++counts_.relinked;
  }
  void relink(timer& t, tick deadline) noexcept {
    move(t, deadline);
    t.moved_to_ = t.filed_;
  }

  tick deadline_of(const timer& t) const noexcept {
    return hooks_.deadline != nullptr ? hooks_.deadline(hooks_.host, t) : t.moved_to_;
  }
  // To be called before moved_to_ is set to anything else but a newer poll, and before t goes.
  void forget_relink(timer& t) noexcept {
    if (to_relink_count_ != 0 && t.moved_to_ >= relinks_since_) [[unlikely]]
      drop_relink(t);
  }
  void drop_relink(timer& t) noexcept;
  bool find_work() noexcept;  // false: the pass to now_ is finished
  bool take_next_slot() noexcept;
  timer* meet_one() noexcept;     // the timer to fire, or null; pre: find_work()
  timer* meet_next() noexcept;    // pre: met_ holds one
  void set_bit(tick t) noexcept;  // and earliest: t is the slot's first
  void clear_bit(tick t) noexcept;
  std::optional<tick> next_occupied(tick after, tick last) const noexcept;
};

}  // namespace idlewheel
