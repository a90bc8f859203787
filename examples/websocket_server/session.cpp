#include "session.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "server.hpp"

namespace websocket_server {
namespace {

using idlewheel::expiry_reason;
using idlewheel::phase;

constexpr std::size_t most_at_once = 64 * 1024;  // for one send()

const std::uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

}  // namespace

const wslay_event_callbacks session::callbacks{
    .recv_callback = [](wslay_event_context_ptr context, std::uint8_t* buffer, std::size_t size,
                        int, void* self) -> ssize_t {
      std::string_view& got = static_cast<session*>(self)->got_;
      if (got.empty()) {
        wslay_event_set_error(context, WSLAY_ERR_WOULDBLOCK);
        return -1;
      }
      const std::size_t n = std::min(size, got.size());
      std::memcpy(buffer, got.data(), n);
      got.remove_prefix(n);
      return static_cast<ssize_t>(n);
    },
    .send_callback = [](wslay_event_context_ptr context, const std::uint8_t* data, std::size_t size,
                        int, void* self) -> ssize_t {
      std::string& out = static_cast<session*>(self)->out_;
      if (out.size() >= most_at_once) {
        wslay_event_set_error(context, WSLAY_ERR_WOULDBLOCK);
        return -1;
      }
      out.append(reinterpret_cast<const char*>(data), size);
      return static_cast<ssize_t>(size);
    },
    .genmask_callback = nullptr,
    .on_frame_recv_start_callback = nullptr,
    .on_frame_recv_chunk_callback = nullptr,
    .on_frame_recv_end_callback = nullptr,
    .on_msg_recv_callback = [](wslay_event_context_ptr, const wslay_event_on_msg_recv_arg* message,
                               void* self) { static_cast<session*>(self)->on_message(*message); },
};

session::session(example::server& owner, std::uint64_t id, const limits& all)
    : connection{owner, id, all.opening, phase::handshake}, limits_{all} {}

void session::on_bytes(const char* data, std::size_t size) {
  if (frames_) return receive({data, size});
  in_.append(data, size);
  open();
}

void session::open() {
  const std::optional<answer> reply = handshake_->take(in_);
  if (!reply) return;
  handshake_.reset();
  send(reply->bytes);
  if (closing()) return;
  if (reply->status != 101) {
    if (reply->status >= 400) decide(fmt::format("status {}", reply->status));
    return say_goodbye();
  }
  wslay_event_context_ptr made = nullptr;
  if (wslay_event_context_server_init(&made, &callbacks, this) != 0) throw std::bad_alloc{};
  frames_.reset(made);
  wslay_event_config_set_max_recv_msg_length(made, limits_.most_message);
  timeouts().set_policy(limits_.open);
  timeouts().enter(phase::upgraded);
  receive(std::exchange(in_, {}));
}

void session::receive(std::string_view data) {
  got_ = data;
  // Other errors queue a Close that names the rule broken, and end the reading.
  if (wslay_event_recv(frames_.get()) == WSLAY_ERR_NOMEM) return close("error out of memory");
  got_ = {};
  flush();
}

// Whole messages only; wslay answers pings and the peer's Close itself.
void session::on_message(const wslay_event_on_msg_recv_arg& message) {
  if (wslay_is_ctrl_frame(message.opcode)) return;
  timeouts().on_message();
  queue(message.opcode, {reinterpret_cast<const char*>(message.msg), message.msg_length});
}

void session::queue(std::uint8_t opcode, std::string_view data) {
  const wslay_event_msg message{.opcode = opcode, .msg = bytes_of(data), .msg_length = data.size()};
  wslay_event_queue_msg(frames_.get(), &message);
}

void session::flush() {
  while (!sending() && !closing() && wslay_event_want_write(frames_.get()) != 0) {
    out_.clear();
    if (wslay_event_send(frames_.get()) != 0) return close("error out of memory");
    send(out_);
  }
  if (sending() || closing() || said_goodbye()) return;
  if (wslay_event_get_close_sent(frames_.get()) == 0) return;
  // Ours is out. The peer's has come, or what it sent was no WebSocket and is read no further.
  if (wslay_event_get_close_received(frames_.get()) == 0) {
    if (wslay_event_get_read_enabled(frames_.get()) != 0) return;
    decide(fmt::format("refused {}", wslay_event_get_status_code_sent(frames_.get())));
  }
  if (!ends_for_.empty()) decide(ends_for_);
  say_goodbye();
}

void session::on_drained() {
  if (frames_ && !said_goodbye()) flush();
}

void session::on_ping_due() noexcept {
  queue(WSLAY_PING, {});
  flush();
}

void session::on_age_due() noexcept {
  ends_for_ = idlewheel::name_of(expiry_reason::max_age);
  begin_close(WSLAY_CODE_GOING_AWAY, "long enough");
}

void session::begin_close(std::uint16_t code, std::string_view why) {
  wslay_event_queue_close(frames_.get(), code, bytes_of(why), why.size());
  flush();
}

void session::on_drain() {
  if (frames_)
    begin_close(WSLAY_CODE_GOING_AWAY, "restarting");
  else
    say_goodbye();
}

idlewheel::verdict session::on_timeout(const idlewheel::expiry& out) noexcept {
  // Who is there is told, and given the time to answer; who never sent a byte, or is gone, is not.
  const bool slow_request = out.reason == expiry_reason::handshake && received() != 0;
  const bool silent = frames_ && out.reason == expiry_reason::message_idle;
  if (said_goodbye() || sending() || !(slow_request || silent)) return connection::on_timeout(out);
  decide(idlewheel::name_of(out.reason), lateness(out));
  if (silent) {
    begin_close(WSLAY_CODE_GOING_AWAY, "idle");
  } else {
    send(respond(408, "text/plain", "").bytes);
    say_goodbye();
  }
  return closing() ? idlewheel::verdict::close() : idlewheel::verdict::linger();
}

}  // namespace websocket_server
