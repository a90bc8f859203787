// websocket_server_test.cpp - the WebSocket server as a process, over real TCP, against a client that
// keeps the rules of RFC 6455, breaks them, or falls silent.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/support/server_log.hpp"
#include "tests/websocket_server/websocket_client.hpp"

namespace idlewheel::test {
namespace {

struct websocket_server : logging_server {
  explicit websocket_server(std::vector<std::string> arguments = {})
      : logging_server{{WEBSOCKET_SERVER}, std::move(arguments)} {}
};

constexpr client::end closed = client::end::closed;

TEST(WebSocketServer, AnswersTheHandshakeOfTheRfc) {
  websocket_server server;
  websocket_client c{server.host(), server.port()};
  c.send(c.handshake());
  const std::string head = c.head();
  EXPECT_EQ(head.substr(0, 12), "HTTP/1.1 101");
  EXPECT_NE(head.find("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), std::string::npos)
      << head;
}

TEST(WebSocketServer, EchoesMessagesOfEveryKindAndSize) {
  websocket_server server;
  websocket_client c{server.host(), server.port()};
  ASSERT_EQ(c.open(), 101);
  for (const std::size_t size : {0u, 1u, 125u, 126u, 65535u, 65536u, 1u << 20}) {
    const frame sent{.is = opcode::binary, .payload = std::string(size, '\xfe')};
    std::thread sender{[&] { c.send_frame(sent); }};
    EXPECT_TRUE(c.receive_frame() == sent) << size;
    sender.join();
  }
  c.send_frame({.is = opcode::text, .payload = "gr\xc3\xbc", .last = false});
  c.send_frame({.is = opcode::ping, .payload = "between"});
  c.send_frame({.is = opcode::continuation, .payload = "n"});
  EXPECT_TRUE(c.receive_frame() == (frame{.is = opcode::pong, .payload = "between"}));
  EXPECT_TRUE(c.receive_frame() == (frame{.is = opcode::text, .payload = "gr\xc3\xbcn"}));
}

TEST(WebSocketServer, TakesFramesThatFollowTheHandshakeAtOnce) {
  websocket_server server;
  websocket_client c{server.host(), server.port()};
  const frame early{.is = opcode::text, .payload = "early"};
  c.send(c.handshake() + c.bytes_of(early) + c.bytes_of(early));
  EXPECT_EQ(c.head().substr(0, 12), "HTTP/1.1 101");
  EXPECT_TRUE(c.receive_frame() == early);
  EXPECT_TRUE(c.receive_frame() == early);
}

TEST(WebSocketServer, TakesAHandshakeAndAFrameByteByByte) {
  websocket_server server;
  websocket_client c{server.host(), server.port()};
  for (const char byte : c.handshake()) c.send({byte});
  EXPECT_EQ(c.head().substr(0, 12), "HTTP/1.1 101");
  const frame sent{.is = opcode::text, .payload = std::string(200, 'x')};
  for (const char byte : c.bytes_of(sent)) c.send({byte});
  EXPECT_TRUE(c.receive_frame() == sent);
}

TEST(WebSocketServer, ClosesWithTheCodeOfThePeer) {
  websocket_server server;
  websocket_client c{server.host(), server.port()};
  ASSERT_EQ(c.open(), 101);
  c.send_frame({.is = opcode::close, .payload = c.status(1000) + "bye"});
  const frame answer = c.receive_frame();
  EXPECT_EQ(answer.is, opcode::close);
  EXPECT_EQ(answer.payload.substr(0, 2), c.status(1000));
  EXPECT_EQ(c.wait_for_end(patience), closed);
  c.close();
  EXPECT_EQ(server.next_reason(), "peer closed");
}

TEST(WebSocketServer, TellsWhoBreaksTheRulesWhichOne) {
  struct broken {
    std::string bytes;
    int code;
  };
  const auto f = [](opcode is, std::string payload, bool last = true) {
    return frame{.is = is, .payload = std::move(payload), .last = last};
  };
  websocket_server server{{"--max-message", "1000"}};
  for (const broken& b : {
           broken{websocket_client::bytes_of(f(opcode::text, "unmasked"), false), 1002},
           broken{websocket_client::bytes_of(f(opcode::continuation, "of nothing")), 1002},
           broken{websocket_client::bytes_of(f(opcode{3}, "unknown")), 1002},
           broken{websocket_client::bytes_of(f(opcode::ping, "in parts", false)), 1005},
           broken{websocket_client::bytes_of(f(opcode::text, "\xff no UTF-8")), 1007},
           broken{websocket_client::bytes_of(f(opcode::binary, std::string(1001, 'x'))), 1009},
       }) {
    websocket_client c{server.host(), server.port()};
    ASSERT_EQ(c.open(), 101);
    c.send(b.bytes);
    const frame answer = c.receive_frame();
    EXPECT_EQ(answer.is, opcode::close) << b.code;
    // 1005 stands for a Close that names none: so wslay answers what it cannot even take apart.
    EXPECT_EQ(answer.payload.substr(0, 2),
              b.code == 1005 ? std::string{} : websocket_client::status(b.code));
    EXPECT_EQ(c.wait_for_end(patience), closed);
    c.close();
    EXPECT_EQ(server.next_reason(), "refused " + std::to_string(b.code));
  }
}

TEST(WebSocketServer, RefusesWhatIsNoHandshake) {
  struct refused {
    std::string request;
    int status;
  };
  const auto without = [](const std::string& what) {
    std::string request = websocket_client::handshake();
    request.erase(request.find(what),
                  request.find("\r\n", request.find(what)) + 2 - request.find(what));
    return request;
  };
  websocket_server server;
  for (const refused& r : {
           refused{"GET / HTTP/1.1\r\nHost: test\r\n\r\n", 200},
           refused{"GET /echo HTTP/1.1\r\nHost: test\r\n\r\n", 426},
           refused{"GET /x HTTP/1.1\r\nHost: test\r\n\r\n", 404},
           refused{"DELETE / HTTP/1.1\r\nHost: test\r\n\r\n", 405},
           refused{websocket_client::handshake("", "/elsewhere"), 404},
           refused{without("Sec-WebSocket-Key"), 400},
           refused{without("Sec-WebSocket-Version"), 426},
           refused{without("Connection"), 400},
           refused{"GET /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;a=", 400},
           refused{"\x16\x03\x01\r\n\r\n", 400},
           refused{"GET /echo HTTP/1.1\r\nX: " + std::string(17'000, 'x'), 431},
       }) {
    websocket_client c{server.host(), server.port()};
    c.send(r.request);
    EXPECT_EQ(c.head().substr(9, 3), std::to_string(r.status)) << r.request.substr(0, 300);
    EXPECT_NE(c.wait_for_end(patience), client::end::neither);
  }
}

class WebSocketServerTimeouts : public testing::TestWithParam<const char*> {  // the refresh mode
 protected:
  static std::vector<std::string> arguments(std::vector<std::string> more) {
    more.insert(more.end(), {"--refresh", GetParam(), "--tick", "10ms"});
    return more;
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, WebSocketServerTimeouts, testing::Values("relink", "deferred"),
                         [](const auto& i) { return std::string{i.param}; });

TEST_P(WebSocketServerTimeouts, ASilentPeerIsPingedAndResetWhenItDoesNotAnswer) {
  websocket_server server{arguments({"--ping-after", "300ms", "--ping-timeout", "400ms"})};
  websocket_client c{server.host(), server.port()};
  ASSERT_EQ(c.open(), 101);
  EXPECT_EQ(c.receive_frame().is, opcode::ping);
  EXPECT_GE(steady::now() - c.last_sent(), 300ms);
  EXPECT_EQ(c.wait_for_end(patience), client::end::reset);
  EXPECT_GE(steady::now() - c.last_sent(), 700ms);
  EXPECT_EQ(server.next_reason(), "peer_dead");
}

TEST_P(WebSocketServerTimeouts, ManyPingsMayBeMissed) {
  websocket_server server{
      arguments({"--ping-after", "100ms", "--ping-timeout", "200ms", "--missed", "3"})};
  websocket_client c{server.host(), server.port()};
  ASSERT_EQ(c.open(), 101);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(c.receive_frame().is, opcode::ping) << i;
  EXPECT_EQ(c.wait_for_end(patience), client::end::reset);
  EXPECT_GE(steady::now() - c.last_sent(), 700ms);
  EXPECT_EQ(server.next_reason(), "peer_dead");
}

TEST_P(WebSocketServerTimeouts, WhoAnswersPingsStaysHoweverLittleItSays) {
  websocket_server server{arguments({"--ping-after", "50ms", "--ping-timeout", "5s"})};
  websocket_client c{server.host(), server.port()};
  ASSERT_EQ(c.open(), 101);
  for (int i = 0; i < 20; ++i) {
    const frame ping = c.receive_frame();
    ASSERT_EQ(ping.is, opcode::ping) << i;
    c.send_frame({.is = opcode::pong, .payload = ping.payload});
  }
  c.send_frame({.is = opcode::text, .payload = "still here"});
  EXPECT_EQ(c.receive_answering().payload, "still here");
}

TEST_P(WebSocketServerTimeouts, WhoAnswersPingsAndSaysNothingIsIdleAndTold) {
  websocket_server server{arguments({"--ping-after", "50ms", "--ping-timeout", "5s",
                                     "--message-idle", "600ms", "--linger", "10s"})};
  websocket_client c{server.host(), server.port()};
  ASSERT_EQ(c.open(), 101);
  c.send_frame({.is = opcode::text, .payload = "hello"});
  const auto said = c.last_sent();
  EXPECT_EQ(c.receive_answering().payload, "hello");
  const frame told = c.receive_answering();
  EXPECT_EQ(told.is, opcode::close);
  EXPECT_EQ(told.payload, c.status(1001) + "idle");
  EXPECT_GE(steady::now() - said, 600ms);
  c.send_frame({.is = opcode::close, .payload = c.status(1001)});
  EXPECT_EQ(c.wait_for_end(patience), closed);
  c.close();
  EXPECT_EQ(server.next_reason(), "message_idle");
}

TEST_P(WebSocketServerTimeouts, WhoDoesNotAnswerOurCloseIsWaitedForOnlySoLong) {
  websocket_server server{
      arguments({"--message-idle", "300ms", "--linger", "400ms", "--ping-after", "0s"})};
  websocket_client c{server.host(), server.port()};
  ASSERT_EQ(c.open(), 101);
  EXPECT_EQ(c.receive_frame().is, opcode::close);
  const auto told = steady::now();
  EXPECT_NE(c.wait_for_end(patience), client::end::neither);
  EXPECT_GE(steady::now() - told, 300ms);
  EXPECT_EQ(server.next_reason(), "message_idle");
}

TEST_P(WebSocketServerTimeouts, ControlFramesAndHalfMessagesAreNoMessages) {
  websocket_server server{arguments({"--message-idle", "500ms", "--ping-after", "0s"})};
  websocket_client c{server.host(), server.port()};
  ASSERT_EQ(c.open(), 101);
  const auto begin = c.last_sent();
  c.send_frame({.is = opcode::text, .payload = "half a", .last = false});
  frame got;
  do {
    c.send_frame({.is = opcode::ping, .payload = "me"});
    got = c.receive_frame();
    std::this_thread::sleep_for(20ms);
  } while (got.is == opcode::pong && steady::now() - begin < patience);
  EXPECT_EQ(got.is, opcode::close);
  EXPECT_GE(steady::now() - begin, 500ms);
}

TEST_P(WebSocketServerTimeouts, AnyByteAnswersAPing) {
  websocket_server server{arguments({"--ping-after", "200ms", "--ping-timeout", "1500ms"})};
  websocket_client c{server.host(), server.port()};
  ASSERT_EQ(c.open(), 101);
  const std::string slow = c.bytes_of({.is = opcode::text, .payload = "byte by byte"});
  for (const char byte : slow) {
    EXPECT_EQ(c.receive_frame().is, opcode::ping);
    c.send({byte});
  }
  EXPECT_EQ(c.receive_answering().payload, "byte by byte");
}

TEST_P(WebSocketServerTimeouts, ASlowHandshakeIsTold408HoweverItTrickles) {
  websocket_server server{arguments({"--handshake", "300ms"})};
  websocket_client slow{server.host(), server.port()};
  slow.send("GET /echo HTTP/1.1\r\nX: ");
  EXPECT_EQ(slow.head().substr(0, 12), "HTTP/1.1 408");
  EXPECT_GE(steady::now() - slow.last_sent(), 200ms);
  slow.close();
  EXPECT_EQ(server.next_reason(), "handshake");
}

TEST_P(WebSocketServerTimeouts, WhoNeverSaysAnythingIsClosedWithoutAWord) {
  websocket_server server{arguments({"--handshake", "300ms", "--ping-after", "100ms"})};
  websocket_client silent{server.host(), server.port()};
  EXPECT_EQ(silent.receive(1), "");
  EXPECT_GE(steady::now() - silent.last_sent(), 300ms);
  EXPECT_EQ(server.next_reason(), "handshake");
}

TEST_P(WebSocketServerTimeouts, TheHandshakesDeadlineIsGoneOnceItIsDone) {
  websocket_server server{arguments({"--handshake", "300ms", "--ping-after", "0s"})};
  websocket_client c{server.host(), server.port()};
  ASSERT_EQ(c.open(), 101);
  EXPECT_EQ(c.wait_for_end(800ms), client::end::neither);
  c.send_frame({.is = opcode::text, .payload = "still here"});
  EXPECT_EQ(c.receive_frame().payload, "still here");
}

TEST_P(WebSocketServerTimeouts, WhoTakesNothingOfItsEchoIsResetByWriteStall) {
  websocket_server server{arguments({"--write-stall", "500ms", "--ping-after", "60s"})};
  websocket_client c{server.host(), server.port()};
  ASSERT_EQ(c.open(), 101);
  const std::string flood =
      c.bytes_of({.is = opcode::binary, .payload = std::string(1 << 20, 'x')});
  std::thread sender{[&] {
    for (int i = 0; i < 30; ++i) c.send(flood);
  }};
  EXPECT_EQ(server.next_reason(), "write_stall");
  sender.join();
}

TEST_P(WebSocketServerTimeouts, ALongLifeEndsWithAWarning) {
  websocket_server server{arguments({"--max-age", "500ms", "--age-grace", "10s"})};
  websocket_client c{server.host(), server.port()};
  ASSERT_EQ(c.open(), 101);
  const frame told = c.receive_answering();
  EXPECT_EQ(told.is, opcode::close);
  EXPECT_EQ(told.payload.substr(0, 2), c.status(1001));
  c.send_frame({.is = opcode::close, .payload = c.status(1001)});
  EXPECT_EQ(c.wait_for_end(patience), closed);
  c.close();
  EXPECT_EQ(server.next_reason(), "max_age");
}

TEST_P(WebSocketServerTimeouts, DrainingTellsThePeersAndWaitsForThem) {
  websocket_server server{arguments({"--drain-window", "100ms"})};
  websocket_client polite{server.host(), server.port()}, rude{server.host(), server.port()};
  ASSERT_EQ(polite.open(), 101);
  ASSERT_EQ(rude.open(), 101);
  server.signal(SIGTERM);
  const frame told = polite.receive_frame();
  EXPECT_EQ(told.is, opcode::close);
  EXPECT_EQ(told.payload.substr(0, 2), polite.status(1001));
  polite.send_frame({.is = opcode::close, .payload = polite.status(1001)});
  EXPECT_EQ(polite.wait_for_end(patience), closed);
  polite.close();
  EXPECT_NE(rude.wait_for_end(patience), client::end::neither);
  rude.close();
  EXPECT_EQ(server.wait().exit_status, 0);
}

TEST(WebSocketServerOptions, WrongOnesAreRefusedInOneLine) {
  struct wrong {
    std::string option, value, named;
  };
  for (const wrong& w : {wrong{"--handshake", "5", "--handshake"}, wrong{"--missed", "0", "missed"},
                         wrong{"--max-message", "0", "--max-message"},
                         wrong{"--ping-timeout", "0s", "needs ping_timeout"}}) {
    process refused{{WEBSOCKET_SERVER, w.option, w.value}};
    const auto how = refused.wait();
    EXPECT_EQ(how.exit_status, 2) << w.option;
    EXPECT_NE(how.err.find(w.named), std::string::npos) << how.err;
    EXPECT_EQ(std::count(how.err.begin(), how.err.end(), '\n'), 1) << how.err;
  }
}

}  // namespace
}  // namespace idlewheel::test
