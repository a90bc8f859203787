// timer_bench.cpp - what does a connection's timeout cost, per operation?
//
// Question  Do arm, refresh, cancel and expire stay cheap from 1e3 to 1e6 connections, beside libuv's
//           uv_timer_t, and how far are they from doing nothing at all?
// Setup     n connection objects of 256 bytes, visited in random order. Whoever refreshes a timeout
//           has just read from the connection, so every contender first touches a field of it. The
//           floor then stores 8 bytes into the same object where a deadline would be, and that is
//           all. refresh: each connection is read once a second, timeout 60 s, tick 100 ms, 1,024
//           slots (102.4 s, longer than the timeout); a tick is advanced after every n/10
//           refreshes, for a minute before measuring and a minute or more while, so that what a
//           deferred refresh puts off is paid for in here. Ours goes through timer_host, as on a
//           loop.
// Read it   Compare within a column of one run, never across machines. Run it as
//             timer_bench --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
//           and quote the tables at the end: medians, ratios, and the spread at the largest n.
#include <benchmark/benchmark.h>
#include <uv.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "idlewheel/testing/manual_wheel.hpp"
#include "ratio_table.hpp"
#include "release_only.hpp"

namespace {

using namespace std::chrono_literals;
using idlewheel::refresh_mode;
using steady = std::chrono::steady_clock;

constexpr std::size_t slots = 1024;
constexpr auto tick_length = 100ms;
constexpr auto timeout = 60s;
constexpr std::size_t ticks_per_second = 10;
constexpr std::size_t hot = 64;

// A connection as a server has it: 256 bytes, its timeout in the second cache line.
template <class Timeout>
struct alignas(64) connection {
  std::uint64_t bytes_in = 0;
  char more[56];
  Timeout timeout;
  char rest[256 - 64 - sizeof(Timeout)];
};

std::vector<std::uint32_t> shuffled(std::size_t n, unsigned seed) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937{seed});
  return order;
}

// Contenders. Each has n connections and: arm_all, cancel_all (one by one, in this order), refresh
// (one), one_tick (what has to be done every 100 ms), expire_all (arms all for one moment
// beforehand).

struct plain_store {
  struct nothing {
    std::uint64_t deadline = 0;
  };
  using conn = connection<nothing>;
  explicit plain_store(std::size_t n) : all(n) {}
  void arm(std::uint32_t i) { refresh(i); }
  void refresh(std::uint32_t i) {
    ++all[i].bytes_in;
    all[i].timeout.deadline = now;
    benchmark::ClobberMemory();
  }
  void cancel(std::uint32_t i) {
    ++all[i].bytes_in;
    all[i].timeout.deadline = 0;
    benchmark::ClobberMemory();
  }
  void one_tick() { ++now; }
  std::uint64_t now = 0;
  std::vector<conn> all;
};

template <refresh_mode Mode>
struct wheel {
  struct idle_timer {
    idlewheel::timer timer{
        [this] { ++reinterpret_cast<conn*>(reinterpret_cast<char*>(this) - 64)->bytes_in; }};
  };
  using conn = connection<idle_timer>;
  static_assert(sizeof(conn) == 256 && sizeof(idle_timer) <= 64);

  explicit wheel(std::size_t n)
      : host{{.tick = tick_length, .slots = slots, .refresh = Mode}}, all(n) {}
  void arm(std::uint32_t i) {
    ++all[i].bytes_in;
    host.arm(all[i].timeout.timer, timeout);
  }
  void refresh(std::uint32_t i) {
    ++all[i].bytes_in;
    host.refresh(all[i].timeout.timer);
  }
  void cancel(std::uint32_t i) {
    ++all[i].bytes_in;
    host.cancel(all[i].timeout.timer);
  }
  void one_tick() { host.advance(tick_length); }
  void due_soon(std::uint32_t i) { host.arm(all[i].timeout.timer, 1s); }
  void expire() {
    host.block(2s);
    host.poll();
    while (host.turn().more) {
    }
  }
  idlewheel::testing::manual_wheel host;
  std::vector<conn> all;
};

struct libuv {
  using conn = connection<uv_timer_t>;
  static_assert(sizeof(conn) == 256);

  explicit libuv(std::size_t n) : all(n) {
    uv_loop_init(&loop);
    for (conn& c : all) uv_timer_init(&loop, &c.timeout);
  }
  ~libuv() {
    for (conn& c : all) uv_close(reinterpret_cast<uv_handle_t*>(&c.timeout), nullptr);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
  }
  static void fired(uv_timer_t* t) {
    ++reinterpret_cast<conn*>(reinterpret_cast<char*>(t) - 64)->bytes_in;
  }
  void arm(std::uint32_t i) {
    ++all[i].bytes_in;
    uv_timer_start(&all[i].timeout, fired, 60'000, 60'000);
  }
  void refresh(std::uint32_t i) {
    ++all[i].bytes_in;
    uv_timer_again(&all[i].timeout);
  }
  void cancel(std::uint32_t i) {
    ++all[i].bytes_in;
    uv_timer_stop(&all[i].timeout);
  }
  void one_tick() { uv_update_time(&loop); }
  void due_soon(std::uint32_t i) { uv_timer_start(&all[i].timeout, fired, 0, 0); }
  void expire() { uv_run(&loop, UV_RUN_NOWAIT); }
  uv_loop_t loop;
  std::vector<conn> all;
};

