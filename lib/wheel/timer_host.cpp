#include "idlewheel/wheel/timer_host.hpp"

#include <algorithm>
#include <cassert>

namespace idlewheel {
namespace {

// What stamp_of() can keep.
constexpr instant latest_base{std::chrono::nanoseconds{(INT64_C(1) << 62) - 1}};
constexpr instant earliest_base{-std::chrono::nanoseconds{INT64_C(1) << 62}};

}  // namespace

timer_host::timer_host(const wheel_options& options, const tick_scale& scale,
                       const poll_clock& clock)
    : poll_clock_{clock.count}, scale_{scale}, wheel_{options}, clock_{clock} {
  wheel_.hooks_ = {.host = this,
                   .emptied =
                       [](void* self) noexcept {
                         timer_host& host = *static_cast<timer_host*>(self);
                         if (host.judging_ || !host.planned_) return;
                         host.planned_ = false;
                         host.settle_stamps();
                         host.forget_visit();
                       },
                   .deadline =
                       [](const void* self, const timer& t) noexcept {
                         return static_cast<const timer_host*>(self)->deadline_of(t);
                       }};
}

timer_host::~timer_host() {
  if (gone_ != nullptr) *gone_ = true;
}

bool timer_host::arm(timer& t, timespan timeout) noexcept { return arm_since(t, now(), timeout); }

bool timer_host::arm_at(timer& t, instant deadline) noexcept {
  const timespan timeout = std::clamp(between(now(), deadline), timespan{}, timer::max_timeout);
  return arm_since(t, later(deadline, -std::chrono::nanoseconds{timeout}), timeout);
}

bool timer_host::arm_since(timer& t, instant base, timespan timeout) noexcept {
  check_thread();
  assert(!closed_ && "idlewheel: armed after close");
  if (closed_) return false;
  base = std::clamp(base, earliest_base, latest_base);
  t.set_timeout(timeout);
  wheel_.place(t, scale_.ceil(later(base, t.timeout())));
  t.moved_to_ = stamp_of(base, false);
  visit_by(t.filed_);
  return true;
}

bool timer_host::refresh(timer& t, timespan timeout) noexcept {
  if (!t.armed_on(wheel_)) return false;
  const instant from = poll_time();
  t.set_timeout(timeout);
  t.moved_to_ = poll_stamp_;
  move_to(t, later(from, t.timeout()));
  return true;
}

bool timer_host::refresh_at(timer& t, instant deadline) noexcept {
  if (!t.armed_on(wheel_)) return false;
  const timespan timeout =
      std::clamp(between(poll_time(), deadline), timespan{}, timer::max_timeout);
  const instant base =
      std::clamp(later(deadline, -std::chrono::nanoseconds{timeout}), earliest_base, latest_base);
  wheel_.forget_relink(t);
  t.set_timeout(timeout);
  t.moved_to_ = stamp_of(base, false);
  move_to(t, later(base, timeout));
  return true;
}

void timer_host::move_to(timer& t, instant deadline) noexcept {
  const tick due = scale_.ceil(deadline);
  if (due < t.filed_ || ((due ^ t.filed_) & wheel_.relink_mask_) != 0) {
    wheel_.move(t, due);
    visit_by(t.filed_);
  }
}

// Moves what refreshes have noted, later only: what became sooner was refiled at once.
void timer_host::relink_noted() noexcept {
  timer** const first = wheel_.to_relink_.data();
  timer** const last = first + wheel_.to_relink_count_;
  wheel_.to_relink_count_ = 0;
  for (timer** each = first; each != last; ++each) {
    const detail::link& node = **each;
    __builtin_prefetch(node.next(), 1);
    __builtin_prefetch(node.prev(), 1);
  }
  for (timer** each = first; each != last; ++each) {
    timer& t = **each;
    const auto base = static_cast<std::int64_t>(t.moved_to_) >> 1;
    const tick due = scale_.ceil(later(instant{std::chrono::nanoseconds{base}}, t.timeout()));
    if (due > t.filed_ && ((due ^ t.filed_) & wheel_.relink_mask_) != 0) wheel_.move(t, due);
  }
}

instant timer_host::now() noexcept { return read_last_ = std::max(read_last_, read_clock()); }

instant timer_host::due(const timer& t) const noexcept {
  const auto ns = static_cast<std::int64_t>(t.moved_to_) >> 1;
  instant base{std::chrono::nanoseconds{ns}};
  if ((t.moved_to_ & 1) != 0) base = latest(base);
  return later(base, t.timeout());
}

tick timer_host::deadline_of(const timer& t) const noexcept {
  return std::max(t.filed_, scale_.ceil(due(t)));
}

void timer_host::visit_by(tick due) noexcept {
  if (judging_ || (planned_ && visit_ <= due)) return;
  planned_ = true;
  visit_ = due;
  plan_visit(scale_.begins(due));
}

progress timer_host::judge(instant at, std::size_t budget) noexcept {
  if (gone_ != nullptr) return {.fired = 0, .more = true};
  judging_ = true;
  planned_ = false;
  visit_ = 0;
  judged_at_ = std::max(judged_at_, at);

  relink_noted();
  bool gone = false;  // a callback may destroy this host
  gone_ = &gone;
  const progress done = wheel_.advance(scale_.floor(judged_at_), budget);
  if (gone) return done;
  gone_ = nullptr;

  judging_ = done.more;
  if (done.more || closed_) return done;
  if (const auto next = wheel_.next_visit()) {
    visit_by(*next);
  } else {
    settle_stamps();
    forget_visit();
  }
  return done;
}

void timer_host::stamp_poll() noexcept {
  const std::uint64_t count = *poll_clock_;
  const auto ns = static_cast<std::int64_t>((count + clock_.slack) * clock_.unit);
  const instant at = std::max(poll_time_, instant{std::chrono::nanoseconds{ns}});
  // A second poll within one turn, or somebody updated the loop's time: the old stamp was in use
  // until now at most.
  if (stamps_used()) end_of_stamps(at);
  // With nothing armed nobody will close the books, and nothing can come due by them.
  stamped_ = wheel_.size() != 0 ? count : no_stamp;
  poll_time_ = at;
  poll_stamp_ = stamp_of(at, true);
  if (wheel_.refresh_by() == refresh_mode::relink)
    relink_before_ = stamp_of(scale_.begins(scale_.floor(at)), false);
}

void timer_host::end_of_stamps(instant now) noexcept {
  if (now > poll_time_) stalls_.add(poll_time_, now, scale_.length());
  stamped_ = no_stamp;
}

void timer_host::settle_stamps() noexcept {
  if (stamps_used()) end_of_stamps(now());
}

void timer_host::close_host() noexcept {
  if (closed_) return;
  closed_ = true;
  wheel_.cancel_all();
  poll_clock_ = &stamped_;  // stands still: the other one may go before us
}

}  // namespace idlewheel
