// limits_on_loop_test.cpp - each limit once over a real socket on a real loop, with a peer that does
// what the limit is for. When they are due to the millisecond is tested in tests/connection.
#include <memory>

#include "tests/uv/watched.hpp"

namespace idlewheel::uv_tests {
namespace {

struct world final : timeout_handler {
  world(loop& on, loop_wheel& wheel, const timeout_policy& policy, phase first)
      : end{on, transport::tcp, [this](std::size_t n) { timeouts.on_read(n); }},
        reaper{wheel},
        timeouts{reaper, policy, end.view(), *this, first} {}

  verdict on_timeout(const expiry& e) noexcept override {
    if (asks_for_more > timespan{}) return verdict::extend(std::exchange(asks_for_more, {}));
    last = e;
    at = clock_now();
    return verdict::close();
  }
  void on_ping_due() noexcept override {
    ++pings;
    write(2);
  }
  void on_age_due() noexcept override { ++aged; }

  void write(std::size_t n) {
    static const std::vector<char> zeros(20'000'000);
    uv_buf_t bytes = uv_buf_init(const_cast<char*>(zeros.data()), static_cast<unsigned>(n));
    timeouts.on_write(n);
    const int taken = uv_try_write(end.stream(), &bytes, 1);
    if (taken == static_cast<int>(n)) return;
    bytes.base += std::max(taken, 0);
    bytes.len -= static_cast<std::size_t>(std::max(taken, 0));
    auto* request = new uv_write_t;
    uv_write(request, end.stream(), &bytes, 1, [](uv_write_t* r, int) { delete r; });
  }

