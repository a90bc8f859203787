#include "idlewheel/testing/manual_wheel.hpp"

#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <string>

namespace idlewheel::testing {
namespace {

std::uint64_t ns_of(instant t) noexcept {
  return static_cast<std::uint64_t>(t.time_since_epoch().count());
}

std::size_t checked_budget(std::size_t budget) {
  if (budget == 0)
    throw std::invalid_argument("idlewheel: a manual_wheel's budget is 1 or more, not 0");
  return budget;
}

instant checked_start(instant start) {
  if (start < instant{} || start > instant{timer::max_timeout})
    throw std::invalid_argument(
        "idlewheel: a manual_wheel starts at 0 to 2^62 ns (146 years), not " +
        std::to_string(start.time_since_epoch().count()) + " ns");
  return start;
}

}  // namespace

manual_wheel::manual_wheel(const manual_wheel_options& options)
    : timer_host{wheel_options{.slots = options.slots,
                               .refresh = options.refresh,
                               .start = tick_scale{options.tick}.floor(options.start)},
                 tick_scale{options.tick}, poll_clock{.count = &polled_ns_, .unit = 1, .slack = 0}},
      fresh_{checked_start(options.start)},
      polled_ns_{ns_of(options.start)},
      budget_{checked_budget(options.budget)} {}

manual_wheel::~manual_wheel() {
  close_host();
  if (destroyed_ != nullptr) *destroyed_ = true;
}

void manual_wheel::advance(timespan d) {
  assert(d >= timespan{} && "idlewheel: time only goes forward");
  if (judging_) {  // from a callback: its work takes time, the loop does not turn
    block(d);
    return;
  }
  bool destroyed = false;  // by a callback
  destroyed_ = &destroyed;
  const instant end = later(fresh_, d);
  for (;;) {
    poll();
    turn();
    if (destroyed) return;
    if (unfinished_) continue;
    if (!visit_planned_ || visit_at_ > end) break;
    fresh_ = std::max(fresh_, visit_at_);
  }
  destroyed_ = nullptr;
  fresh_ = std::max(fresh_, end);  // a callback may have blocked for longer
  poll();
}

void manual_wheel::block(timespan d) {
  assert(d >= timespan{} && "idlewheel: time only goes forward");
  fresh_ = later(fresh_, d);
}

void manual_wheel::poll() {
  if (stamps_used()) end_of_stamps(fresh_);
  polled_ns_ = ns_of(fresh_);
}

progress manual_wheel::turn() {
  if (stamps_used()) end_of_stamps(fresh_);
  if (judging_) return {.fired = 0, .more = true};
  const instant polled{std::chrono::nanoseconds{static_cast<std::int64_t>(polled_ns_)}};
  if (!unfinished_ && !(visit_planned_ && visit_at_ <= polled)) return {};
  ++turns_;
  visit_planned_ = false;
  bool* const outer = destroyed_;
  bool destroyed = false;
  destroyed_ = &destroyed;
  judging_ = true;
  const progress done = judge(polled, budget_);
  if (destroyed) {
    if (outer != nullptr) *outer = true;
    return done;
  }
  judging_ = false;
  destroyed_ = outer;
  unfinished_ = done.more;
  if (stamps_used()) end_of_stamps(fresh_);  // by callbacks; the loop may sleep now
  return done;
}

void manual_wheel::plan_visit(instant when) noexcept {
  visit_planned_ = true;
  visit_at_ = when;
}

void manual_wheel::forget_visit() noexcept { visit_planned_ = false; }

socket_look manual_wheel::look(const socket_view& socket) noexcept {
  ++looks_;
  const auto found = sockets_.find(socket.fd());
  return found != sockets_.end() ? found->second : socket_look{};
}

}  // namespace idlewheel::testing
