// echo_server_overload_test.cpp - the server that runs out of something, is told to go, or has many
// loops.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/echo_server/echo_server.hpp"
#include "tests/support/client.hpp"

namespace idlewheel::test {
namespace {

using nlohmann::json;

// For a server that is started while this lives.
class descriptors {
 public:
  explicit descriptors(rlim_t n) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{.rlim_cur = n, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

echo_server with_descriptors(rlim_t n, std::vector<std::string> arguments) {
  const descriptors few{n};
  return echo_server{std::move(arguments)};
}

// Seconds of processor time that a process has used.
double processor_seconds(pid_t pid) {
  std::ifstream stat{"/proc/" + std::to_string(pid) + "/stat"};
  std::string word;
  double user = 0, system = 0;
  for (int i = 1; i <= 13 && stat >> word; ++i) continue;
  stat >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

TEST(EchoServerOverload, WithFewDescriptorsItServesAThrongByClosingTheLongestIdle) {
  const echo_server server =
      with_descriptors(256, {"--idle", "0s", "--evict-idle", "0s", "--log", "json", "--quiet"});
  // Each says something, hears it, and stays; the oldest go when they have been closed.
  std::deque<client> all;
  for (int i = 0; i < 2000; ++i) {
    all.emplace_back(server.host(), server.port());
    ASSERT_TRUE(all.back().echoes("hello")) << "client " << i;
    if (all.size() > 600) all.pop_front();
  }
  // The newest are still there.
  for (std::size_t i = all.size() - 100; i < all.size(); ++i)
    ASSERT_TRUE(all[i].echoes("still here")) << i;
  server.signal(SIGINT);
  const auto summary = json::parse(const_cast<echo_server&>(server).line_with("summary").value());
  EXPECT_EQ(summary["accepted"], 2000);
  EXPECT_GT(summary["closed"]["evicted"], 1500);
}

TEST(EchoServerOverload, WhenNoneMayGoTheOthersWaitAndItDoesNotSpin) {
  echo_server server = with_descriptors(64, {"--idle", "0s", "--evict-idle", "10s"});
  std::vector<client> served, waiting;
  for (int i = 0; i < 100; ++i) {
    client c{server.host(), server.port()};
    c.send("x");
    pollfd answered{c.fd(), POLLIN, 0};
    if (poll(&answered, 1, served.size() < 20 ? 20'000 : 300) == 1)
      served.push_back(std::move(c));
    else
      waiting.push_back(std::move(c));
    if (waiting.size() == 3) break;
  }
  ASSERT_GT(served.size(), 20u);
  ASSERT_EQ(waiting.size(), 3u);
  const double before = processor_seconds(server.pid());
  EXPECT_EQ(waiting[0].wait_for_end(1s), client::end::neither);
  EXPECT_LT(processor_seconds(server.pid()) - before, 0.3) << "it spins";
  for (client& c : served) c.close();
  for (client& c : waiting) EXPECT_EQ(c.receive(1), "x");
  server.signal(SIGINT);
  EXPECT_NE(server.wait().err.find("the limit; more wait"), std::string::npos);
}

TEST(EchoServerOverload, UnderPressureTheIdleHaveLessTime) {
  echo_server server{{"--idle", "60s", "--idle-min", "300ms", "--max-connections", "10", "--tick",
                      "10ms", "--evict-idle", "60s", "--log", "json"}};
  std::vector<client> all;
  for (int i = 0; i < 10; ++i) all.emplace_back(server.host(), server.port());
  const auto closed = json::parse(server.line_with("\"close\"").value_or("{}"));
  EXPECT_EQ(closed["reason"], "idle");
  EXPECT_GE(closed["idle_ms"], 300.0);
  EXPECT_LT(closed["idle_ms"], 30'000.0);
}

TEST(EchoServerOverload, ADryRunClosesNobodyAndSaysWhom) {
  echo_server server{{"--idle", "100ms", "--tick", "10ms", "--dry-run", "--log", "json"}};
  client c{server.host(), server.port()};
  const auto would = json::parse(server.line_with("would_close").value_or("{}"));
  EXPECT_EQ(would["reason"], "idle");
  EXPECT_EQ(would["id"], 1);
  EXPECT_TRUE(c.echoes("still here"));
  server.signal(SIGINT);
  const auto summary = json::parse(server.line_with("summary").value_or("{}"));
  EXPECT_EQ(summary["would_close"], json({{"idle", 1}}));
  EXPECT_EQ(summary["closed"], json({{"shutdown", 1}}));
}

TEST(EchoServerDrain, EveryEchoThatWasReadIsAnsweredBeforeTheEnd) {
  echo_server server{{"--drain-window", "500ms", "--log", "json", "--idle", "60s"}};
  std::atomic<int> cut{0}, answered{0};
  std::vector<std::thread> talkers;
  for (int i = 0; i < 20; ++i)
    talkers.emplace_back([&] {
      client c{server.host(), server.port()};
      for (;;) {
        c.send("0123456789");
        const std::string echo = c.receive(10);
        if (echo.size() == 10) {
          ++answered;
        } else {
          if (!echo.empty()) ++cut;
          return;
        }
      }
    });
  ASSERT_TRUE(server.line_with("\"open\""));
  while (answered < 200) std::this_thread::yield();
  server.signal(SIGTERM);
  for (std::thread& t : talkers) t.join();
  EXPECT_EQ(cut, 0);
  int closed = 0;
  for (const std::string& line : server.rest()) {
    const auto event = json::parse(line);
    if (event["event"] != "close") continue;
    ++closed;
    EXPECT_EQ(event["reason"], "drain");
    EXPECT_EQ(event["rx_bytes"], event["tx_bytes"]);
  }
  EXPECT_EQ(closed, 20);
  EXPECT_EQ(server.wait().exit_status, 0);
}

TEST(EchoServerDrain, NobodyNewIsAccepted) {
  echo_server server{{"--drain-window", "10s", "--idle", "60s"}};
  client c{server.host(), server.port()};
  ASSERT_TRUE(c.echoes("x"));
  server.signal(SIGTERM);
  bool refused = false;
  for (const auto begin = steady::now(); !refused && steady::now() - begin < patience;) try {
      client late{server.host(), server.port()};
    } catch (const std::runtime_error&) {
      refused = true;
    }
  EXPECT_TRUE(refused);
}

class EchoServerLoops : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Loops, EchoServerLoops, testing::Values(1, 2, 4));

TEST_P(EchoServerLoops, ServeOnePortBetweenThem) {
  echo_server server{{"--loops", std::to_string(GetParam()), "--idle", "400ms", "--tick", "10ms",
                      "--log", "json"}};
  const auto threads = [&] {
    std::ifstream status{"/proc/" + std::to_string(server.pid()) + "/status"};
    std::string word;
    int n = 0;
    while (status >> word)
      if (word == "Threads:") status >> n;
    return n;
  };
  EXPECT_EQ(threads(), GetParam()) << "one for each loop and no other";
  std::vector<client> talkers, silent;
  for (int i = 0; i < 40; ++i) {
    talkers.emplace_back(server.host(), server.port());
    silent.emplace_back(server.host(), server.port());
  }
  for (client& c : talkers) ASSERT_TRUE(c.echoes("x"));
  for (client& c : silent)
    while (c.wait_for_end(10ms) == client::end::neither)
      for (client& t : talkers) ASSERT_TRUE(t.echoes("y"));
  server.signal(SIGINT);
  const auto summary = json::parse(server.line_with("summary").value_or("{}"));
  EXPECT_EQ(summary["accepted"], 80);
  EXPECT_EQ(summary["closed"], json({{"idle", 40}, {"shutdown", 40}}));
  EXPECT_EQ(server.wait().exit_status, 0);
}

}  // namespace
}  // namespace idlewheel::test
