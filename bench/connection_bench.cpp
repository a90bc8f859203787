// connection_bench.cpp - what does a read cost a connection with many limits?
//
// Question  Does a read stay as cheap with every limit on as with the idle limit alone?
// Setup     n connections on a host, read in random order, 100 bytes each, once a second each; a tick
//           of 100 ms is advanced after every n/10 reads, and what fires and is armed anew on the way
//           is paid for in here. "every limit" is the upgraded phase, with the heartbeat; "every
//           limit, in a body" has the rate as well, so that a read pays a division.
// Read it   Compare within a column of one run. Run it as
//             connection_bench --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
//           and quote the table at the end.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "idlewheel/connection/connection_timeouts.hpp"
#include "idlewheel/testing/manual_wheel.hpp"
#include "ratio_table.hpp"
#include "release_only.hpp"

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr idlewheel::timeout_policy idle_only{.idle = 60s};
constexpr idlewheel::timeout_policy every_limit{.handshake = 10s,
                                                .header = 30s,
                                                .body = 10h,
                                                .request = 10h,
                                                .keep_alive = 75s,
                                                .idle = 60s,
                                                .read_idle = 50s,
                                                .message_idle = 10h,
                                                .write_stall = 30s,
                                                .min_rate_in = {.bytes_per_second = 10},
                                                .min_rate_out = {.bytes_per_second = 10},
                                                .ping_after = 30s,
                                                .ping_timeout = 20s,
                                                .ping_after_send = 60s,
                                                .max_age = 10h,
                                                .age_grace = 60s,
                                                .linger = 5s};

struct nobody final : idlewheel::timeout_handler {
  idlewheel::verdict on_timeout(const idlewheel::expiry&) noexcept override {
    ++closed;
    return idlewheel::verdict::close();
  }
  std::uint64_t closed = 0;
};

void read(benchmark::State& state, const idlewheel::timeout_policy& policy, idlewheel::phase in) {
  const auto n = static_cast<std::size_t>(state.range(0));
  idlewheel::testing::manual_wheel host{{.slots = 1024}};
  idlewheel::connection_reaper reaper{host};
  nobody handler;
  std::deque<idlewheel::connection_timeouts> all;
  for (std::size_t i = 0; i != n; ++i)
    all.emplace_back(reaper, policy, idlewheel::socket_view{}, handler, in);
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937{1});

  std::size_t at = 0;
  const std::size_t per_tick = std::max<std::size_t>(n / 10, 1);
  const auto run = [&](std::size_t ticks) {
    for (std::size_t t = 0; t != ticks; ++t) {
      for (std::size_t r = 0; r != per_tick; ++r) {
        all[order[at]].on_read(100);
        if (++at == n) at = 0;
      }
      host.advance(100ms);
    }
  };
  constexpr std::size_t minute = 600;
  const std::size_t ticks = std::max<std::size_t>(minute, minute * 100'000 / n / 10);
  run(minute);
  for (auto _ : state) {
    const auto begin = steady::now();
    run(ticks);
    const double seconds = std::chrono::duration<double>(steady::now() - begin).count();
    state.SetIterationTime(seconds);
    state.counters["ns"] = seconds * 1e9 / static_cast<double>(ticks * per_tick);
  }
  if (handler.closed != 0) state.SkipWithError("a connection was closed");
}

void enter(const std::string& name, const idlewheel::timeout_policy& policy, idlewheel::phase in) {
  auto* b = benchmark::RegisterBenchmark(
      ("read/" + name).c_str(), [&policy, in](benchmark::State& s) { read(s, policy, in); });
  for (const long n : {1'000, 100'000}) b->Arg(n);
  b->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  enter("idle only", idle_only, idlewheel::phase::upgraded);
  enter("every limit", every_limit, idlewheel::phase::upgraded);
  enter("every limit, in a body", every_limit, idlewheel::phase::body);

  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  bench::ratio_table table;
  benchmark::RunSpecifiedBenchmarks(&table);
  table.print({{"read", "idle only"}});
}
