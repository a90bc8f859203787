// storm_bench.cpp - what does a tick with very many due timers cost, turn by turn?
//
// Question  When n timeouts run out on one tick, how long is the longest turn of the loop, with the
//           default budget and without one?
// Setup     A loop_wheel on a real loop; n timers of 64 bytes, armed in random order for one
// moment;
//           every turn of the loop from then on is timed, polls included.
// Read it   "turn" is what an I/O event may have to wait; "all" until the last timer has fired.
#include <uv.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "idlewheel/uv/loop_wheel.hpp"
#include "release_only.hpp"

namespace {

using namespace std::chrono_literals;

struct result {
  std::size_t turns = 0;
  double median_us = 0;
  double longest_us = 0;
  double all_ms = 0;
};

result storm(std::size_t n, std::size_t budget) {
  uv_loop_t loop;
  uv_loop_init(&loop);
  result r;
  {
    idlewheel::loop_wheel wheel{&loop, {.tick = 100ms, .budget = budget}};
    wheel.ref();
    static std::size_t fired;
    fired = 0;
    struct due {
      idlewheel::timer timer{[] { ++fired; }};
    };
    std::vector<due> timers(n);
    std::vector<std::uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), std::mt19937{7});
    const idlewheel::instant when = idlewheel::later(wheel.now(), 1s);
    for (const std::uint32_t i : order) wheel.arm_at(timers[i].timer, when);

    while (fired == 0) uv_run(&loop, UV_RUN_ONCE);  // the first turn of the storm is not timed
    std::vector<double> turns;
    const std::uint64_t begin = uv_hrtime();
    for (std::uint64_t before = begin; fired != n;) {
      uv_run(&loop, UV_RUN_NOWAIT);
      const std::uint64_t after = uv_hrtime();
      turns.push_back(static_cast<double>(after - before) / 1e3);
      before = after;
    }
    r.all_ms = static_cast<double>(uv_hrtime() - begin) / 1e6;
    r.turns = turns.size();
    if (!turns.empty()) {
      std::sort(turns.begin(), turns.end());
      r.median_us = turns[turns.size() / 2];
      r.longest_us = turns.back();
    }
  }
  uv_run(&loop, UV_RUN_DEFAULT);
  uv_loop_close(&loop);
  return r;
}

}  // namespace

int main() {
  std::puts("| due on one tick | budget | turns | median turn | longest turn | all |");
  std::puts("|----------------:|-------:|------:|------------:|-------------:|----:|");
  for (const std::size_t n : {10'000u, 100'000u, 1'000'000u})
    for (const std::size_t budget : {std::size_t{256}, std::size_t{4096}}) {
      const result r = storm(n, budget);
      std::printf("| %zu | %zu | %zu | %.0f us | %.0f us | %.0f ms |\n", n, budget, r.turns,
                  r.median_us, r.longest_us, r.all_ms);
    }
}
