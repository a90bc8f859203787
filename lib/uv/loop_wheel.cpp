#include "idlewheel/uv/loop_wheel.hpp"

#include <cassert>
#include <ctime>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "idlewheel/uv/socket_look.hpp"

namespace idlewheel {
namespace {

constexpr std::uint64_t ns_per_ms = 1'000'000;

instant from_ms(std::uint64_t ms) noexcept {
  return instant{std::chrono::nanoseconds{static_cast<std::int64_t>(ms * ns_per_ms)}};
}

instant fresh_time() noexcept {
  return instant{std::chrono::nanoseconds{static_cast<std::int64_t>(uv_hrtime())}};
}

uv_loop_t* checked(uv_loop_t* loop) {
  if (loop == nullptr) throw std::invalid_argument("idlewheel: loop_wheel needs a loop, not null");
  return loop;
}

tick_scale checked_scale(timespan tick) {
  if (tick < timespan{std::chrono::milliseconds{1}})
    throw std::invalid_argument("idlewheel: a loop_wheel's tick is 1 ms or more, not " +
                                std::to_string(tick.count_ns()) + " ns");
  return tick_scale{tick};
}

std::size_t checked_budget(std::size_t budget) {
  if (budget == 0)
    throw std::invalid_argument("idlewheel: a loop_wheel's budget is 1 or more, not 0");
  return budget;
}

// The loop's cached time in milliseconds, read in place: a call per read would cost as much as the
// rest of a refresh. uv_now() returns this field in every libuv 1.x.
const std::uint64_t* cached_time(uv_loop_t* loop) {
  const std::uint64_t* const ms = &loop->time;
  if (*ms != uv_now(loop))
    throw std::system_error(std::make_error_code(std::errc::not_supported),
                            "idlewheel: this libuv keeps its loop time elsewhere");
  return ms;
}

// Milliseconds to add to that time to be no earlier than the poll: it is rounded down; libuv may
// read a coarse clock, one that lags by its own resolution, when that is 1 ms or less; and one more
// lets a turn take a millisecond before it counts as a stall.
std::uint64_t cached_time_slack() {
#ifdef CLOCK_MONOTONIC_COARSE
  timespec resolution{};
  if (clock_getres(CLOCK_MONOTONIC_COARSE, &resolution) == 0 && resolution.tv_sec == 0 &&
      resolution.tv_nsec <= 1'000'000)
    return 3;
#endif
  return 2;
}

void require(int status, const char* what) {
  if (status < 0)
    throw std::system_error(-status, std::generic_category(), std::string{"idlewheel: "} + what);
}

}  // namespace

// Outlives the loop_wheel until libuv has closed all four.
struct loop_wheel::engine {
  uv_timer_t timer;
  uv_idle_t no_wait;
  uv_prepare_t prepare;
  uv_check_t check;
  loop_wheel* owner;
  int open = 0;
  bool referenced = false;
  std::optional<uv_thread_t> thread;  // the loop's, known once it has turned

  engine(uv_loop_t* loop, loop_wheel* wheel) : owner{wheel} {
    require(uv_timer_init(loop, &timer), "uv_timer_init");
    require(uv_idle_init(loop, &no_wait), "uv_idle_init");
    require(uv_prepare_init(loop, &prepare), "uv_prepare_init");
    require(uv_check_init(loop, &check), "uv_check_init");
    for_each([this](uv_handle_t* handle) {
      handle->data = this;
      uv_unref(handle);
      ++open;
    });
  }

  template <class F>
  void for_each(F f) {
    f(reinterpret_cast<uv_handle_t*>(&timer));
    f(reinterpret_cast<uv_handle_t*>(&no_wait));
    f(reinterpret_cast<uv_handle_t*>(&prepare));
    f(reinterpret_cast<uv_handle_t*>(&check));
  }

  // The last close callback frees it.
  void close() {
    for_each([](uv_handle_t* handle) {
      uv_close(handle, [](uv_handle_t* closed) {
        auto* self = static_cast<engine*>(closed->data);
        if (--self->open == 0) delete self;
      });
    });
  }

