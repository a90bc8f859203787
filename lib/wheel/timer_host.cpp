#include "idlewheel/wheel/timer_host.hpp"

#include <algorithm>
#include <cassert>

namespace idlewheel {

timer_host::timer_host(const wheel_options& options, const tick_scale& scale,
                       const poll_clock& clock)
    : poll_clock_{clock.count}, scale_{scale}, clock_{clock}, wheel_{options} {
  wheel_.hooks_ = {.host = this,
                   .emptied =
                       [](void* self) noexcept {
                         timer_host& host = *static_cast<timer_host*>(self);
                         if (host.judging_ || !host.planned_) return;
                         host.planned_ = false;
                         host.forget_visit();
                       },
                   .due_really =
                       [](void* self, const timer& t) noexcept {
                         return static_cast<timer_host*>(self)->due_really(t);
                       }};
}

timer_host::~timer_host() {
  if (gone_ != nullptr) *gone_ = true;
}

bool timer_host::arm(timer& t, timespan timeout) noexcept {
  return arm_tick(t, timeout, later(read_clock(), timeout));
}

bool timer_host::arm_at(timer& t, instant deadline) noexcept {
  return arm_tick(t, between(read_clock(), deadline), deadline);
}

bool timer_host::arm_tick(timer& t, timespan timeout, instant deadline) noexcept {
  check_thread();
  assert(!closed_ && "idlewheel: armed after close");
  if (closed_) return false;
  t.set_timeout(timeout);
  t.from_poll_ = 0;
  wheel_.arm(t, scale_.ceil(deadline));
  visit_by(t.deadline_);
  return true;
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

  bool gone = false;  // a callback may destroy this host
  gone_ = &gone;
  const progress done = wheel_.advance(scale_.floor(judged_at_), budget);
  if (gone) return done;
  gone_ = nullptr;

  judging_ = done.more;
  if (done.more || closed_) return done;
  if (const auto next = wheel_.next_visit())
    visit_by(*next);
  else
    forget_visit();
  return done;
}

void timer_host::stamp_poll() noexcept {
  const std::uint64_t count = *poll_clock_;
  const instant at{
      std::chrono::nanoseconds{static_cast<std::int64_t>((count + clock_.slack) * clock_.unit)}};
  // A second poll within one turn, or somebody updated the loop's time: the old stamp was in use
  // until now at most.
  if (stamps_used()) end_of_stamps(at);
  // With nothing armed nobody will close the books, and nothing can come due by them.
  stamped_ = wheel_.size() != 0 ? count : no_stamp;
  poll_time_ = at;
}

void timer_host::end_of_stamps(instant now) noexcept {
  if (now > poll_time_) stalls_.add(poll_time_, now, scale_.length());
  stamped_ = no_stamp;
}

// The timer's deadline was its stamp plus its timeout, rounded up to a tick: which stamp it was is
// known to within that tick.
tick timer_host::due_really(const timer& t) const noexcept {
  const instant stamp = later(scale_.begins(t.deadline_), -std::chrono::nanoseconds{t.timeout()});
  const timespan lag = stalls_.lag(later(stamp, -std::chrono::nanoseconds{scale_.length()}), stamp);
  return lag == timespan{} ? t.deadline_ : scale_.ceil(later(scale_.begins(t.deadline_), lag));
}

void timer_host::close_host() noexcept {
  if (closed_) return;
  closed_ = true;
  wheel_.cancel_all();
}

}  // namespace idlewheel
