// echo_server_crowd_test.cpp - thousands of connections at once, none closed early, none forgotten.
//
// IDLEWHEEL_CROWD=9500 in the environment makes the crowd larger; what it said stands in
// bench/README.md.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/echo_server/echo_server.hpp"
#include "tests/support/client.hpp"

namespace idlewheel::test {
namespace {

using nlohmann::json;

std::size_t crowd() {
  const char* const wanted = std::getenv("IDLEWHEEL_CROWD");
  return wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : 2000;
}

struct mode {
  const char* name;
  const char* refresh;
  const char* tick;
};
class EchoServerCrowd : public testing::TestWithParam<mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, EchoServerCrowd,
                         testing::Values(mode{"Relink", "relink", "100ms"},
                                         mode{"Deferred", "deferred", "10ms"}),
                         [](const auto& i) { return i.param.name; });

TEST_P(EchoServerCrowd, EachIsClosedAfterItsLimitAndNoneBefore) {
  want_descriptors();
  const auto limit = 2000ms;
  echo_server server{{"--idle", "2s", "--refresh", GetParam().refresh, "--tick", GetParam().tick,
                      "--log", "json", "--quiet"}};
  std::vector<client> clients;
  for (std::size_t i = 0; i < crowd(); ++i) clients.emplace_back(server.host(), server.port());
  // Half of them speak, some of those twice.
  for (std::size_t i = 0; i < clients.size(); i += 2) ASSERT_TRUE(clients[i].echoes("one")) << i;
  for (std::size_t i = 0; i < clients.size(); i += 10) ASSERT_TRUE(clients[i].echoes("two")) << i;

  std::vector<pollfd> waiting;
  for (const client& c : clients) waiting.push_back({c.fd(), POLLIN, 0});
  std::size_t open = clients.size(), early = 0;
  while (open != 0) {
    ASSERT_GT(poll(waiting.data(), waiting.size(), 20'000), 0) << open << " never closed";
    const auto now = steady::now();
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      char byte;
      ASSERT_EQ(recv(waiting[i].fd, &byte, 1, 0), 0)
          << "closed, not reset, and nothing unasked for";
      if (now - clients[i].last_sent() < limit) ++early;
      waiting[i].fd = -1;  // poll() then passes it over
      --open;
    }
  }
  EXPECT_EQ(early, 0u);

  server.signal(SIGTERM);
  const auto summary = json::parse(server.line_with("summary").value_or("{}"));
  EXPECT_EQ(summary["accepted"], clients.size());
  EXPECT_EQ(summary["closed"], json({{"idle", clients.size()}}));
  EXPECT_EQ(server.wait().exit_status, 0);
  std::printf("%zu connections, 0 early, latest close %.1f ms late\n", clients.size(),
              summary["latest_close_ms"].get<double>());
}

}  // namespace
}  // namespace idlewheel::test