  endpoint end;
  connection_reaper reaper;
  connection_timeouts timeouts;
  timespan asks_for_more{};
  expiry last{};
  instant at{};
  int pings = 0;
  int aged = 0;
};

struct limit_case {
  const char* name;
  timeout_policy policy;
  phase first;
  expiry_reason reason;
  std::chrono::milliseconds at_least;
  void (*begin)(world&) = [](world&) {};
  void (*every_10_ms)(world&) = [](world&) {};
  int pings = 0;  // at least
};
void PrintTo(const limit_case& c, std::ostream* out) { *out << c.name; }

const auto trickle = [](world& w) { w.end.say(1); };
const auto take_little = [](world& w) { w.end.hear(500); };

const limit_case cases[] = {
    {"Handshake",
     {.handshake = 100ms},
     phase::handshake,
     expiry_reason::handshake,
     100ms,
     [](world&) {},
     trickle},
    {"Header",
     {.header = 100ms},
     phase::header,
     expiry_reason::header,
     100ms,
     [](world&) {},
     trickle},
    {"Body", {.body = 100ms}, phase::body, expiry_reason::body, 100ms, [](world&) {}, trickle},
    {"Request",
     {.request = 100ms},
     phase::header,
     expiry_reason::request,
     100ms,
     [](world& w) { w.timeouts.enter(phase::body); },
     trickle},
    {"KeepAlive",
     {.keep_alive = 100ms},
     phase::handling,
     expiry_reason::keep_alive,
     100ms,
     [](world& w) { w.timeouts.enter(phase::keep_alive); }},
    {"Idle",
     {.idle = 100ms},
     phase::upgraded,
     expiry_reason::idle,
     100ms,
     [](world& w) { w.end.say(); }},
    {"ReadIdle",
     {.read_idle = 100ms},
     phase::upgraded,
     expiry_reason::read_idle,
     100ms,
     [](world&) {},
     [](world& w) { w.write(1); }},
    {"MessageIdle",
     {.message_idle = 100ms},
     phase::upgraded,
     expiry_reason::message_idle,
     100ms,
     [](world&) {},
     trickle},
    {"WriteStall",
     {.write_stall = 100ms},
     phase::handling,
     expiry_reason::write_stall,
     100ms,
     [](world& w) { w.write(20'000'000); },
     trickle},
    {"RateIn",
     {.min_rate_in = {.bytes_per_second = 10'000, .grace = 100ms}},
     phase::body,
     expiry_reason::rate_in,
     100ms,
     [](world&) {},
     trickle},
    {"RateOut",
     {.min_rate_out = {.bytes_per_second = 1'000'000'000, .grace = 100ms}},
     phase::handling,
     expiry_reason::rate_out,
     100ms,
     [](world& w) { w.write(20'000'000); },
     take_little},
    {"PeerDead",
     {.ping_after = 50ms, .ping_timeout = 70ms},
     phase::upgraded,
     expiry_reason::peer_dead,
     120ms,
     [](world&) {},
     [](world& w) { w.end.hear(100); },
     1},
    {"PeerDeadAfterTwo",
     {.ping_after = 50ms, .ping_timeout = 70ms, .missed = 2},
     phase::upgraded,
     expiry_reason::peer_dead,
     190ms,
     [](world&) {},
     [](world& w) { w.end.hear(100); },
     2},
    {"OurPingsKeepNobodyAlive",
     {.idle = 200ms, .ping_after_send = 20ms},
     phase::upgraded,
     expiry_reason::idle,
     200ms,
     [](world&) {},
     [](world& w) { w.end.hear(100); },
     2},
    {"MaxAge",
     {.max_age = 100ms, .age_jitter = 0},
     phase::upgraded,
     expiry_reason::max_age,
     100ms,
     [](world&) {},
     trickle},
    {"MaxAgeAfterItsGrace",
     {.max_age = 100ms, .age_grace = 100ms, .age_jitter = 0},
     phase::upgraded,
     expiry_reason::max_age,
     200ms,
     [](world&) {},
     trickle},
    {"Linger",
     {.linger = 100ms},
     phase::handling,
     expiry_reason::linger,
     100ms,
     [](world& w) { w.timeouts.enter(phase::closing); },
     trickle},
    {"OurPauseUpToItsCap",
     {.read_idle = 60ms, .max_pause = 60ms},
     phase::upgraded,
     expiry_reason::read_idle,
     120ms,
     [](world& w) { w.timeouts.pause_reading(pause::ours); }},
    {"AnExtension",
     {.read_idle = 60ms},
     phase::upgraded,
     expiry_reason::read_idle,
     160ms,
     [](world& w) { w.asks_for_more = 100ms; }},
};

class LimitsOnLoop : public testing::TestWithParam<std::tuple<refresh_mode, limit_case>> {};

TEST_P(LimitsOnLoop, EndsTheConnectionItIsFor) {
  const auto& [mode, c] = GetParam();
  loop on;
  loop_wheel wheel{on, {.tick = 5ms, .refresh = mode}};
  const instant begun = clock_now();
  world w{on, wheel, c.policy, c.first};
  c.begin(w);
  loop_timer peer{on, 10ms, 10ms, [&w, every = c.every_10_ms] { every(w); }};
  ASSERT_TRUE(on.run_until([&] { return w.at != instant{}; }));
  EXPECT_STREQ(name_of(w.last.reason), name_of(c.reason));
  EXPECT_GE(w.at - begun, c.at_least);
  EXPECT_GE(w.pings, c.pings);
  EXPECT_EQ(w.aged, c.policy.age_grace > timespan{} ? 1 : 0);
  EXPECT_EQ(w.reaper.closed(c.reason), 1u);
  EXPECT_TRUE(w.timeouts.stopped());
}

INSTANTIATE_TEST_SUITE_P(Limits, LimitsOnLoop,
                         testing::Combine(testing::Values(refresh_mode::relink,
                                                          refresh_mode::deferred),
                                          testing::ValuesIn(cases)),
                         [](const auto& i) {
                           return std::string{std::get<1>(i.param).name} +
                                  (std::get<0>(i.param) == refresh_mode::relink ? "Relink"
                                                                                : "Deferred");
                         });

}  // namespace
}  // namespace idlewheel::uv_tests