void report(benchmark::State& state, double seconds, std::size_t operations) {
  state.counters["ns"] = seconds * 1e9 / static_cast<double>(operations);
}

double since(steady::time_point begin) {
  return std::chrono::duration<double>(steady::now() - begin).count();
}

// Each connection once a second; `chosen` of the n are read at all.
template <class C>
void refresh(benchmark::State& state, bool only_hot) {
  const auto n = static_cast<std::size_t>(state.range(0));
  auto c = std::make_unique<C>(n);
  for (const std::uint32_t i : shuffled(n, 1)) c->arm(i);
  auto order = shuffled(n, 7);
  std::size_t per_tick = std::max<std::size_t>(n / ticks_per_second, 1);
  if (only_hot) {
    order.resize(hot);
    per_tick = 100'000;  // the same few, over and over
  }
  std::size_t at = 0;
  const auto one_tick = [&] {
    for (std::size_t r = 0; r != per_tick; ++r) {
      c->refresh(order[at]);
      if (++at == order.size()) at = 0;
    }
    c->one_tick();
  };
  // A heap puts nothing off, so that a few seconds show as much of it as a minute of a wheel.
  constexpr std::size_t minute = 60 * ticks_per_second / (std::is_same_v<C, libuv> ? 20 : 1);
  const std::size_t ticks =
      only_hot ? 100 : std::max<std::size_t>(minute, minute * 1'000'000 / 10 / n);
  if (!only_hot)
    for (std::size_t t = 0; t != minute; ++t) one_tick();
  for (auto _ : state) {
    const auto begin = steady::now();
    for (std::size_t t = 0; t != ticks; ++t) one_tick();
    const double seconds = since(begin);
    state.SetIterationTime(seconds);
    report(state, seconds, ticks * per_tick);
  }
}

// Arms all in one order and cancels them in another; `which` is what counts.
enum class half { arm, cancel };
template <class C>
void arm_and_cancel(benchmark::State& state, half which) {
  const auto n = static_cast<std::size_t>(state.range(0));
  auto c = std::make_unique<C>(n);
  const auto first = shuffled(n, 1), second = shuffled(n, 2);
  const std::size_t rounds = std::max<std::size_t>(1'000'000 / n, 1);
  for (auto _ : state) {
    double arming = 0, cancelling = 0;
    for (std::size_t r = 0; r != rounds; ++r) {
      const auto begin = steady::now();
      for (const std::uint32_t i : first) c->arm(i);
      const auto armed = steady::now();
      for (const std::uint32_t i : second) c->cancel(i);
      cancelling += since(armed);
      arming += std::chrono::duration<double>(armed - begin).count();
    }
    const double seconds = which == half::arm ? arming : cancelling;
    state.SetIterationTime(seconds);
    report(state, seconds, rounds * n);
  }
}

// All due on one tick; the callback touches its connection.
template <class C>
void expire(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  auto c = std::make_unique<C>(n);
  const auto order = shuffled(n, 1);
  const std::size_t rounds = std::max<std::size_t>(1'000'000 / n, 1);
  for (auto _ : state) {
    double seconds = 0;
    for (std::size_t r = 0; r != rounds; ++r) {
      for (const std::uint32_t i : order) c->due_soon(i);
      const auto begin = steady::now();
      c->expire();
      seconds += since(begin);
    }
    state.SetIterationTime(seconds);
    report(state, seconds, rounds * n);
  }
}

template <class F>
void enter(const std::string& name, F f) {
  auto* b = benchmark::RegisterBenchmark(name.c_str(), f);
  for (const long n : {1'000, 100'000, 1'000'000}) b->Arg(n);
  b->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
}

template <class C>
void enter_contender(const std::string& name) {
  enter("refresh/" + name, [](benchmark::State& s) { refresh<C>(s, false); });
  enter("refresh of 64 hot/" + name, [](benchmark::State& s) { refresh<C>(s, true); });
  enter("arm/" + name, [](benchmark::State& s) { arm_and_cancel<C>(s, half::arm); });
  enter("cancel/" + name, [](benchmark::State& s) { arm_and_cancel<C>(s, half::cancel); });
}

}  // namespace

int main(int argc, char** argv) {
  enter_contender<plain_store>("floor");
  enter_contender<wheel<refresh_mode::relink>>("relink");
  enter_contender<wheel<refresh_mode::deferred>>("deferred");
  enter_contender<libuv>("uv_timer_t");
  enter("expire/relink", expire<wheel<refresh_mode::relink>>);
  enter("expire/deferred", expire<wheel<refresh_mode::deferred>>);
  enter("expire/uv_timer_t", expire<libuv>);

  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  bench::ratio_table table;
  benchmark::RunSpecifiedBenchmarks(&table);
  table.print({{"refresh", "floor"},
               {"refresh of 64 hot", "floor"},
               {"arm", "uv_timer_t"},
               {"cancel", "uv_timer_t"},
               {"expire", "uv_timer_t"}});
}
