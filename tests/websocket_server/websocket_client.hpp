// websocket_client.hpp - a WebSocket peer in a test's hand: every frame and every silence is its own.
#pragma once
#include <cstdint>
#include <string>

#include "tests/support/client.hpp"

namespace idlewheel::test {

enum class opcode : std::uint8_t {
  continuation = 0,
  text = 1,
  binary = 2,
  close = 8,
  ping = 9,
  pong = 10,
  none = 255  // nothing came
};

struct frame {
  opcode is = opcode::none;
  std::string payload;
  bool last = true;
  bool operator==(const frame&) const = default;
};

class websocket_client : public client {
 public:
  using client::client;

  static std::string handshake(const std::string& more = "", const std::string& target = "/echo") {
    return "GET " + target +
           " HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" +
           more + "\r\n";
  }

  // The head of an HTTP response.
  std::string head() {
    std::string all;
    while (!all.ends_with("\r\n\r\n")) {
      const std::string more = receive(1);
      if (more.empty()) break;
      all += more;
    }
    return all;
  }

  // Sends the handshake and reads the answer; its status.
  int open() {
    send(handshake());
    const std::string answer = head();
    return answer.size() > 12 ? std::stoi(answer.substr(9, 3)) : 0;
  }

  static std::string bytes_of(const frame& f, bool masked = true) {
    std::string all;
    all += static_cast<char>((f.last ? 0x80 : 0) | static_cast<int>(f.is));
    const std::size_t n = f.payload.size();
    const int mask_bit = masked ? 0x80 : 0;
    const int wide = n < 126 ? 0 : n < 65536 ? 2 : 8;
    all += static_cast<char>(mask_bit | (wide == 0 ? static_cast<int>(n) : wide == 2 ? 126 : 127));
    for (int i = wide - 1; i >= 0; --i) all += static_cast<char>(n >> (8 * i) & 0xff);
    if (!masked) return all + f.payload;
    const std::string mask = "\x12\x34\x56\x78";
    all += mask;
    for (std::size_t i = 0; i < n; ++i) all += static_cast<char>(f.payload[i] ^ mask[i % 4]);
    return all;
  }
  void send_frame(const frame& f) { send(bytes_of(f)); }

  frame receive_frame() {
    const std::string start = receive(2);
    if (start.size() < 2) return {};
    frame f{
        .is = static_cast<opcode>(start[0] & 0x0f), .payload = {}, .last = (start[0] & 0x80) != 0};
    std::size_t n = static_cast<unsigned char>(start[1]);
    if (n >= 126) {
      const std::string wide = receive(n == 126 ? 2 : 8);
      n = 0;
      for (const char byte : wide) n = n << 8 | static_cast<unsigned char>(byte);
    }
    f.payload = receive(n);
    return f;
  }
  // The next frame that is no ping; answers those that come before it.
  frame receive_answering() {
    for (;;) {
      frame f = receive_frame();
      if (f.is != opcode::ping) return f;
      send_frame({.is = opcode::pong, .payload = f.payload});
    }
  }

  // A Close frame's payload.
  static std::string status(int code) {
    return {static_cast<char>(code >> 8), static_cast<char>(code & 0xff)};
  }
};

}  // namespace idlewheel::test
