#include "idlewheel/wheel/timer_wheel.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

namespace idlewheel {
namespace {

// "Now" stops one short of the largest tick, so that a deadline saturated to it never comes.
constexpr tick last_now = std::numeric_limits<tick>::max() - 1;

}  // namespace

bool timer::cancel() noexcept { return wheel_ != nullptr && wheel_->cancel(*this); }

tick timer::armed_deadline() const noexcept { return wheel_->deadline_of(*this); }

timer_wheel::timer_wheel(const wheel_options& options) : refresh_{options.refresh} {
  if (options.slots == 0 || options.slots > max_slots)
    throw std::invalid_argument("idlewheel: a wheel has 1 to " + std::to_string(max_slots) +
                                " slots, not " + std::to_string(options.slots));
  const std::size_t slots = std::bit_ceil(options.slots);
  ring_ = std::make_unique<slot[]>(slots);
  occupied_ = std::make_unique<std::uint64_t[]>((slots + 63) / 64);
  mask_ = slots - 1;
  relink_mask_ = refresh_ == refresh_mode::relink ? mask_ : 0;
  now_ = swept_ = target_ = cursor_ = end_ = std::min(options.start, last_now);
}

timer_wheel::~timer_wheel() {
  hooks_ = {};
  cancel_all();
  if (destroyed_ != nullptr) *destroyed_ = true;
}

void timer_wheel::arm(timer& t, tick deadline) noexcept {
  place(t, deadline);
  t.moved_to_ = t.filed_;
}

void timer_wheel::place(timer& t, tick at) noexcept {
  if (t.wheel_ == this) {
    forget_relink(t);
    take(t);
  } else {
    t.cancel();
    t.wheel_ = this;
    ++size_;
  }
  file(t, std::max(at, now_ + 1));
}

bool timer_wheel::cancel(timer& t) noexcept {
  if (t.wheel_ != this) return false;
  forget_relink(t);
  take(t);
  t.wheel_ = nullptr;
  --size_;
  if (size_ == 0 && hooks_.emptied != nullptr) hooks_.emptied(hooks_.host);
  return true;
}

void timer_wheel::drop_relink(timer& t) noexcept {
  timer** const first = to_relink_.data();
  to_relink_count_ =
      static_cast<std::size_t>(std::remove(first, first + to_relink_count_, &t) - first);
}

void timer_wheel::cancel_all() noexcept {
  if (size_ == 0) return;
  to_relink_count_ = 0;
  detail::link all;
  for (tick s = 0; s <= mask_; ++s) all.take_all(ring_[s].timers);
  std::fill_n(occupied_.get(), (mask_ + 64) / 64, 0);
  all.take_all(met_);
  overdue_.drain(all);
  while (!all.empty()) {
    timer& t = static_cast<timer&>(*all.front());
    t.unlink();
    t.wheel_ = nullptr;
  }
  size_ = 0;
  if (hooks_.emptied != nullptr) hooks_.emptied(hooks_.host);
}

progress timer_wheel::advance(tick now, std::size_t budget) noexcept {
  if (advancing_) return {.fired = 0, .more = true};
  now_ = std::max(now_, std::min(now, last_now));

  bool destroyed = false;
  destroyed_ = &destroyed;
  advancing_ = true;
  progress done;
  while (find_work()) {
    if (budget == 0) {
      done.more = true;
      break;
    }
    --budget;
    if (timer* const t = meet_one()) {
      forget_relink(*t);
      take(*t);
      t->wheel_ = nullptr;
      --size_;
      ++counts_.fired;
      ++done.fired;
      t->call();  // may destroy the timer, or this wheel
      if (destroyed) return done;
    }
  }
  advancing_ = false;
  destroyed_ = nullptr;
  return done;
}

bool timer_wheel::find_work() noexcept {
  for (;;) {
    if (!met_.empty() || take_next_slot()) return true;
    if (over_a_lap_ && !overdue_.empty()) return true;
    swept_ = target_;
    over_a_lap_ = false;
    if (target_ == now_) return false;
    // The next pass. A newer `now` never changes a pass under way: deadline order would suffer.
    target_ = now_;
    cursor_ = swept_;
    over_a_lap_ = target_ - swept_ > slots();
    end_ = over_a_lap_ ? swept_ + slots() : target_;
    if (over_a_lap_) overdue_.begin(swept_ + 1);
  }
}

bool timer_wheel::take_next_slot() noexcept {
  while (const auto next = next_occupied(cursor_, end_)) {
    cursor_ = *next;
    slot& s = slot_of(cursor_);
    if (s.earliest > (over_a_lap_ ? target_ : cursor_)) continue;
    // Aside with all of it, at once: what callbacks arm from here on is not met in this pass, and
    // what they cancel or move leaves this list like any other.
    met_.take_all(s.timers);
    clear_bit(cursor_);
    return true;
  }
  cursor_ = end_;
  return false;
}

timer* timer_wheel::meet_one() noexcept {
  const tick due = over_a_lap_ ? target_ : cursor_;
  const bool from_overdue = met_.empty();
  timer* const t = from_overdue ? overdue_.step() : meet_next();
  if (t == nullptr) return nullptr;

  const tick deadline = deadline_of(*t);
  if (deadline <= due && (from_overdue || !over_a_lap_)) return t;
  take(*t);
  if (deadline <= due) {
    overdue_.put(*t, deadline);
  } else if (t->filed_ <= due) {  // deferred, or refreshed while it waited to be met
    file(*t, deadline);
    ++counts_.relinked;
  } else {  // its lap is still to come
    file(*t);
    ++counts_.kept;
  }
  return nullptr;
}

// From both ends in turns: following a list is one cache miss after the other, and so two of them
// overlap.
timer* timer_wheel::meet_next() noexcept {
  from_back_ = !from_back_;
  auto* const t = static_cast<timer*>(from_back_ ? met_.back() : met_.front());
  __builtin_prefetch(from_back_ ? t->prev() : t->next());
  return t;
}

void timer_wheel::set_bit(tick t) noexcept {
  const tick index = t & mask_;
  occupied_[index / 64] |= std::uint64_t{1} << (index % 64);
  ring_[index].earliest = t;
}

void timer_wheel::clear_bit(tick t) noexcept {
  const tick index = t & mask_;
  occupied_[index / 64] &= ~(std::uint64_t{1} << (index % 64));
}

std::optional<tick> timer_wheel::next_occupied(tick after, tick last) const noexcept {
  tick left = last - after;  // at most one lap
  for (tick t = after + 1; left != 0;) {
    const tick index = t & mask_;
    const std::uint64_t word = occupied_[index / 64] >> (index % 64);
    if (word != 0) {
      const auto empty = static_cast<tick>(std::countr_zero(word));
      return empty < left ? std::optional{t + empty} : std::nullopt;
    }
    const tick passed = std::min<tick>({64 - index % 64, slots() - index, left});
    t += passed;
    left -= passed;
  }
  return std::nullopt;
}

std::optional<tick> timer_wheel::next_visit() const noexcept {
  if (size_ == 0) return std::nullopt;
  if (swept_ != now_ || !met_.empty()) return now_;
  // Slots in the order in which their ticks come: the first whose earliest lies within a lap is the
  // soonest of those, and any other occupied slot is beyond.
  std::optional<tick> soonest;
  const tick lap_end = now_ + std::min<tick>(slots(), last_now - now_ + 1);
  for (auto t = next_occupied(now_, lap_end); t; t = next_occupied(*t, lap_end)) {
    const tick earliest = slot_of(*t).earliest;
    if (!soonest || earliest < *soonest) soonest = earliest;
    if (earliest == *t) break;
  }
  return soonest;
}

bool timer_wheel::check_invariants() const noexcept {
  std::size_t found = 0;
  bool good = true;
  const auto want = [&good](bool held) { good = good && held; };
  for (tick s = 0; s <= mask_; ++s) {
    const slot& here = ring_[s];
    const bool bit = (occupied_[s / 64] >> (s % 64) & 1) != 0;
    want(bit == !here.timers.empty());                                      // I2
    if (bit) want((here.earliest & mask_) == s && here.earliest > swept_);  // I3
    for (const detail::link* l = here.timers.front(); l != &here.timers; l = l->next()) {
      const timer& t = static_cast<const timer&>(*l);
      want((t.filed_ & mask_) == s && swept_ < t.filed_ && t.filed_ <= deadline_of(t));  // I1
      want(here.earliest <= t.filed_);                                                   // I3
      want(t.wheel_ == this);                                                            // I4
      ++found;
    }
  }
  const auto waiting = [&](const timer& t) {
    want(t.filed_ <= deadline_of(t));  // I6
    want(t.wheel_ == this);            // I4
    ++found;
  };
  for (const detail::link* l = met_.front(); l != &met_; l = l->next())
    waiting(static_cast<const timer&>(*l));
  overdue_.for_each(waiting);
  for (std::size_t i = 0; i != to_relink_count_; ++i)
    want(to_relink_[i]->wheel_ == this && to_relink_[i]->moved_to_ >= relinks_since_);  // I7
  want(found == size_);                                                                 // I4
  want(swept_ <= target_ && target_ <= now_);                                           // I5
  if (swept_ == now_)
    want(met_.empty() && overdue_.empty());  // I5
  else
    want(swept_ <= cursor_ && cursor_ <= end_);
  return good;
}

}  // namespace idlewheel
