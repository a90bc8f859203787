// real_clients_test.cpp - clients that nobody here wrote, alive, stopped, slow and cut off.
#include <gtest/gtest.h>
#include <signal.h>
#include <memory>

#include "tests/support/client.hpp"
#include "tests/support/server_log.hpp"
#include "tests/support/two_hosts.hpp"

namespace idlewheel::test {
namespace {

constexpr auto tick = 50ms;
constexpr auto slack = 150ms;  // for a loop that a busy machine lets run late

struct heartbeat {
  std::chrono::milliseconds after, timeout;
  operator std::vector<std::string>() const {
    return {"--ping-after",   std::to_string(after.count()) + "ms",
            "--ping-timeout", std::to_string(timeout.count()) + "ms",
            "--tick",         "50ms"};
  }
};

std::string url_of(const server& s) {
  return "ws://" + s.host() + ':' + std::to_string(s.port()) + "/echo";
}

std::vector<std::string> library_client(const std::string& url, int bytes = 5) {
  return {PYTHON, std::string{SOURCES} + "/client.py", url, std::to_string(bytes)};
}

// From its last answer, which came in the last wait for a ping before it fell silent, the peer has
// both times, and is then found out within a tick.
void expect_dead(logging_server& server, const heartbeat& beat, steady::time_point silent_since) {
  const auto end = server.next_closing();
  const auto lasted = steady::now() - silent_since;
  EXPECT_EQ(end.reason, "peer_dead");
  EXPECT_LT(end.late_ms, static_cast<double>((tick + slack).count()));
  EXPECT_GE(lasted, beat.timeout - slack);
  EXPECT_LT(lasted, beat.after + beat.timeout + tick + slack);
}

// Nothing happens for so long. A browser may still be opening and closing connections of its own.
void expect_peace(process& of, std::chrono::milliseconds length) {
  for (const auto begin = steady::now(); steady::now() - begin < patience;) {
    const auto line = of.line_within(length);
    if (!line) return;
    ASSERT_EQ(line->find("peer_dead"), std::string::npos) << *line;
  }
  FAIL() << "no peace";
}

TEST(RealClients, ALibraryStaysForManyPingsAndIsDeadWhenStopped) {
  constexpr heartbeat beat{100ms, 2s};
  logging_server server{{WEBSOCKET_SERVER}, beat};
  process client{library_client(url_of(server))};
  ASSERT_TRUE(client.line_with("echoed"));
  ASSERT_TRUE(server.line_with("\"open\""));
  expect_peace(server, 3s);  // thirty pings
  const auto stopped = steady::now();
  client.signal(SIGSTOP);
  expect_dead(server, beat, stopped);
  client.signal(SIGCONT);
  EXPECT_TRUE(client.line_with("closed abnormally"));
}

#ifdef CHROMIUM
struct browser : process {
  explicit browser(const server& of)
      : process{{PYTHON, std::string{SOURCES} + "/browser.py", CHROMIUM,
                 "http://" + of.host() + ':' + std::to_string(of.port()) + '/'}} {
    const auto first = line_with("browser ");
    if (!first) throw std::runtime_error("no browser");
    group = std::stoi(first->substr(8));
  }
  ~browser() { kill(-group, SIGKILL); }
  pid_t group = 0;
};

TEST(RealClients, ABrowserStaysForManyPingsAndIsDeadWhenStopped) {
  constexpr heartbeat beat{100ms, 3s};
  std::vector<std::string> arguments = beat;
  // It opens a connection ahead of its needs, which never says a thing.
  arguments.insert(arguments.end(), {"--handshake", "0s"});
  logging_server server{{WEBSOCKET_SERVER}, arguments};
  const auto page = std::make_unique<browser>(server);
  ASSERT_TRUE(page->line_with("echoed"));
  expect_peace(server, 3s);
  const auto stopped = steady::now();
  kill(-page->group, SIGSTOP);
  expect_dead(server, beat, stopped);
}
#endif

#ifdef NAMESPACES
logging_server server_on(const two_hosts& hosts, std::vector<std::string> arguments) {
  return logging_server{hosts.at_server({WEBSOCKET_SERVER}), std::move(arguments),
                        std::string{two_hosts::server_address} + ":0"};
}

TEST(RealClients, APeerThatIsCutOffIsDeadThoughNoPacketSaysSo) {
  constexpr heartbeat beat{300ms, 1s};
  two_hosts hosts;
  logging_server server{server_on(hosts, beat)};
  process client{hosts.at_client(library_client(url_of(server)))};
  ASSERT_TRUE(client.line_with("echoed"));
  ASSERT_TRUE(server.line_with("\"open\""));
  expect_peace(server, 2s);
  const auto cut = steady::now();
  hosts.cut();
  expect_dead(server, beat, cut);
}

TEST(RealClients, APeerOnASlowLinkIsAliveWhileDataFlows) {
  two_hosts hosts;
  hosts.slow_down(256);
  // A message takes five times as long as a ping may.
  logging_server server{server_on(hosts, heartbeat{200ms, 1s})};
  process client{hosts.at_client(library_client(url_of(server), 160'000))};
  ASSERT_TRUE(client.line_with("open"));
  const auto begin = steady::now();
  ASSERT_TRUE(client.line_with("echoed"));
  EXPECT_GE(steady::now() - begin, 3s) << "not that slow";
  ASSERT_TRUE(server.line_with("\"open\""));
  expect_peace(server, 1s);
}
#endif

}  // namespace
}  // namespace idlewheel::test
