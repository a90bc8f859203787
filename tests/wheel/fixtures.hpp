// fixtures.hpp - what the tests of this room share: both refresh modes by name, timers that write
// down when they fired, and two ways to let time pass.
#pragma once
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "idlewheel/wheel/tick_scale.hpp"
#include "idlewheel/wheel/timer.hpp"
#include "idlewheel/wheel/timer_wheel.hpp"

namespace idlewheel {

__extension__ using wide_int = __int128;
__extension__ using wide_uint = unsigned __int128;

constexpr tick never = std::numeric_limits<tick>::max();  // a deadline that does not come

// Stands for "no budget" where a fault could make a pass endless: it fails instead of hanging.
constexpr std::size_t plenty = 50'000'000;

constexpr tick saturated_sum(tick a, tick b) { return a > never - b ? never : a + b; }

inline const char* to_string(refresh_mode mode) {
  return mode == refresh_mode::relink ? "Relink" : "Deferred";
}

inline void PrintTo(refresh_mode mode, std::ostream* out) { *out << to_string(mode); }

inline const auto both_modes = ::testing::Values(refresh_mode::relink, refresh_mode::deferred);
inline std::string name_of_mode(const ::testing::TestParamInfo<refresh_mode>& info) {
  return to_string(info.param);
}

// A behavioural test runs in both modes: callers are promised to see no difference.
class EachMode : public ::testing::TestWithParam<refresh_mode> {
 protected:
  static wheel_options with(std::size_t slots, tick start = 0) {
    return {.slots = slots, .refresh = GetParam(), .start = start};
  }
};

// Who fired, and at what time of the wheel: "A@3 B@4".
class journal {
 public:
  void note(const std::string& name, tick now) {
    if (!text_.empty()) text_ += ' ';
    text_ += name + '@' + std::to_string(now);
  }
  std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

// A timer with a name, and something to do when it has fired.
struct actor {
  actor(journal& log_to, timer_wheel& on, std::string called, std::function<void()> act = {})
      : log{&log_to}, wheel{&on}, name{std::move(called)}, then{std::move(act)} {}

  operator timer&() noexcept { return t; }
  timer* operator->() noexcept { return &t; }

  void fire() {
    log->note(name, wheel->now());
    ++fires;
    const auto act = then;  // which may destroy this actor
    if (act) act();
  }

  journal* log;
  timer_wheel* wheel;
  std::string name;
  std::function<void()> then;
  int fires = 0;
  timer t{[this] { fire(); }};
};

// A timer that writes its deadline down when it fires: for order among many.
struct dated {
  dated(std::vector<tick>& write_to, tick deadline) : out{&write_to}, due{deadline} {}
  std::vector<tick>* out;
  tick due;
  timer t{[this] { out->push_back(due); }};
};

// Tick by tick. Returns how many fired.
inline std::size_t pump(timer_wheel& wheel, tick to) {
  std::size_t fired = 0;
  while (wheel.now() < to) {
    const progress done = wheel.advance(wheel.now() + 1, plenty);
    EXPECT_FALSE(done.more);
    EXPECT_TRUE(wheel.slots() > 64 || wheel.check_invariants());  // of large ones only at the end
    fired += done.fired;
  }
  EXPECT_TRUE(wheel.check_invariants());
  return fired;
}

// Only where next_visit() says, as a host does it. Returns the number of visits; gives up, with a
// failure, after very many.
inline std::size_t visit(timer_wheel& wheel, tick to) {
  std::size_t visits = 0;
  for (auto next = wheel.next_visit(); next && *next <= to; next = wheel.next_visit()) {
    EXPECT_GT(*next, wheel.now()) << "a finished pass asks to be called again at once";
    EXPECT_FALSE(wheel.advance(*next, plenty).more);
    if (++visits == 100'000 || ::testing::Test::HasFailure()) {
      ADD_FAILURE() << "stopped after " << visits << " visits, now " << wheel.now();
      return visits;
    }
  }
  wheel.advance(to, plenty);
  return visits;
}

// The text of what f throws; a failure when it throws nothing.
template <class Exception, class F>
std::string text_thrown(F f) {
  try {
    f();
  } catch (const Exception& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another exception: " << e.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace idlewheel
