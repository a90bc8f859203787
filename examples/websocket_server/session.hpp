// session.hpp - one WebSocket connection: the handshake, then an echo of every message.
//
// Pings keep two things apart: a peer that is gone does not answer them (peer_dead), and one that
// answers but says nothing is idle (message_idle).
#pragma once
#include <wslay/wslay.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "connection.hpp"
#include "handshake.hpp"

namespace websocket_server {

struct limits {
  idlewheel::timeout_policy opening;  // until the handshake is done: whom could we ping?
  idlewheel::timeout_policy open;
  std::size_t most_message = 1 << 20;
};

class session final : public example::connection {
 public:
  session(example::server& owner, std::uint64_t id, const limits& all);

 private:
  struct free_frames {
    void operator()(wslay_event_context* context) const { wslay_event_context_free(context); }
  };
  static const wslay_event_callbacks callbacks;

  void on_bytes(const char* data, std::size_t size) override;
  void on_drained() override;
  void on_drain() override;
  idlewheel::verdict on_timeout(const idlewheel::expiry& out) noexcept override;
  void on_ping_due() noexcept override;
  void on_age_due() noexcept override;

  void open();                          // when the request is whole
  void receive(std::string_view data);  // frames
  void on_message(const wslay_event_on_msg_recv_arg& message);
  void flush();  // as much as the peer takes
  void queue(std::uint8_t opcode, std::string_view data);
  void begin_close(std::uint16_t code, std::string_view why);

  std::optional<handshake> handshake_{std::in_place};
  std::unique_ptr<wslay_event_context, free_frames> frames_;
  const limits& limits_;
  std::string in_;        // of the handshake, not parsed yet
  std::string_view got_;  // of this read, not yet taken by frames_
  std::string out_;       // frames on their way to send()
  std::string ends_for_;  // why we have asked the peer to close
};

}  // namespace websocket_server
