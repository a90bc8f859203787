// support.hpp - a connection on a wheel that the test winds by hand.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "idlewheel/connection/connection_timeouts.hpp"
#include "idlewheel/testing/manual_wheel.hpp"

namespace idlewheel::connection_tests {
using namespace std::chrono_literals;
using idlewheel::testing::manual_wheel;

inline instant at(std::chrono::nanoseconds since_start) { return instant{since_start}; }

inline timeout_policy idle_of(timespan idle) { return {.idle = idle}; }
inline timeout_policy read_idle_of(timespan read_idle) { return {.read_idle = read_idle}; }

// Notes each question of connection_timeouts and answers as told; "close" when not told.
struct recorder final : timeout_handler {
  explicit recorder(manual_wheel& host) : time{&host} {}
  manual_wheel* time;
  std::vector<expiry> asked;
  std::vector<instant> when;
  std::function<verdict(const expiry&)> answer;

  verdict on_timeout(const expiry& e) noexcept override {
    asked.push_back(e);
    when.push_back(time->now());
    return answer ? answer(e) : verdict::close();
  }
  void on_ping_due() noexcept override {
    pings.push_back(time->now());
    if (on_ping) on_ping();
  }
  void on_age_due() noexcept override { aged.push_back(time->now()); }
  bool closed() const { return !asked.empty(); }

  std::vector<instant> pings;
  std::vector<instant> aged;
  std::function<void()> on_ping;
};

// Asked once, for that reason, not before that moment and in the tick that begins there.
inline void expect_asked(const recorder& handler, expiry_reason reason, instant when) {
  ASSERT_EQ(handler.asked.size(), 1u);
  EXPECT_STREQ(name_of(handler.asked[0].reason), name_of(reason));
  EXPECT_EQ(handler.when[0], when);
  EXPECT_LE(handler.asked[0].due, when);
}

// A connection and its peer. The tick is 1 ms, so that whole milliseconds are met exactly.
struct peer {
  peer(manual_wheel& host, const timeout_policy& p)
      : time{host},
        handler{host},
        socket{host.open_socket()},
        policy{p},
        reaper{host},
        timeouts{std::in_place, reaper, policy, socket, handler} {}
  peer(const peer&) = delete;

  // Bytes come and are read in the same poll.
  void say(std::size_t n = 1) {
    time.poll();
    timeouts->on_read(n);
    time.turn();
  }
  socket_look& look() { return time.look_at(socket); }

  manual_wheel& time;
  recorder handler;
  socket_view socket;
  timeout_policy policy;
  connection_reaper reaper;
  std::optional<connection_timeouts> timeouts;
};

// A peer that sends a byte every `every`, until it is asked about or `until` has come.
inline void drip(peer& p, timespan every, instant until) {
  while (!p.handler.closed() && p.time.now() < until) {
    p.time.advance(every);
    if (!p.handler.closed()) p.say();
  }
}

class ByMode : public ::testing::TestWithParam<refresh_mode> {
 protected:
  manual_wheel time{{.tick = 1ms, .refresh = GetParam()}};
};

#define IDLEWHEEL_IN_BOTH_MODES(suite)                                               \
  INSTANTIATE_TEST_SUITE_P(                                                          \
      Modes, suite, ::testing::Values(refresh_mode::relink, refresh_mode::deferred), \
      [](const auto& i) { return i.param == refresh_mode::relink ? "Relink" : "Deferred"; })

}  // namespace idlewheel::connection_tests
