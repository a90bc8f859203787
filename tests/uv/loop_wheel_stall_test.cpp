// loop_wheel_stall_test.cpp - a loop that was blocked closes no peer that has spoken meanwhile, and
// every one that has not.
//
// "Early" is judged exactly: a connection knows when its peer last spoke and when it was closed.
// How slow the machine is makes no difference to that.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <deque>

#include "tests/uv/watched.hpp"

namespace idlewheel::uv_tests {
namespace {

enum class phase { read, timer, check, prepare, idle };
enum class order { before_the_wheel, after_the_wheel };

struct Stall {
  const char* name;
  phase where;
  order user;  // whose handles libuv learns of first
};

// Whether the wheel happens to be due, for somebody else, in the turn that is blocked.
enum class wheel_is { asleep, due };

using StallParam = std::tuple<Stall, wheel_is, refresh_mode>;
class LoopStalls : public testing::TestWithParam<StallParam> {};

std::string name_of_stall(const testing::TestParamInfo<StallParam>& i) {
  return std::string{std::get<0>(i.param).name} +
         (std::get<1>(i.param) == wheel_is::due ? "WhenDue" : "") +
         name_of_mode(std::get<2>(i.param));
}

// Runs f once, in one phase of the loop, as soon as `ready` says so there.
class once_in_phase {
 public:
  once_in_phase(uv_loop_t* loop, phase where, std::function<bool()> ready, std::function<void()> f)
      : where_{where}, ready_{std::move(ready)}, f_{std::move(f)} {
    const auto run = [this] {
      if (!armed_ || !ready_()) return;
      armed_ = false;
      f_();
    };
    switch (where) {
      case phase::read:
        end_.emplace(loop, transport::pipe, [this, run](std::size_t) {
          run();
          if (armed_) end_->say();  // until it is ready, readable in every turn
        });
        break;
      case phase::timer:
        timer_.emplace(loop, 1ms, 1ms, run);
        break;
      case phase::check:
        check_.emplace(loop, run);
        break;
      case phase::prepare:
        prepare_.emplace(loop, run);
        break;
      case phase::idle:
        idle_.emplace(loop, [this, run] {
          run();
          if (!armed_) idle_->stop();  // else the loop never sleeps again
        });
        break;
    }
  }
  void go() {
    armed_ = true;
    if (where_ == phase::read) end_->say();
  }

