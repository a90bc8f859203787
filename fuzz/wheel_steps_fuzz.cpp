// wheel_steps_fuzz.cpp - any sequence of steps on a wheel, against the dullest timer queue there
// is.
//
// Each input byte pair is a step; the model keeps a deadline per timer. After every step the
// invariants hold, nothing has fired early or twice, and a finished pass has left nothing due.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "idlewheel/wheel/timer_wheel.hpp"

namespace {

using idlewheel::tick;

constexpr std::size_t timers = 8;

struct entry {
  idlewheel::timer timer{[this] { fire(); }};
  std::optional<tick> deadline;
  const idlewheel::timer_wheel* wheel = nullptr;

  void fire() {
    if (!deadline || *deadline > wheel->now()) std::abort();  // twice, or early
    deadline.reset();
  }
};

void want(bool held) {
  if (!held) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  idlewheel::timer_wheel wheel{{.slots = std::size_t{1} << (data[0] % 8),
                                .refresh = data[1] % 2 != 0 ? idlewheel::refresh_mode::deferred
                                                            : idlewheel::refresh_mode::relink,
                                .start = data[1] % 3 == 0 ? (tick{1} << 32) - 9 : 0}};
  std::array<entry, timers> entries;
  for (entry& e : entries) e.wheel = &wheel;

  for (std::size_t i = 2; i + 1 < size; i += 2) {
    entry& e = entries[data[i] % timers];
    const tick by = data[i + 1];
    const tick deadline = wheel.now() + by;
    const tick kept = by == 0 ? wheel.now() + 1 : deadline;
    switch (data[i] / timers % 5) {
      case 0:
        wheel.arm(e.timer, deadline);
        e.deadline = kept;
        break;
      case 1:
        want(wheel.refresh(e.timer, deadline) == e.deadline.has_value());
        if (e.deadline) e.deadline = kept;
        break;
      case 2:
        want(wheel.cancel(e.timer) == e.deadline.has_value());
        e.deadline.reset();
        break;
      default: {
        const bool more = wheel.advance(deadline, data[i] / 64 == 3 ? wheel.no_limit : by % 5).more;
        if (!more)
          for (const entry& other : entries) want(!other.deadline || *other.deadline > wheel.now());
      }
    }
    want(wheel.check_invariants());
    std::size_t armed = 0;
    for (const entry& other : entries) {
      armed += other.deadline.has_value();
      want(other.timer.deadline() == other.deadline);
      if (other.deadline) want(*wheel.next_visit() <= std::max(*other.deadline, wheel.now()));
    }
    want(armed == wheel.size());
  }
  return 0;
}