  // One that keeps the loop running is active exactly while something is armed or being judged.
  void reference(bool on) {
    referenced = on;
    for (auto* handle :
         {reinterpret_cast<uv_handle_t*>(&timer), reinterpret_cast<uv_handle_t*>(&no_wait)})
      on ? uv_ref(handle) : uv_unref(handle);
  }

  void watch_turns() {
    uv_prepare_start(&prepare,
                     [](uv_prepare_t* h) { static_cast<engine*>(h->data)->owner->before_poll(); });
    uv_check_start(&check,
                   [](uv_check_t* h) { static_cast<engine*>(h->data)->owner->after_poll(); });
  }

  void rest() {
    uv_timer_stop(&timer);
    uv_idle_stop(&no_wait);
    uv_prepare_stop(&prepare);
    uv_check_stop(&check);
  }
};

loop_wheel::loop_wheel(uv_loop_t* loop, const loop_wheel_options& options)
    : timer_host{wheel_options{.slots = options.slots,
                               .refresh = options.refresh,
                               .start = checked_scale(options.tick).floor(fresh_time())},
                 checked_scale(options.tick),
                 poll_clock{.count = cached_time(checked(loop)),
                            .unit = ns_per_ms,
                            .slack = cached_time_slack()}},
      loop_{loop},
      engine_{nullptr},
      budget_{checked_budget(options.budget)},
      last_look_{options.last_look} {
  engine_ = new engine{loop, this};
}

loop_wheel::~loop_wheel() { close(); }

void loop_wheel::close() noexcept {
  if (closed()) return;
  check_thread();
  close_host();
  engine_->owner = nullptr;
  engine_->close();
  engine_ = nullptr;
}

void loop_wheel::ref() noexcept {
  if (!closed()) engine_->reference(true);
}

void loop_wheel::unref() noexcept {
  if (!closed()) engine_->reference(false);
}

wheel_stats loop_wheel::stats() const noexcept {
  wheel_stats all = stats_;
  all.fired = wheel().counts().fired;
  all.relinked = wheel().counts().relinked;
  all.stalls = stalls();
  all.longest_stall = longest_stall();
  return all;
}

socket_look loop_wheel::look(const socket_view& socket) noexcept {
  return last_look_ ? look_at_socket(socket) : socket_look{};
}

void loop_wheel::plan_visit(instant when) noexcept {
  // Counted from the loop's cached time, as uv_timer_start() does, however stale; rounded up.
  const auto ns = static_cast<std::uint64_t>(when.time_since_epoch().count());
  const std::uint64_t due_ms = ns / ns_per_ms + (ns % ns_per_ms != 0);
  const std::uint64_t now_ms = uv_now(loop_);
  uv_timer_start(
      &engine_->timer,
      [](uv_timer_t* h) {
        auto* self = static_cast<engine*>(h->data);
        self->owner->due_ = true;
        ++self->owner->stats_.visits;
        uv_idle_start(&self->no_wait, [](uv_idle_t*) {});  // the next poll does not wait
      },
      due_ms > now_ms ? due_ms - now_ms : 0, 0);
  engine_->watch_turns();
}

void loop_wheel::forget_visit() noexcept {
  due_ = false;
  engine_->rest();
}

void loop_wheel::before_poll() noexcept {
  engine_->thread = uv_thread_self();
  noted_ = from_ms(uv_now(loop_));
  if (stamps_used()) end_of_stamps(fresh_time());
}

void loop_wheel::after_poll() noexcept {
  if (stamps_used()) end_of_stamps(fresh_time());
  if (!due_) return;
  ++stats_.turns;
  due_ = false;
  engine* const handles = engine_;
  uv_idle_stop(&handles->no_wait);
  const bool more = judge(noted_, budget_).more;
  if (handles->owner == nullptr) return;  // closed by a callback, or destroyed
  if (!more) return;
  ++stats_.budget_hits;
  due_ = true;
  uv_idle_start(&handles->no_wait, [](uv_idle_t*) {});
}

instant loop_wheel::read_clock() noexcept { return fresh_time(); }

void loop_wheel::check_thread() const noexcept {
#ifndef NDEBUG
  const uv_thread_t self = uv_thread_self();
  assert((closed() || !engine_->thread || uv_thread_equal(&*engine_->thread, &self)) &&
         "idlewheel: called on another thread than the loop's");
#endif
}

}  // namespace idlewheel