 private:
  phase where_;
  std::function<bool()> ready_;
  std::function<void()> f_;
  bool armed_ = false;
  std::optional<endpoint> end_;
  std::optional<loop_timer> timer_;
  std::optional<each_check> check_;
  std::optional<each_prepare> prepare_;
  std::optional<each_idle> idle_;
};

TEST_P(LoopStalls, CloseTheSilentAndNobodyWhoSpoke) {
  const Stall& stall = std::get<0>(GetParam());
  const bool due = std::get<1>(GetParam()) == wheel_is::due;
  const refresh_mode mode = std::get<2>(GetParam());
  constexpr auto limit = 100ms;
  const timeout_policy policy{.idle = limit};
  loop on;
  loop_wheel wheel{on, {.tick = 5ms, .refresh = mode}};
  crowd talking, silent;
  std::optional<once_in_phase> blocker;
  bool blocked = false;
  const auto block = [&] {
    block_for(2 * limit + limit / 2);
    for (auto& c : talking) c->say();
    block_for(limit / 2);
    blocked = true;
  };
  firing somebody_else;
  const auto ready = [&] { return !due || wheel.stats().visits != 0; };
  const auto start_blocker = [&] { blocker.emplace(on, stall.where, ready, block); };
  const auto start_crowd = [&] {
    for (const transport kind : {transport::poll, transport::pipe, transport::tcp})
      for (const watch how : {watch::bare_timer, watch::idle_limit})
        for (int i = 0; i != 3; ++i)
          for (crowd* group : {&talking, &silent})
            group->push_back(std::make_unique<watched>(wheel, kind, how, policy));
  };
  if (stall.user == order::before_the_wheel) {
    start_blocker();
    start_crowd();
  } else {
    start_crowd();
    start_blocker();
  }
  if (due) wheel.arm(somebody_else.t, 20ms);
  blocker->go();
  ASSERT_TRUE(on.run_until([&] { return blocked && count_closed(silent) == silent.size(); }));
  EXPECT_EQ(count_closed_early(talking), 0u) << "of " << talking.size();
  EXPECT_EQ(count_closed_early(silent), 0u);
  // Those who spoke fall silent too, and are closed in their turn.
  ASSERT_TRUE(on.run_until([&] { return count_closed(talking) == talking.size(); }));
  EXPECT_EQ(count_closed_early(talking), 0u);
  for (auto& c : talking) EXPECT_EQ(c->reads, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Phases, LoopStalls,
    testing::Combine(
        testing::Values(Stall{"InARead", phase::read, order::after_the_wheel},
                        Stall{"InAnEarlierTimer", phase::timer, order::before_the_wheel},
                        Stall{"InALaterTimer", phase::timer, order::after_the_wheel},
                        Stall{"InACheckAfterOurs", phase::check, order::before_the_wheel},
                        Stall{"InACheckBeforeOurs", phase::check, order::after_the_wheel},
                        Stall{"InAPrepareAfterOurs", phase::prepare, order::before_the_wheel},
                        Stall{"InAPrepareBeforeOurs", phase::prepare, order::after_the_wheel},
                        Stall{"InIdle", phase::idle, order::after_the_wheel}),
        testing::Values(wheel_is::asleep, wheel_is::due),
        testing::Values(refresh_mode::relink, refresh_mode::deferred)),
    name_of_stall);

// The nasty one: the poll has reported many sockets; the first handler blocks, meanwhile peers
// speak, and what they said is read in the same batch under the stamp of a poll that is long past.
class LoopStallsWithinABatch : public ByMode {
 protected:
  static constexpr auto limit = 100ms;
  const timeout_policy policy{.idle = limit};
  loop on;
  loop_wheel wheel{on, {.tick = 5ms, .refresh = GetParam()}};
  crowd all;
  std::uint64_t turn = 0;
  each_prepare turns{on, [this] { ++turn; }};

  // `then` runs in the blocked handler, after the peers have spoken.
  void run(std::size_t n, const std::vector<transport>& kinds, std::function<void()> then) {
    for (std::size_t i = 0; i != n; ++i)
      all.push_back(std::make_unique<watched>(wheel, kinds[i % kinds.size()],
                                              i % 4 < 2 ? watch::bare_timer : watch::idle_limit,
                                              policy));
    std::uint64_t blocked_in = 0;
    std::size_t in_batch = 0;
    bool blocked = false;
    for (auto& c : all)
      c->on_heard = [&, self = c.get()] {
        if (!blocked) {  // whichever is first
          blocked = true;
          blocked_in = turn;
          block_for(2 * limit);
          for (auto& other : all)
            if (other.get() != self) other->say();
          block_for(limit / 5);
          if (then) then();
        } else if (turn == blocked_in) {
          ++in_batch;
        }
      };
    for (auto& c : all) c->say();  // all are readable when the poll comes
    ASSERT_TRUE(on.run_until([&] { return count_closed(all) == all.size(); }));
    EXPECT_EQ(count_closed_early(all), 0u) << "of " << all.size();
    EXPECT_GE(in_batch, n - 1) << "the batch did not hold what this is about";
  }
};

TEST_P(LoopStallsWithinABatch, ReadAfterTheBlockingHandler) {
  run(60, {transport::poll, transport::pipe, transport::tcp}, nullptr);
  EXPECT_GE(wheel.stats().stalls, 1u);
  EXPECT_GE(wheel.stats().longest_stall, timespan{2 * limit});
}

TEST_P(LoopStallsWithinABatch, WhenTheBlockingHandlerUpdatesTheTimeOfTheLoop) {
  run(60, {transport::poll, transport::pipe, transport::tcp}, [this] { uv_update_time(on); });
}

// libuv asks for 1,024 events at a time and polls again, within the turn, when it got as many.
TEST_P(LoopStallsWithinABatch, WithMoreSocketsThanLibuvPollsAtOnce) {
  run(1'500, {transport::poll}, nullptr);
}

IDLEWHEEL_IN_BOTH_MODES(LoopStallsWithinABatch);

class LoopStallsSimply : public ByMode {
 protected:
  loop on;
  loop_wheel wheel{on, {.tick = 5ms, .refresh = GetParam()}};
};

TEST_P(LoopStallsSimply, ARefreshBeforeABlockingHandlerIsNotEarlyAndNotMuchLater) {
  // Read first, then another handler blocks: the bytes are as old as they are, but nobody can know
  // that. Later by the stall at most.
  firing f;
  instant refreshed{};
  wheel.arm(f.t, 100ms);
  loop_timer handler{on, 20ms, [&] {
                       refreshed = clock_now();
                       wheel.refresh(f.t);
                       block_for(250ms);
                     }};
  ASSERT_TRUE(on.run_until([&] { return f.count == 1; }));
  EXPECT_GE(f.at - refreshed, 100ms);
}

TEST_P(LoopStallsSimply, EachOfSeveralStallsIsAccountedFor) {
  // Each turn blocks, refreshes from a stamp that is 30 ms old, and leaves time to fire too early.
  constexpr auto limit = 50ms;
  firing f;
  instant last{};
  std::size_t early = 0;
  f.then = [&] {
    early += clock_now() - last < limit;
    last = clock_now();
    wheel.arm(f.t, limit);
  };
  last = clock_now();
  wheel.arm(f.t, limit);
  int rounds = 0;
  loop_timer handler{on, 1ms, 70ms, [&] {
                       ++rounds;
                       block_for(30ms);
                       last = clock_now();
                       wheel.refresh(f.t);
                     }};
  ASSERT_TRUE(on.run_until([&] { return rounds >= 10; }));
  EXPECT_EQ(early, 0u);
  EXPECT_GE(wheel.stats().stalls, 9u);
}

TEST_P(LoopStallsSimply, CancelledDuringTheStallStaysCancelled) {
  firing f, other;
  wheel.arm(f.t, 50ms);
  wheel.arm(other.t, 50ms);
  loop_timer handler{on, 1ms, [&] {
                       block_for(150ms);
                       EXPECT_TRUE(f.t.cancel());
                     }};
  ASSERT_TRUE(on.run_until([&] { return other.count == 1; }));
  EXPECT_EQ(f.count, 0);
}

IDLEWHEEL_IN_BOTH_MODES(LoopStallsSimply);

// 5,000 connections, a second of patience, three seconds of silence on our side.
class LoopStallsBig : public ByMode {};

TEST_P(LoopStallsBig, FourThousandNineHundredOfFiveThousandHaveSpoken) {
  constexpr std::size_t talkers = 4'900, mutes = 100;
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < 2 * (talkers + mutes) + 100)
    GTEST_SKIP() << "needs 10,100 descriptors, may have " << files.rlim_max;

  const timeout_policy policy{.idle = 1s};
  loop on;
  loop_wheel wheel{on, {.tick = 20ms, .refresh = GetParam()}};
  crowd talking, silent;
  bool blocked = false;
  endpoint trigger{on, transport::poll, [&](std::size_t) {
                     std::thread peers{[&] {
                       block_for(2s);
                       for (auto& c : talking) c->say();
                     }};
                     block_for(3s);
                     peers.join();
                     blocked = true;
                   }};
  for (std::size_t i = 0; i != talkers + mutes; ++i)
    (i % 50 == 7 ? silent : talking)
        .push_back(std::make_unique<watched>(
            wheel, transport::poll, i % 2 == 0 ? watch::bare_timer : watch::idle_limit, policy));
  ASSERT_EQ(silent.size(), mutes);
  trigger.say();
  ASSERT_TRUE(on.run_until([&] { return blocked && count_closed(silent) == mutes; }));
  EXPECT_EQ(count_closed(talking), 0u) << "of " << talkers;
  EXPECT_EQ(count_closed_early(talking), 0u);
  std::size_t heard = 0;
  for (auto& c : talking) heard += static_cast<std::size_t>(c->reads);
  EXPECT_EQ(heard, talkers);
}

IDLEWHEEL_IN_BOTH_MODES(LoopStallsBig);

}  // namespace
}  // namespace idlewheel::uv_tests
