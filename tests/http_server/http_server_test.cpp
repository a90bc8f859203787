// http_server_test.cpp - the HTTP server as a process, over real TCP: what it answers, and by which
// limit each kind of bad client ends.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "tests/support/client.hpp"
#include "tests/support/process.hpp"
#include "tests/support/server_log.hpp"

namespace idlewheel::test {
namespace {

using std::chrono::milliseconds;

struct http_server : logging_server {
  explicit http_server(std::vector<std::string> arguments = {})
      : logging_server{{HTTP_SERVER}, std::move(arguments)} {}
};

class HttpServer : public testing::TestWithParam<const char*> {  // the refresh mode
 protected:
  static std::vector<std::string> arguments(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--refresh", GetParam(), "--tick", "10ms"});
    return more;
  }
  static std::string get(const std::string& target, const std::string& more = "") {
    return "GET " + target + " HTTP/1.1\r\nHost: test\r\n" + more + "\r\n";
  }
  // All that comes until the server ends the connection.
  static std::string all_of(client& c) {
    std::string all;
    for (;;) {
      const std::string more = c.receive(1);
      if (more.empty()) return all;
      all += more;
    }
  }
  // The head of what comes, if it has begun to; does not wait for it to begin.
  static std::string answer_so_far(client& c) {
    char byte = 0;
    return recv(c.fd(), &byte, 1, MSG_DONTWAIT) == 1 ? byte + one_of(c).head : std::string{};
  }
  // Sends a byte now and then until the server has something to say.
  static std::string trickle_until_answered(client& c) {
    std::string answer;
    for (const auto begin = steady::now(); answer.empty() && steady::now() - begin < patience;) {
      c.send("x");
      std::this_thread::sleep_for(20ms);
      answer = answer_so_far(c);
    }
    return answer;
  }
  // One response: its head, and the body that its Content-Length promises.
  struct response {
    std::string head;
    std::string body;
    int status() const { return head.size() > 12 ? std::stoi(head.substr(9, 3)) : 0; }
    bool has(const std::string& text) const { return head.find(text) != std::string::npos; }
  };
  static response one_of(client& c) {
    response r;
    while (!r.head.ends_with("\r\n\r\n")) {
      const std::string more = c.receive(1);
      if (more.empty()) return r;
      r.head += more;
    }
    const std::size_t length = r.head.find("Content-Length: ");
    if (length != std::string::npos) r.body = c.receive(std::stoul(r.head.substr(length + 16)));
    return r;
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, HttpServer, testing::Values("relink", "deferred"),
                         [](const auto& i) { return std::string{i.param}; });

TEST_P(HttpServer, AnswersOneRequestAfterTheOtherOnOneConnection) {
  http_server server{arguments({"--keep-alive", "60s"})};
  client c{server.host(), server.port()};
  c.send(get("/"));
  const response hello = one_of(c);
  EXPECT_EQ(hello.status(), 200);
  EXPECT_EQ(hello.body, "hello\n");
  EXPECT_TRUE(hello.has("Keep-Alive: timeout=59\r\n")) << hello.head;
  c.send("HEAD /large HTTP/1.1\r\nHost: test\r\n\r\n");
  std::string head;
  while (!head.ends_with("\r\n\r\n")) head += c.receive(1);
  EXPECT_NE(head.find("Content-Length: 16777216"), std::string::npos);
  c.send("\r\n" + get("/nowhere"));
  EXPECT_EQ(one_of(c).status(), 404);
  c.send("POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\n12345");
  EXPECT_EQ(one_of(c).body, "5 bytes\n");
  c.send(
      "POST /upload HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
  EXPECT_EQ(one_of(c).body, "7 bytes\n");
  c.send(get("/large?bytes=1000000"));
  EXPECT_EQ(one_of(c).body.size(), 1'000'000u);
  c.send(get("/slow?ms=x"));
  EXPECT_EQ(one_of(c).status(), 400);
  c.send(get("/", "Connection: close\r\n"));
  EXPECT_TRUE(one_of(c).has("Connection: close"));
  EXPECT_EQ(c.wait_for_end(patience), client::end::closed);
}

TEST_P(HttpServer, AnswersPipelinedRequestsInOrder) {
  http_server server{arguments()};
  client c{server.host(), server.port()};
  c.send(get("/slow?ms=50") + get("/") + get("/large?bytes=300000") + get("/nowhere") +
         "POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc" + get("/"));
  EXPECT_EQ(one_of(c).body, "slow, but here\n");
  EXPECT_EQ(one_of(c).body, "hello\n");
  EXPECT_EQ(one_of(c).body.size(), 300'000u);
  EXPECT_EQ(one_of(c).status(), 404);
  EXPECT_EQ(one_of(c).body, "3 bytes\n");
  EXPECT_EQ(one_of(c).body, "hello\n");
}

TEST_P(HttpServer, ALateHeaderIsTold408HoweverItTrickles) {
  http_server server{arguments({"--header", "400ms"})};
  client c{server.host(), server.port()};
  const auto begin = steady::now();
  c.send("GET / HTTP/1.1\r\nX: ");
  const std::string answer = trickle_until_answered(c);
  EXPECT_GE(steady::now() - begin, 400ms);
  EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 408");
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  EXPECT_NE(c.wait_for_end(patience), client::end::neither);
  c.close();
  EXPECT_EQ(server.next_reason(), "header");
}

TEST_P(HttpServer, WhoNeverSaysAnythingIsClosedWithoutAWord) {
  http_server server{arguments({"--header", "300ms"})};
  const auto begin = steady::now();
  client c{server.host(), server.port()};
  EXPECT_EQ(all_of(c), "");
  EXPECT_GE(steady::now() - begin, 300ms);
  EXPECT_EQ(server.next_reason(), "header");
}

TEST_P(HttpServer, KeepAliveEndsInSilenceAndTheHeaderClockStartsAtTheFirstByte) {
  http_server server{arguments({"--header", "300ms", "--keep-alive", "900ms"})};
  client c{server.host(), server.port()};
  for (int request = 0; request < 3; ++request) {
    std::this_thread::sleep_for(request == 0 ? 0ms : 500ms);  // longer than the header's limit
    c.send(get("/"));
    EXPECT_EQ(one_of(c).body, "hello\n") << request;
  }
  EXPECT_EQ(all_of(c), "");
  EXPECT_GE(steady::now() - c.last_sent(), 900ms);
  EXPECT_EQ(server.next_reason(), "keep_alive");
}

TEST_P(HttpServer, ABodyThatTricklesEndsAtItsDeadline) {
  http_server server{arguments({"--body", "500ms", "--min-rate-in", "0"})};
  client c{server.host(), server.port()};
  c.send("POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n");
  const auto begin = steady::now();
  const std::string answer = trickle_until_answered(c);
  EXPECT_GE(steady::now() - begin, 500ms);
  EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 408");
  c.close();
  EXPECT_EQ(server.next_reason(), "body");
}

TEST_P(HttpServer, ABodyBelowTheRateEndsAndOneAboveItPasses) {
  http_server server{arguments({"--min-rate-in", "1000", "--grace", "500ms"})};
  client slow{server.host(), server.port()}, honest{server.host(), server.port()};
  const std::string head = "POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\n";
  const auto begin = steady::now();
  slow.send(head);
  honest.send(head);
  std::size_t sent = 0;
  std::string answer;
  for (; sent < 100'000; sent += 5000) {
    honest.send(std::string(5000, 'x'));
    if (answer.empty()) {
      slow.send("x");
      answer = answer_so_far(slow);
      if (!answer.empty()) {
        EXPECT_GE(steady::now() - begin, 500ms);
      }
    }
    std::this_thread::sleep_for(60ms);
  }
  EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 408");
  EXPECT_EQ(one_of(honest).body, "100000 bytes\n");
  slow.close();
  EXPECT_EQ(server.next_reason(), "rate_in");
}

TEST_P(HttpServer, WhoNeverReadsIsResetByWriteStall) {
  http_server server{arguments({"--write-stall", "400ms", "--min-rate-out", "0"})};
  client c{server.host(), server.port()};
  c.send(get("/large?bytes=100000000"));
  EXPECT_EQ(server.next_reason(), "write_stall");
  EXPECT_GE(steady::now() - c.last_sent(), 400ms);
  EXPECT_LT(all_of(c).size(), 100'000'000u);
}

TEST_P(HttpServer, WhoReadsTooSlowlyEndsByTheRate) {
  http_server server{
      arguments({"--write-stall", "60s", "--min-rate-out", "100000000", "--grace", "300ms"})};
  client c{server.host(), server.port()};
  c.send(get("/large?bytes=1000000000"));
  bool closed = false;
  std::thread reader{[&] {
    while (!closed && c.receive(2000).size() == 2000) std::this_thread::sleep_for(5ms);
  }};
  EXPECT_EQ(server.next_reason(), "rate_out");
  closed = true;
  reader.join();
}

TEST_P(HttpServer, WhoReadsSlowlyButReadsGetsEverything) {
  http_server server{arguments({"--write-stall", "500ms", "--min-rate-out", "1000"})};
  client c{server.host(), server.port()};
  const std::size_t size = 12'000'000;
  c.send(get("/large?bytes=" + std::to_string(size), "Connection: close\r\n"));
  std::size_t got = 0;
  for (;;) {
    const std::size_t more = c.receive(400'000).size();
    got += more;
    if (more < 400'000) break;
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_GE(got, size);
  c.close();
  EXPECT_EQ(server.next_reason(), "peer closed");
}

TEST_P(HttpServer, ASlowHandlerIsNobodysFault) {
  http_server server{arguments(
      {"--header", "200ms", "--body", "200ms", "--keep-alive", "200ms", "--write-stall", "200ms"})};
  client c{server.host(), server.port()};
  c.send(get("/slow?ms=900"));
  EXPECT_EQ(one_of(c).body, "slow, but here\n");
}

TEST_P(HttpServer, BehindASlowHandlerNothingIsReadHoweverMuchIsSent) {
  // The second slow request is begun by the end of the first one.
  http_server server{arguments()};
  client c{server.host(), server.port()};
  c.send(get("/slow?ms=50") + get("/slow?ms=60000"));
  EXPECT_EQ(one_of(c).body, "slow, but here\n");
  const std::string flood(1 << 20, 'x');
  std::size_t taken = 0;
  for (const auto begin = steady::now(); steady::now() - begin < 1s && taken < 100'000'000;) {
    const ssize_t n = ::send(c.fd(), flood.data(), flood.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) taken += static_cast<std::size_t>(n);
  }
  EXPECT_LT(taken, 50'000'000u) << "the kernel's buffers hold less";
}

TEST_P(HttpServer, AnEmptyLineAfterARequestLeavesNoLimitOff) {
  http_server server{arguments({"--keep-alive", "300ms", "--header", "60s"})};
  client c{server.host(), server.port()};
  c.send(get("/") + "\r\n");
  EXPECT_EQ(one_of(c).body, "hello\n");
  EXPECT_EQ(all_of(c), "");
  EXPECT_EQ(server.next_reason(), "keep_alive");
}

TEST_P(HttpServer, NoPartOfARequestMakesItGrow) {
  http_server server{arguments({"--min-rate-in", "0"})};
  const std::string chunked =
      "POST /upload HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& endless : {chunked + "1;a=", chunked + "0\r\nX: "}) {
    client c{server.host(), server.port()};
    c.send(endless);
    const std::string more(1 << 20, 'x');
    for (int i = 0; i < 60; ++i) c.send(more);  // until it is refused; then nobody takes it
    EXPECT_NE(c.wait_for_end(patience), client::end::neither);
    c.close();
    EXPECT_EQ(server.next_reason(), "status 431");
  }
  EXPECT_LT(server.resident(), 50u * 1024 * 1024);
}

TEST_P(HttpServer, AfterASlowHandlerWhoDoesNotReadIsIdleAsEver) {
  http_server server{arguments({"--idle", "500ms", "--write-stall", "0s", "--min-rate-out", "0"})};
  client c{server.host(), server.port()};
  c.send(get("/slow?ms=50") + get("/large?bytes=100000000"));
  EXPECT_EQ(server.next_reason(), "idle");
}

TEST_P(HttpServer, KeepsTheSmallRulesOfHttp) {
  http_server server{arguments()};
  client c{server.host(), server.port()};
  c.send("POST /upload HTTP/1.1\r\nHost: t\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n");
  EXPECT_EQ(one_of(c).status(), 100);
  c.send("x");
  EXPECT_EQ(one_of(c).body, "1 bytes\n");
  c.send("GET http://t/ HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(one_of(c).body, "hello\n");
  c.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(one_of(c).status(), 400);
  client old{server.host(), server.port()};
  old.send("POST /upload HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx");
  EXPECT_EQ(one_of(old).status(), 200);
}

// Draining ----------------------------------------------------------------------------------------

TEST_P(HttpServer, DrainingAnswersWhatWasReadAndCutsNoReply) {
  http_server server{arguments({"--drain-window", "100ms", "--lame-duck", "300ms"})};
  client idle{server.host(), server.port()}, slow{server.host(), server.port()},
      large{server.host(), server.port()};
  idle.send(get("/healthz"));
  EXPECT_EQ(one_of(idle).body, "ok\n");
  slow.send(get("/slow?ms=800"));
  constexpr std::size_t size = 50'000'000;
  large.send(get("/large?bytes=" + std::to_string(size)));
  const std::string begin = large.receive(1000);
  server.signal(SIGTERM);
  EXPECT_EQ(idle.wait_for_end(patience), client::end::closed);
  client late{server.host(), server.port()};
  late.send(get("/healthz"));
  const response draining = one_of(late);
  EXPECT_EQ(draining.status(), 503);
  EXPECT_TRUE(draining.has("Connection: close"));
  const response answer = one_of(slow);
  EXPECT_EQ(answer.body, "slow, but here\n");
  EXPECT_TRUE(answer.has("Connection: close"));
  EXPECT_EQ(all_of(slow), "");
  // It reads slowly, for longer than the window and the lame duck.
  std::size_t got = begin.size();
  for (;;) {
    const std::size_t n = large.receive(5'000'000).size();
    got += n;
    if (n < 5'000'000) break;
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_GT(got, size);
  for (client* c : {&idle, &slow, &large, &late}) c->close();
  EXPECT_EQ(server.wait().exit_status, 0);
}

TEST_P(HttpServer, TheGraceOfADrainEndsWhoTakesTooLong) {
  http_server server{arguments({"--drain-window", "0s", "--drain-grace", "300ms"})};
  client slow{server.host(), server.port()};
  slow.send(get("/slow?ms=60000"));
  client other{server.host(), server.port()};
  other.send(get("/"));
  EXPECT_EQ(one_of(other).body, "hello\n");  // so the other request has been read, too
  const auto begin = steady::now();
  server.signal(SIGTERM);
  EXPECT_NE(slow.wait_for_end(patience), client::end::neither);
  EXPECT_GE(steady::now() - begin, 300ms);
  slow.close();
  other.close();
  EXPECT_EQ(server.wait().exit_status, 0);
}

TEST_P(HttpServer, RefusesWhatIsNotHttp) {
  http_server server{arguments()};
  client nonsense{server.host(), server.port()}, huge{server.host(), server.port()};
  nonsense.send("\x16\x03\x01 hello\r\n\r\n");
  EXPECT_EQ(one_of(nonsense).status(), 400);
  EXPECT_NE(nonsense.wait_for_end(patience), client::end::neither);
  huge.send("GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x'));
  EXPECT_EQ(one_of(huge).status(), 431);
  EXPECT_NE(huge.wait_for_end(patience), client::end::neither);
}

TEST_P(HttpServer, LingersForAPeerThatDoesNotHangUp) {
  http_server server{arguments({"--header", "100ms", "--linger", "400ms"})};
  client c{server.host(), server.port()};
  c.send("GET");
  EXPECT_EQ(one_of(c).status(), 408);
  const auto told = steady::now();
  EXPECT_EQ(server.next_reason(), "header");  // when it has closed
  EXPECT_GE(steady::now() - told, 300ms);
}

TEST_P(HttpServer, WithoutLimitsNothingIsClosed) {
  http_server server{arguments({"--no-limits", "--header", "50ms"})};
  client c{server.host(), server.port()};
  c.send("GET / HT");
  EXPECT_EQ(c.wait_for_end(700ms), client::end::neither);
  c.send("TP/1.1\r\nHost: test\r\n\r\n");
  EXPECT_EQ(one_of(c).body, "hello\n");
}

TEST(HttpServerOptions, WrongOnesAreRefusedInOneLine) {
  for (const auto& [option, value] : std::vector<std::pair<std::string, std::string>>{
           {"--header", "5"}, {"--keep-alive", "-1s"}, {"--grace", "0s"}, {"--min-rate-in", "x"}}) {
    process refused{{HTTP_SERVER, option, value}};
    const auto how = refused.wait();
    EXPECT_EQ(how.exit_status, 2) << option;
    EXPECT_NE(how.err.find(option), std::string::npos) << how.err;
    EXPECT_NE(how.err.find(value), std::string::npos) << how.err;
    EXPECT_EQ(std::count(how.err.begin(), how.err.end(), '\n'), 1) << how.err;
  }
}

}  // namespace
}  // namespace idlewheel::test
