// connection_random_test.cpp - everything at random, against a model that works each limit out anew
// every millisecond: each ping and each verdict comes in that very millisecond, for that very reason.
#include <algorithm>
#include <random>
#include <string>

#include "tests/connection/support.hpp"

namespace idlewheel::connection_tests {
namespace {

// Half milliseconds: what the program does comes between two ticks, so that there is no question
// to which of them it belongs.
using half_ms = std::int64_t;
constexpr half_ms never = std::int64_t{1} << 60;

half_ms halves(timespan d) { return d.count_ns() / 500'000; }

// Without a socket and without writes: what the program tells is all there is to know.
struct model {
  const timeout_policy* policy;
  half_ms read = 0, message = 0, phase_since = 0, request_since = 0, ping_at = -1, extended_to = 0;
  half_ms last_send = 0;
  unsigned missed = 0;
  phase in;
  bool closed = false;
  // Our pause: it stops the peer's clocks, so that they are behind by what it has lasted.
  half_ms paused_at = -1;

  half_ms stood(half_ms since, half_ms lasted) const {
    if (policy->max_pause > timespan{}) lasted = std::min(lasted, halves(policy->max_pause));
    return since <= paused_at ? since + lasted : std::max(since, paused_at + lasted);
  }
  // As if the pause went on: nothing is due while we do not read, up to the cap.
  half_ms peers(half_ms since) const { return paused_at < 0 ? since : stood(since, never); }

  struct due {
    half_ms when = never;
    std::string what;
  };
  due first() const {
    due d;
    const auto add = [&](timespan limit, half_ms since, const std::string& what) {
      if (limit > timespan{} && since + halves(limit) < d.when) d = {since + halves(limit), what};
    };
    const auto& p = *policy;
    switch (in) {
      case phase::handshake:
        add(p.handshake, peers(phase_since), "handshake");
        break;
      case phase::header:
        add(p.header, peers(phase_since), "header");
        add(p.request, peers(request_since), "request");
        break;
      case phase::body:
        add(p.body, peers(phase_since), "body");
        add(p.request, peers(request_since), "request");
        break;
      case phase::keep_alive:
        add(p.keep_alive, phase_since, "keep_alive");
        break;
      case phase::closing:
        add(p.linger, phase_since, "linger");
        break;
      default:
        break;
    }
    if (in != phase::closing || p.linger == timespan{}) {
      add(p.idle, peers(read), "idle");
      add(p.read_idle, peers(read), "read_idle");
      add(p.message_idle, peers(message), "message_idle");
      if (ping_at < 0)
        add(p.ping_after, peers(read), "ping");
      else
        add(p.ping_timeout, peers(ping_at), "peer_dead");
      add(p.ping_after_send, last_send, "warm");
    }
    return d;
  }
};

// Something is due every millisecond, so that what is overdue waits for the next one.
struct metronome {
  explicit metronome(timer_host& on) : host{on} { host.arm(next, 1ms); }
  timer_host& host;
  timer next{[this] { host.arm(next, 1ms); }};
};

class ConnectionRandom : public ::testing::TestWithParam<std::tuple<refresh_mode, int>> {};

TEST_P(ConnectionRandom, EveryVerdictComesInItsMillisecond) {
  const auto [mode, seed] = GetParam();
  std::mt19937 random{static_cast<unsigned>(seed)};
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto some_limit = [&] { return below(3) == 0 ? 0ms : 1ms * (1 + below(300)); };

  for (int life = 0; life < 60; ++life) {
    std::vector<timeout_policy> policies(3);
    for (auto& p : policies)
      p = {.handshake = some_limit(),
           .header = some_limit(),
           .body = some_limit(),
           .request = some_limit(),
           .keep_alive = some_limit(),
           .idle = some_limit(),
           .read_idle = some_limit(),
           .message_idle = some_limit(),
           .max_pause = some_limit(),
           .ping_after = some_limit(),
           .ping_timeout = 1ms * (1 + below(300)),
           .missed = static_cast<unsigned>(1 + below(3)),
           .ping_after_send = some_limit(),
           .linger = some_limit()};

    manual_wheel host{{.tick = 1ms, .slots = 64, .refresh = mode}};
    const metronome beat{host};
    const auto now = [&] { return halves(host.now().time_since_epoch()); };
    std::vector<std::string> told, wanted;
    connection_reaper reaper{host};
    recorder handler{host};
    model m{.policy = &policies[0], .in = static_cast<phase>(below(6))};
    timespan extension{};
    handler.on_ping = [&] { told.push_back(std::to_string(now()) + " ping"); };
    handler.answer = [&](const expiry& e) {
      told.push_back(std::to_string(now()) + ' ' + name_of(e.reason));
      return extension > timespan{} ? verdict::extend(extension) : verdict::close();
    };
    connection_timeouts timeouts{reaper, policies[0], {}, handler, m.in};

    // What is due in this millisecond; one thing at a time.
    const auto judge = [&] {
      const auto due = m.first();
      if (now() < m.extended_to || due.when > now()) return;
      const std::string when = std::to_string(now()) + ' ';
      if (due.what == "ping" || (due.what == "peer_dead" && m.missed + 1 < m.policy->missed)) {
        m.missed = due.what == "ping" ? 0 : m.missed + 1;
        m.ping_at = now();
        wanted.push_back(when + "ping");
      } else if (due.what == "warm") {
        m.last_send = now();
        wanted.push_back(when + "ping");
      } else {
        wanted.push_back(when + due.what);
        if (extension > timespan{})
          m.extended_to = now() + halves(extension);
        else
          m.closed = true;
      }
    };

    for (int step = 0; step < 300 && !m.closed; ++step) {
      extension = below(2) == 0 ? 1ms * (1 + below(200)) : timespan{};
      for (int wait = below(40); wait > 0 && !m.closed; --wait) {
        host.advance(1ms);
        judge();
      }
      ASSERT_EQ(told, wanted) << "life " << life << " step " << step;
      if (m.closed) break;
      host.advance(500us);
      switch (below(8)) {
        case 0:
        case 1:
        case 2:
          if (m.paused_at >= 0) break;  // we do not read
          host.poll();
          timeouts.on_read(1);
          host.turn();
          m.read = now();
          m.ping_at = -1;
          break;
        case 3:
          timeouts.on_message();
          m.message = now();
          break;
        case 4: {
          const auto next = static_cast<phase>(below(7));
          timeouts.enter(next);
          if (!(m.in == phase::header && next == phase::body)) m.request_since = now();
          if (next == phase::upgraded) m.message = now();
          m.in = next;
          m.phase_since = now();
          break;
        }
        case 5:
          if (m.paused_at >= 0) break;
          timeouts.pause_reading(pause::ours);
          m.paused_at = now();
          break;
        case 6: {
          timeouts.resume_reading();
          if (m.paused_at < 0) break;
          const half_ms lasted = now() - m.paused_at;
          for (half_ms* clock : {&m.read, &m.message, &m.request_since})
            *clock = m.stood(*clock, lasted);
          if (m.ping_at >= 0) m.ping_at = m.stood(m.ping_at, lasted);
          if (m.in <= phase::body) m.phase_since = m.stood(m.phase_since, lasted);
          m.paused_at = -1;
          break;
        }
        case 7:
          m.policy = &policies[static_cast<std::size_t>(below(3))];
          timeouts.set_policy(*m.policy);
          break;
        default:
          break;
      }
      host.advance(500us);
      judge();
    }
    EXPECT_EQ(timeouts.stopped(), m.closed);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ConnectionRandom,
                         ::testing::Combine(::testing::Values(refresh_mode::relink,
                                                              refresh_mode::deferred),
                                            ::testing::Range(0, 10)),
                         [](const auto& i) {
                           return (std::get<0>(i.param) == refresh_mode::relink ? "Relink"
                                                                                : "Deferred") +
                                  std::to_string(std::get<1>(i.param));
                         });

}  // namespace
}  // namespace idlewheel::connection_tests
