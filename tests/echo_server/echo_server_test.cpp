// echo_server_test.cpp - the echo server as a process, over real TCP.
//
// Lower bounds are measured on this side, from before the last byte was sent: a close before limit
// has passed since then is early, whatever the server believes.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/echo_server/echo_server.hpp"
#include "tests/support/client.hpp"

namespace idlewheel::test {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

struct setting {
  const char* name;
  const char* listen;
  const char* refresh;
  const char* tick;
};

class EchoServer : public testing::TestWithParam<setting> {
 protected:
  static std::vector<std::string> arguments(std::vector<std::string> more) {
    more.insert(more.end(), {"--refresh", GetParam().refresh, "--tick", GetParam().tick});
    return more;
  }
};

INSTANTIATE_TEST_SUITE_P(Settings, EchoServer,
                         testing::Values(setting{"Ipv4Relink", "127.0.0.1:0", "relink", "10ms"},
                                         setting{"Ipv4Deferred", "127.0.0.1:0", "deferred",
                                                 "100ms"},
                                         setting{"Ipv6Relink", "[::1]:0", "relink", "1ms"},
                                         setting{"Ipv6Deferred", "[::1]:0", "deferred", "10ms"}),
                         [](const auto& i) { return i.param.name; });

TEST_P(EchoServer, ClosesAnIdleConnectionButNotBeforeItsLimit) {
  echo_server server{arguments({"--idle", "300ms"}), GetParam().listen};
  client silent{server.host(), server.port()};
  client spoke{server.host(), server.port()};
  ASSERT_TRUE(spoke.echoes("hello"));
  for (client* c : {&silent, &spoke}) {
    EXPECT_EQ(c->wait_for_end(patience), client::end::closed);
    EXPECT_GE(steady::now() - c->last_sent(), 300ms);
  }
}

TEST_P(EchoServer, NeverClosesOneThatSpeaksEveryHalfLimit) {
  echo_server server{arguments({"--idle", "600ms"}), GetParam().listen};
  client talker{server.host(), server.port()};
  client silent{server.host(), server.port()};
  for (int half = 0; half < 6; ++half) {
    // The event awaited is that nothing happens, for half a limit.
    ASSERT_EQ(talker.wait_for_end(300ms), client::end::neither) << "half " << half;
    ASSERT_TRUE(talker.echoes("still here")) << "half " << half;
  }
  EXPECT_EQ(silent.wait_for_end(patience), client::end::closed) << "or the test was no test";
}

TEST_P(EchoServer, AStoppedServerClosesTheSilentButNoTalker) {
  echo_server server{arguments({"--idle", "500ms", "--log", "json"}), GetParam().listen};
  std::vector<client> talkers, silent;
  for (int i = 0; i < 20; ++i) {
    talkers.emplace_back(server.host(), server.port());
    silent.emplace_back(server.host(), server.port());
    ASSERT_TRUE(talkers.back().echoes("a"));
    ASSERT_TRUE(silent.back().echoes("b"));
  }
  server.signal(SIGSTOP);
  std::this_thread::sleep_for(1500ms);  // three limits; nothing can be awaited of a stopped process
  for (client& c : talkers) c.send("I spoke");
  server.signal(SIGCONT);
  for (client& c : talkers) EXPECT_EQ(c.receive(7), "I spoke");
  for (client& c : silent) {
    while (c.wait_for_end(20ms) == client::end::neither)
      for (client& talker : talkers) ASSERT_TRUE(talker.echoes("alive"));
  }
  for (client& c : talkers) EXPECT_TRUE(c.echoes("alive"));
}

TEST(EchoServerConnections, AResetIsToldAsOne) {
  echo_server server{{"--log", "json"}};
  client c{server.host(), server.port()};
  ASSERT_TRUE(c.echoes("x"));
  c.reset();
  const auto closed = json::parse(server.line_with("\"close\"").value_or("{}"));
  EXPECT_EQ(closed["reason"], "peer reset");
}

TEST(EchoServerConnections, AHalfClosedPeerGetsAllItsBytesAndThenTheEnd) {
  echo_server server{{"--log", "json"}};
  client c{server.host(), server.port()};
  const std::string bytes(300'000, 'h');
  std::thread sender{[&] {
    c.send(bytes);
    c.finish_sending();
  }};
  EXPECT_EQ(c.receive(bytes.size()), bytes);
  EXPECT_EQ(c.wait_for_end(patience), client::end::closed);
  sender.join();
  const auto closed = json::parse(server.line_with("\"close\"").value_or("{}"));
  EXPECT_EQ(closed["reason"], "peer closed");
  EXPECT_EQ(closed["rx_bytes"], bytes.size());
  EXPECT_EQ(closed["tx_bytes"], bytes.size());
}

// Sends without reading until the way is full, and says how much that took.
std::size_t fill(const client& c, const std::string& chunk) {
  std::size_t sent = 0;
  for (;;) {
    const ssize_t n = ::send(c.fd(), chunk.data(), chunk.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<std::size_t>(n);
      continue;
    }
    pollfd waiting{c.fd(), POLLOUT, 0};
    if (poll(&waiting, 1, 300) != 1) return sent;
  }
}

TEST(EchoServerConnections, APeerThatDoesNotReadCannotMakeTheServerGrow) {
  echo_server server{{"--idle", "0s"}};
  std::vector<client> peers;
  for (int i = 0; i < 10; ++i) peers.emplace_back(server.host(), server.port());
  ASSERT_TRUE(peers.back().echoes("warm"));
  const std::size_t before = server.resident();
  const std::string chunk(256 * 1024, 'm');
  std::vector<std::size_t> sent;
  for (client& c : peers) sent.push_back(fill(c, chunk));
  EXPECT_LT(server.resident() - before, 10u * 1024 * 1024) << "64 KiB a peer and some slack";
  // And nothing is lost: who reads at last gets every byte.
  for (std::size_t i = 0; i < peers.size(); ++i) {
    ASSERT_GT(sent[i], 100'000u);
    EXPECT_EQ(peers[i].receive(sent[i]).size(), sent[i]);
  }
  EXPECT_TRUE(peers.front().echoes("after"));
}

TEST(EchoServerConnections, APeerThatDoesNotReadIsIdleOnceNothingMoves) {
  echo_server server{{"--idle", "1s", "--tick", "10ms", "--log", "json"}};
  client c{server.host(), server.port()};
  ASSERT_GT(fill(c, std::string(256 * 1024, 'f')), 0u);
  const auto closed = json::parse(server.line_with("\"close\"").value_or("{}"));
  EXPECT_EQ(closed["reason"], "idle");
  EXPECT_GE(closed["idle_ms"], 1000.0);
}

TEST(EchoServerConnections, ASlowReaderIsNotIdleWhileItReads) {
  echo_server server{{"--idle", "600ms", "--tick", "10ms"}};
  client c{server.host(), server.port()};
  const std::size_t sent = fill(c, std::string(256 * 1024, 's'));
  // It sends nothing and reads a bit every quarter of a limit, for four limits: bytes are moving.
  std::size_t got = 0;
  for (int i = 0; i < 16; ++i) {
    got += c.receive(sent / 20).size();
    std::this_thread::sleep_for(150ms);
  }
  got += c.receive(sent - got).size();
  EXPECT_EQ(got, sent);
}

TEST(EchoServerConnections, ZeroIdleIsNever) {
  echo_server server{{"--idle", "0s", "--tick", "1ms"}};
  client c{server.host(), server.port()};
  EXPECT_EQ(c.wait_for_end(1s), client::end::neither);
  EXPECT_TRUE(c.echoes("still"));
}

TEST(EchoServerConnections, BeyondTheLimitTheyWaitUntilOneCloses) {
  echo_server server{{"--max-connections", "2", "--idle", "0s"}};
  client a{server.host(), server.port()};
  client b{server.host(), server.port()};
  ASSERT_TRUE(a.echoes("a"));
  ASSERT_TRUE(b.echoes("b"));
  client c{server.host(), server.port()};  // the kernel completes it
  client d{server.host(), server.port()};
  c.send("c");
  EXPECT_EQ(c.wait_for_end(300ms), client::end::neither);
  a.close();
  EXPECT_EQ(c.receive(1), "c");
  b.close();
  EXPECT_TRUE(d.echoes("d"));
  server.signal(SIGTERM);
  const auto how = server.wait();
  EXPECT_EQ(how.exit_status, 0);
  EXPECT_NE(how.err.find("limit"), std::string::npos) << how.err;
}

TEST(EchoServerLog, TellsEachEventAsAnObjectALine) {
  echo_server server{{"--log", "json", "--idle", "300ms", "--tick", "10ms"}};
  client c{server.host(), server.port()};
  ASSERT_TRUE(c.echoes("four"));
  EXPECT_EQ(c.wait_for_end(patience), client::end::closed);
  const auto open = json::parse(server.line().value_or("{}"));
  EXPECT_EQ(open["event"], "open");
  EXPECT_EQ(open["id"], 1);
  EXPECT_TRUE(open["peer"].get<std::string>().starts_with("127.0.0.1:"));
  const auto closed = json::parse(server.line().value_or("{}"));
  EXPECT_EQ(closed["event"], "close");
  EXPECT_EQ(closed["id"], 1);
  EXPECT_EQ(closed["peer"], open["peer"]);
  EXPECT_EQ(closed["reason"], "idle");
  EXPECT_GE(closed["idle_ms"], 300.0);
  EXPECT_GE(closed["late_ms"], 0.0);
  EXPECT_EQ(closed["rx_bytes"], 4);
  EXPECT_EQ(closed["tx_bytes"], 4);
  server.signal(SIGINT);
  const auto summary = json::parse(server.line_with("summary").value_or("{}"));
  EXPECT_EQ(summary["event"], "summary");
  EXPECT_EQ(summary["accepted"], 1);
  EXPECT_EQ(summary["closed"], json({{"idle", 1}}));
  EXPECT_EQ(summary["refreshes"], 1);
  EXPECT_TRUE(summary.contains("relinks"));
  EXPECT_EQ(summary["latest_close_ms"], closed["late_ms"]);
  EXPECT_EQ(server.wait().exit_status, 0);
}

TEST(EchoServerLog, SaysListeningFirst) {
  process server{{ECHO_SERVER, "--listen", "127.0.0.1:0"}};
  EXPECT_TRUE(server.line().value_or("").starts_with("listening on 127.0.0.1:"));
  process quiet{{ECHO_SERVER, "--listen", "[::1]:0", "--quiet"}};
  EXPECT_TRUE(quiet.line().value_or("").starts_with("listening on [::1]:"));
  process with_json{{ECHO_SERVER, "--listen", "127.0.0.1:0", "--log", "json"}};
  EXPECT_EQ(json::parse(with_json.line().value_or("{}"))["event"], "listening");
}

TEST(EchoServerLog, QuietIsSilentAboutConnections) {
  echo_server server{{"--quiet", "--idle", "100ms", "--tick", "10ms"}};
  client c{server.host(), server.port()};
  EXPECT_EQ(c.wait_for_end(patience), client::end::closed);
  server.signal(SIGTERM);
  const auto lines = server.rest();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("summary: accepted 1; closed: idle 1;")) << lines[0];
  EXPECT_EQ(server.wait().exit_status, 0);
}

TEST(EchoServerLog, KeepsALineUpToDateOnATerminal) {
  echo_server server{{"--idle", "0s"}, "127.0.0.1:0", output::terminal};
  client c{server.host(), server.port()};
  ASSERT_TRUE(c.echoes("x"));
  EXPECT_TRUE(server.raw_until("1 open, 0 closed idle"));
}

TEST(EchoServerLog, LosesNoConnectionWhenNobodyReadsIt) {
  echo_server server{{}};
  server.stop_listening();
  for (int i = 0; i < 3; ++i) {
    client c{server.host(), server.port()};
    EXPECT_TRUE(c.echoes("x"));
  }
}

class EchoServerSignal : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Signals, EchoServerSignal, testing::Values(SIGINT, SIGTERM),
                         [](const auto& i) { return i.param == SIGINT ? "SIGINT" : "SIGTERM"; });

TEST_P(EchoServerSignal, ClosesWhatIsOpenSaysSoAndExits0) {
  echo_server server{{"--log", "json"}};
  client a{server.host(), server.port()};
  client b{server.host(), server.port()};
  ASSERT_TRUE(a.echoes("a"));
  ASSERT_TRUE(b.echoes("b"));
  server.signal(GetParam());
  for (client* c : {&a, &b}) EXPECT_EQ(c->wait_for_end(patience), client::end::closed);
  a.close();
  b.close();
  const auto lines = server.rest();
  ASSERT_GE(lines.size(), 3u);
  const std::string reason = GetParam() == SIGINT ? "shutdown" : "drain";
  EXPECT_EQ(json::parse(lines[lines.size() - 2])["reason"], reason);
  EXPECT_EQ(json::parse(lines.back())["closed"], json({{reason, 2}}));
  const auto how = server.wait();
  EXPECT_EQ(how.exit_status, 0);
  EXPECT_EQ(how.err, "");
}

TEST(EchoServerSignals, ASecondOneEndsItThoughNobodyReadsWhatItSays) {
  echo_server server{{}};
  // Lines enough to fill the pipe of its output, so that it waits for us to read.
  for (int i = 0; i < 1500; ++i) client{server.host(), server.port()}.close();
  server.signal(SIGINT);
  std::this_thread::sleep_for(200ms);  // it cannot say that it has seen the first
  server.signal(SIGTERM);
  const auto how = server.wait();
  EXPECT_EQ(how.signal, SIGTERM) << how.exit_status;
}

TEST(EchoServerSignals, TwoAtOnceEndItAsWell) {
  echo_server server{{}};
  server.signal(SIGSTOP);
  server.signal(SIGINT);
  server.signal(SIGTERM);
  server.signal(SIGCONT);
  const auto how = server.wait();
  EXPECT_TRUE(how.exit_status == 0 || how.signal != 0) << how.exit_status;
}

}  // namespace
}  // namespace idlewheel::test
